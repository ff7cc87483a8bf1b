"""A scene as a picture, or as the frames of a clip: where each object stands, and how it moves.

Positions are in units of the picture's side, y down. The same scene and seed give the same pixels.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageOps

from caplore.data.scenes.places import VARIANTS, backdrop
from caplore.data.scenes.sprites import FACING, PAINT, sprite
from caplore.data.scenes.world import Group, Scene

PICTURE_SIDE, CLIP_SIDE = 144, 112
EXTENT = {"small": 0.17, "medium": 0.24, "big": 0.325}  # three big ones fit side by side
MARGIN = 0.01
FRAMES, FRAME_MILLISECONDS = 10, 100
TRAVEL = 0.3  # how far a travelling object goes
TRAIL = 0.1  # how long the lines behind it are
TILT = 7  # degrees
HEADING = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


class Placed(NamedTuple):
    """One object where it stands: its centre, its tilt in degrees, which way it faces."""

    group: Group
    x: float
    y: float
    tilt: float
    mirrored: bool


class Pose(NamedTuple):
    """How far an object is from where it stands at one moment of a clip."""

    dx: float = 0.0
    dy: float = 0.0
    turn: float = 0.0
    seen: bool = True


def _pose(motion: str, phase: float) -> Pose:
    """`phase` runs from 0 to 1 through the clip."""
    wave = math.sin(2 * math.pi * phase)
    along = (phase - 0.5) * TRAVEL
    match motion:
        case "left":
            return Pose(dx=-along)
        case "right":
            return Pose(dx=along)
        case "up":
            return Pose(dy=-along)
        case "down":
            return Pose(dy=along)
        case "spin":
            return Pose(turn=-360 * phase)
        case "jump":
            return Pose(dy=0.06 - 0.13 * abs(wave))
        case "shake":
            return Pose(turn=24 * math.sin(6 * math.pi * phase), dx=0.015 * math.sin(6 * math.pi * phase))
        case _:
            return Pose(seen=int(phase * 5) % 2 == 0)


def _boxes(scene: Scene) -> list[Box]:
    """The part of the picture each group has for itself."""
    low, high = MARGIN, 1 - MARGIN
    if scene.arrangement == "beside":
        return [Box(low, low, 0.5, high), Box(0.5, low, high, high)]
    if scene.arrangement == "above":
        return [Box(low, low, high, 0.5), Box(low, 0.5, high, high)]
    return [Box(low, low, high, high)]


def _room_to_move(motion: str) -> tuple[float, float]:
    """How much of its box a moving object must leave free, across and down."""
    if motion in ("left", "right"):
        return TRAVEL, 0.0
    if motion in ("up", "down"):
        return 0.0, TRAVEL
    return (0.0, 0.14) if motion == "jump" else (0.03, 0.0)


def arrange(scene: Scene, rng: Random) -> list[list[Placed]]:
    """Where the objects stand: those of a group in a loose row along the longer side of its box."""
    placed = []
    for index, (group, box) in enumerate(zip(scene.groups, _boxes(scene), strict=True)):
        moves = scene.motion is not None and scene.motion.group == index
        across, down = _room_to_move(scene.motion.kind) if scene.motion and moves else (0.0, 0.0)
        free = Box(box.left + across / 2, box.top + down / 2, box.right - across / 2, box.bottom - down / 2)
        heading = scene.motion.kind if scene.motion and moves else ""
        placed.append([_place(group, centre, heading, rng) for centre in _centres(free, group, rng)])
    return placed


def _centres(box: Box, group: Group, rng: Random) -> list[tuple[float, float]]:
    wide, high, extent = box.right - box.left, box.bottom - box.top, EXTENT[group.size]
    upright = high > wide if high != wide else rng.random() < 0.5
    long, short = (high, wide) if upright else (wide, high)
    cell = long / group.count
    centres = []
    for i in range(group.count):
        along = (i + 0.5) * cell + rng.uniform(-0.5, 0.5) * max(0.0, cell - extent)
        aside = short / 2 + rng.uniform(-0.5, 0.5) * max(0.0, short - extent)
        x, y = (aside, along) if upright else (along, aside)
        centres.append((box.left + x, box.top + y))
    return centres


def _place(group: Group, centre: tuple[float, float], heading: str, rng: Random) -> Placed:
    """Slightly tilted, and facing where it goes, or either way."""
    turned = rng.choice(("left", "right"))
    faces = FACING.get(group.kind)
    wanted = heading if heading in ("left", "right") else turned
    return Placed(
        group, *centre, tilt=rng.uniform(-TILT, TILT), mirrored=faces is not None and faces != wanted
    )


def _paste(picture: Image.Image, thing: Placed, pose: Pose) -> None:
    side = picture.width
    drawn = sprite(
        thing.group.kind, thing.group.colour, thing.group.texture, round(EXTENT[thing.group.size] * side)
    )
    if thing.mirrored:
        drawn = ImageOps.mirror(drawn)
    turned = drawn.rotate(thing.tilt + pose.turn, Image.Resampling.BILINEAR).reduce(2)
    x, y = (thing.x + pose.dx) * side, (thing.y + pose.dy) * side
    picture.paste(turned, (round(x - turned.width / 2), round(y - turned.height / 2)), turned)


def _marks(picture: Image.Image, thing: Placed, pose: Pose, motion: str) -> None:
    """The marks of a comic: lines behind what travels, arcs around what spins or shakes.

    One frame is enough to tell where a thing goes, and even a plain circle is seen to spin.
    """
    side, half = picture.width, EXTENT[thing.group.size] / 2
    x, y = thing.x + pose.dx, thing.y + pose.dy
    pen = ImageDraw.Draw(picture)
    ink, width = PAINT[thing.group.colour], max(2, round(0.014 * side))
    if motion in HEADING:
        ahead_x, ahead_y = HEADING[motion]
        for aside, far in ((-0.5, 0.9), (0.0, 1.3), (0.5, 0.9)):
            near_x, near_y = x + ahead_y * aside * half, y + ahead_x * aside * half
            backs = (half * 1.15, half * 1.15 + TRAIL * far)
            pen.line(
                [((near_x - ahead_x * b) * side, (near_y - ahead_y * b) * side) for b in backs], ink, width
            )
    elif motion in ("spin", "shake"):
        starts, sweep, reach = (
            ((20, 200), 110, half * 1.22) if motion == "spin" else ((-35, 145), 70, half * 1.3)
        )
        corners = ((x - reach) * side, (y - reach) * side, (x + reach) * side, (y + reach) * side)
        for start in starts:
            turned = start - pose.turn if motion == "spin" else start
            pen.arc(corners, turned, turned + sweep, ink, width)


def _backdrop(scene: Scene, side: int, rng: Random) -> Image.Image:
    behind = backdrop(scene.place, rng.randrange(VARIANTS), side)
    return ImageOps.mirror(behind) if rng.random() < 0.5 else behind.copy()


def picture(scene: Scene, rng: Random, side: int = PICTURE_SIDE) -> Image.Image:
    """The scene as it stands."""
    canvas = _backdrop(scene, side, rng)
    for group in arrange(scene, rng):
        for thing in group:
            _paste(canvas, thing, Pose())
    return canvas


def frames(scene: Scene, rng: Random, side: int = CLIP_SIDE) -> Iterator[Image.Image]:
    """The scene as it moves, FRAMES pictures."""
    assert scene.motion is not None
    behind = _backdrop(scene, side, rng)
    placed = arrange(scene, rng)
    for frame in range(FRAMES):
        canvas = behind.copy()
        for index, group in enumerate(placed):
            pose = _pose(scene.motion.kind, frame / (FRAMES - 1)) if index == scene.motion.group else Pose()
            for thing in group if pose.seen else ():
                if index == scene.motion.group:
                    _marks(canvas, thing, pose, scene.motion.kind)
                _paste(canvas, thing, pose)
        yield canvas


def save_picture(path: Path, scene: Scene, rng: Random) -> None:
    picture(scene, rng).save(path, "PNG", compress_level=6)


def save_clip(path: Path, scene: Scene, rng: Random) -> None:
    """An endless GIF in 128 colours taken from its first frame, in which everything is to be seen."""
    first, *rest = frames(scene, rng)
    head = first.quantize(128, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    tail = [frame.quantize(palette=head, dither=Image.Dither.NONE) for frame in rest]
    head.save(
        path, "GIF", save_all=True, append_images=tail, duration=FRAME_MILLISECONDS, loop=0, optimize=False
    )
