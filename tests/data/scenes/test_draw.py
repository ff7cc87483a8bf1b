"""What is true of a scene can be seen in its picture: where things are, how large, what colour, how they move."""

from itertools import combinations, pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageStat

from caplore.data.scenes.draw import (
    CLIP_SIDE,
    EXTENT,
    FRAMES,
    PICTURE_SIDE,
    Placed,
    arrange,
    frames,
    picture,
    save_clip,
    save_picture,
)
from caplore.data.scenes.places import PAINTERS, VARIANTS, backdrop
from caplore.data.scenes.sprites import PAINT, STROKES, sprite
from caplore.data.scenes.world import (
    COLOURS,
    KINDS,
    MOTIONS,
    PLACES,
    SIZES,
    TEXTURES,
    TRAVELS,
    Group,
    Motion,
    Scene,
    random_scene,
)

seeds = st.integers(0, 10**6)


def edges(thing: Placed) -> tuple[float, float, float, float]:
    half = EXTENT[thing.group.size] / 2
    return thing.x - half, thing.y - half, thing.x + half, thing.y + half


@settings(max_examples=80, deadline=None)
@given(seeds, st.booleans())
def test_things_stand_inside_the_picture_apart_and_as_the_arrangement_says(seed: int, moving: bool) -> None:
    scene = random_scene(Random(seed), moving=moving)
    placed = arrange(scene, Random(seed))
    everything = [thing for group in placed for thing in group]
    assert [len(group) for group in placed] == [group.count for group in scene.groups]
    for thing in everything:
        assert min(edges(thing)) >= 0
        assert max(edges(thing)) <= 1
    for one, other in combinations(everything, 2):
        apart = max(abs(one.x - other.x), abs(one.y - other.y))
        assert apart >= (EXTENT[one.group.size] + EXTENT[other.group.size]) / 2 - 1e-9
    if scene.arrangement:
        axis = 0 if scene.arrangement == "beside" else 1
        first, second = ([edges(thing) for thing in group] for group in placed)
        assert max(edge[axis + 2] for edge in first) <= min(edge[axis] for edge in second)


def near(image: Image.Image, colour: str) -> Image.Image:
    """White where the picture has this colour."""
    apart = ImageChops.difference(image, Image.new("RGB", image.size, PAINT[colour]))
    return apart.convert("L", (0.34, 0.33, 0.33, 0)).point(lambda v: 255 if v < 8 else 0)


@pytest.mark.parametrize("place", PLACES)
def test_the_colours_are_where_the_groups_are(place: str) -> None:
    for colour, other in (("red", "blue"), ("green", "pink"), ("orange", "purple"), ("yellow", "black")):
        groups = (Group("circle", colour, "medium", "plain", 2), Group("square", other, "big", "plain", 1))
        drawn = picture(Scene(place, groups, "beside"), Random(colour))
        for hue, here, there in ((colour, 0, 1), (other, 1, 0)):
            seen = near(drawn, hue)
            halves = [
                seen.crop((PICTURE_SIDE // 2 * i, 0, PICTURE_SIDE // 2 * (i + 1), PICTURE_SIDE))
                for i in (0, 1)
            ]
            shares = [ImageStat.Stat(half).mean[0] / 255 for half in halves]
            assert shares[here] > 0.1
            assert shares[there] < 0.02


def test_every_place_and_every_kind_can_be_drawn() -> None:
    assert set(PAINTERS) == set(PLACES)
    assert set(STROKES) == set(KINDS)
    assert set(PAINT) == set(COLOURS)
    assert EXTENT.keys() == set(SIZES)
    means = [ImageStat.Stat(backdrop(place, 0, 64)).mean for place in PLACES]
    assert min(max(abs(x - y) for x, y in zip(a, b, strict=True)) for a, b in combinations(means, 2)) > 6
    one, other = (backdrop("grass", variant, 64) for variant in (0, VARIANTS - 1))
    assert one.tobytes() != other.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_objects_differ_by_kind_colour_texture_and_size(kind: str) -> None:
    looks = [sprite(kind, colour, texture, 40).tobytes() for colour in COLOURS for texture in TEXTURES]
    looks += [sprite(other, "red", "plain", 40).tobytes() for other in KINDS if other != kind]
    assert len(set(looks)) == len(looks)
    areas = [
        ImageStat.Stat(sprite(kind, "red", "plain", round(PICTURE_SIDE * EXTENT[size])).getchannel("A")).sum[
            0
        ]
        for size in SIZES
    ]
    assert all(larger > 1.5 * smaller for smaller, larger in pairwise(areas))


def centre(image: Image.Image) -> tuple[float, float]:
    left, top, right, bottom = image.getbbox() or (0, 0, 0, 0)
    return (left + right) / 2 / image.width, (top + bottom) / 2 / image.height


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_clip_shows_its_motion_and_nothing_else_moves(motion: str) -> None:
    still = Group("square", "blue", "small", "plain", 1)
    arrangement = "above" if motion in TRAVELS["above"] else "beside"
    scene = Scene("sky", (Group("star", "red", "medium", "plain", 1), still), arrangement, Motion(0, motion))
    shown = list(frames(scene, Random(motion)))
    assert len(shown) == FRAMES
    reds, blues = ([near(frame, colour) for frame in shown] for colour in ("red", "blue"))
    assert len({blue.tobytes() for blue in blues}) == 1
    assert len({red.tobytes() for red in reds}) > 1
    (x0, y0), (x1, y1) = centre(reds[0]), centre(reds[-1])
    ahead = {"left": x0 - x1, "right": x1 - x0, "up": y0 - y1, "down": y1 - y0}
    for way, distance in ahead.items():
        assert (distance > 0.2) is (motion == way)
    seen = [red.getbbox() is not None for red in reds]
    assert all(seen) is (motion != "blink")
    if motion == "jump":
        heights = [centre(red)[1] for red in reds]
        assert max(heights) - min(heights) > 0.1
        assert max(centre(red)[0] for red in reds) - min(centre(red)[0] for red in reds) < 0.02


@pytest.mark.parametrize(("motion", "behind"), [("left", 1), ("right", 0), ("up", 1), ("down", 0)])
def test_speed_lines_come_behind(motion: str, behind: int) -> None:
    """Seen along the way it goes, the red reaches further from its bulk on the side it comes from."""
    scene = Scene("sky", (Group("square", "red", "medium", "plain", 1),), None, Motion(0, motion))
    red = near(list(frames(scene, Random(motion)))[FRAMES // 2], "red")
    size = (CLIP_SIDE, 1) if motion in ("left", "right") else (1, CLIP_SIDE)
    profile = red.resize(size, Image.Resampling.BOX).tobytes()
    there = [at for at, share in enumerate(profile) if share]
    bulk = sum(at * share for at, share in enumerate(profile)) / sum(profile)
    reach = (bulk - there[0], there[-1] - bulk)
    assert reach[behind] > reach[1 - behind] + 2


@settings(max_examples=5, deadline=None)
@given(seeds)
def test_the_same_numbers_give_the_same_picture(seed: int) -> None:
    scene = random_scene(Random(seed))
    once, again, other = (picture(scene, Random(s)).tobytes() for s in (seed, seed, seed + 1))
    assert once == again != other


def test_files_are_what_their_names_say(tmp_path: Path) -> None:
    scene = Scene("room", (Group("snail", "pink", "big", "spotted", 2),), None, Motion(0, "down"))
    save_picture(tmp_path / "a.png", scene, Random(0))
    save_clip(tmp_path / "a.gif", scene, Random(0))
    with Image.open(tmp_path / "a.png") as image:
        assert (image.format, image.size) == ("PNG", (PICTURE_SIDE, PICTURE_SIDE))
    with Image.open(tmp_path / "a.gif") as clip:
        assert (clip.format, clip.size, clip.n_frames) == ("GIF", (CLIP_SIDE, CLIP_SIDE), FRAMES)
        assert clip.info["loop"] == 0
