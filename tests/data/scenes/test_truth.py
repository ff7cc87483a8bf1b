"""The truth of a scene: enumerated, counted, recognised, preferred; every answer agrees with every other."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.data.scenes import Truth, load_truths, vocabulary
from caplore.data.scenes.grammar import draw, frames_of
from caplore.data.scenes.make import Plan, make_scenes
from caplore.data.scenes.world import (
    ARRANGEMENTS,
    COLOURS,
    COUNTS,
    IN_PLACE,
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
from caplore.errors import InputError
from caplore.files import write_json
from caplore.text.ptb import tokenize

LONGEST = 18  # words
SUM = 1e-9  # thousands of float64 weights added

scenes = st.builds(
    lambda seed, moving: random_scene(Random(seed), moving=moving), st.integers(0, 10**6), st.booleans()
)

CAT = Group("cat", "red", "big", "plain", 1)
STARS = Group("star", "blue", "small", "spotted", 2)
CAT_AND_STARS = Scene("grass", (CAT, STARS), "beside")
ORANGE_FISH = Scene("water", (Group("fish", "orange", "medium", "striped", 1),))
CLIP = Scene("sky", (CAT, STARS), "above", Motion(1, "left"))


def truth(scene: Scene) -> Truth:
    return Truth("x", scene)


@settings(max_examples=60, deadline=None)
@given(scenes)
def test_captions_are_distinct_short_and_in_the_vocabulary(scene: Scene) -> None:
    captions = truth(scene).captions()
    assert len(captions) == len(set(captions)) == truth(scene).count
    assert max(map(len, captions)) <= LONGEST
    assert {word for caption in captions for word in caption} <= set(vocabulary())


def test_every_input_has_between_200_and_20000_captions() -> None:
    """Over every combination of what the number depends on, not a sample of it."""
    group = [
        Group(kind, "red", size, texture, count)  # one name or two, one word for the size or two, ...
        for kind, size, texture, count in product(("fish", "cat"), SIZES[1:], TEXTURES[:2], COUNTS)
    ]
    other = [replace(g, kind={"cat": "dog", "fish": "star"}[g.kind]) for g in group]
    ones = [Scene("grass", (g,)) for g in group]
    twos = [
        Scene("grass", pair, way)
        for pair in product(group, other)
        for way in ARRANGEMENTS
        if {g.count for g in pair} == {1}  # the number of objects plays no part here
    ]
    moving = [replace(s, motion=Motion(0, "spin")) for s in ones + twos]
    counts = [truth(scene).count for scene in ones + twos + moving]
    assert min(counts) >= 200
    assert max(counts) <= 20_000


def perturbed(caption: tuple[str, ...], rng: Random) -> tuple[str, ...]:
    """One or two small changes: a word lost, added, exchanged for another, or two that change places."""
    words = list(caption)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(words))
        match rng.randrange(4):
            case 0 if len(words) > 1:
                del words[at]
            case 1:
                words.insert(at, rng.choice(vocabulary()))
            case 2:
                words[at] = rng.choice(vocabulary())
            case _:
                to = rng.randrange(len(words))
                words[at], words[to] = words[to], words[at]
    return tuple(words)


@settings(max_examples=40, deadline=None)
@given(scenes, st.randoms(use_true_random=False))
def test_a_caption_is_recognised_exactly_if_it_is_enumerated(scene: Scene, rng: Random) -> None:
    this = truth(scene)
    everything = set(this.captions())
    assert all(this.contains(list(caption)) for caption in rng.sample(sorted(everything), 50))
    tried = [perturbed(caption, rng) for caption in rng.sample(sorted(everything), 100)]
    assert [this.contains(words) for words in tried] == [words in everything for words in tried]
    assert not this.contains([])
    assert not this.contains(["no", "such", "words"])


@pytest.mark.parametrize(
    ("scene", "caption", "right"),
    [
        (CAT_AND_STARS, "a big red cat sits to the left of two small blue stars on the grass", True),
        (CAT_AND_STARS, "two blue stars are next to a red kitten", True),
        (CAT_AND_STARS, "a red cat and two spotted blue stars in the meadow", True),
        (CAT_AND_STARS, "in the meadow two blue stars lie right of a red cat", True),
        (CAT_AND_STARS, "a red cat on the grass", False),  # names one group of the two
        (CAT_AND_STARS, "a red cat to the right of two blue stars", False),
        (CAT_AND_STARS, "a small red cat and two blue stars", False),
        (CAT_AND_STARS, "a red cat and three blue stars", False),
        (CAT_AND_STARS, "a red cat and two blue star", False),
        (CAT_AND_STARS, "a red cat and two blue stars in the", False),
        (CAT_AND_STARS, "a red cat sit left of two blue stars", False),
        (ORANGE_FISH, "an orange fish with stripes swims in the water", True),
        (ORANGE_FISH, "there is a striped fish", True),
        (ORANGE_FISH, "a picture of one orange fish", True),
        (ORANGE_FISH, "a orange fish", False),
        (ORANGE_FISH, "an striped fish", False),
        (ORANGE_FISH, "a spotted fish", False),
        (ORANGE_FISH, "a striped fish with stripes", False),
        (CLIP, "two blue stars are moving to the left below a red cat", True),
        (CLIP, "under a big red cat two blue stars slide to the left", True),
        (CLIP, "two blue stars below a red cat", False),  # what moves is not said
        (CLIP, "two blue stars are moving to the right below a red cat", False),
        (CLIP, "a red cat moves to the left above two blue stars", False),
    ],
)
def test_by_hand(scene: Scene, caption: str, right: bool) -> None:
    assert truth(scene).contains(caption.split()) is right
    assert (tuple(caption.split()) in truth(scene).captions()) is right


@settings(max_examples=40, deadline=None)
@given(scenes, st.randoms(use_true_random=False))
def test_a_caption_true_of_two_scenes_does_not_say_what_differs(scene: Scene, rng: Random) -> None:
    """Change one thing in a scene: what can be said of both never mentions it."""
    group = scene.groups[0]
    attribute, words = rng.choice(
        (
            ("colour", COLOURS),
            ("texture", ("plain", "striped", "spotted", "stripes", "spots")),
            ("size", ("big", "large", "small", "little", "medium-sized")),
        )
    )
    values = {"colour": COLOURS, "texture": TEXTURES, "size": SIZES}[attribute]
    other = rng.choice([value for value in values if value != getattr(group, attribute)])
    changed = replace(scene, groups=(replace(group, **{attribute: other}), *scene.groups[1:]))
    common = set(truth(scene).captions()) & set(truth(changed).captions())
    if len(scene.groups) == 1:
        assert common
        assert not {word for caption in common for word in caption} & set(words)
    else:  # the other group may be said to have it: no more such words than it alone explains
        assert max((sum(word in words for word in caption) for caption in common), default=0) <= 1


@settings(max_examples=40, deadline=None)
@given(scenes, st.randoms(use_true_random=False))
def test_number_kind_and_motion_are_always_said(scene: Scene, rng: Random) -> None:
    group = scene.groups[0]
    kind = rng.choice([k for k in KINDS if k not in {g.kind for g in scene.groups}])
    counts = COUNTS[:2] if scene.motion else COUNTS
    others = [
        replace(scene, groups=(replace(group, kind=kind), *scene.groups[1:])),
        replace(
            scene,
            groups=(
                replace(group, count=rng.choice([c for c in counts if c != group.count])),
                *scene.groups[1:],
            ),
        ),
    ]
    if scene.motion:
        motions = [*IN_PLACE, *(TRAVELS[scene.arrangement] if scene.arrangement else MOTIONS[:4])]
        moved = rng.choice([m for m in motions if m != scene.motion.kind])
        others.append(replace(scene, motion=Motion(scene.motion.group, moved)))
    captions = set(truth(scene).captions())
    for other in others:
        assert not captions & set(truth(other).captions())


def test_the_arrangement_is_said_unless_the_groups_are_only_listed() -> None:
    here, there = truth(CAT_AND_STARS), truth(replace(CAT_AND_STARS, arrangement="above"))
    common = set(here.captions()) & set(there.captions())
    assert common == {caption for caption in here.captions() if "and" in caption}


@settings(max_examples=30, deadline=None)
@given(scenes, st.integers(0, 10**6))
def test_references_are_five_different_members(scene: Scene, seed: int) -> None:
    drawn = draw(frames_of(scene), Random(seed), 5)
    assert len(set(drawn)) == 5
    assert all(truth(scene).contains(caption) for caption in drawn)
    assert drawn == draw(frames_of(scene), Random(seed), 5)


@settings(max_examples=30, deadline=None)
@given(scenes)
def test_preference_is_a_distribution_over_the_captions_far_from_uniform(scene: Scene) -> None:
    preference = truth(scene).preference()
    assert len(preference) == truth(scene).count
    assert sum(preference) == pytest.approx(1, abs=SUM)
    assert max(preference) > 3 / len(preference) > min(preference) > 0


def test_people_say_the_common_form_more_often() -> None:
    """Drawn references follow the preference: common words, the salient group first, the dull details seldom."""
    rng, cats, kittens, cat_first, plain, sized = Random(0), 0, 0, 0, 0, 0
    for _ in range(400):
        (caption,) = draw(frames_of(CAT_AND_STARS), rng, 1)
        cats, kittens = cats + ("cat" in caption), kittens + ("kitten" in caption)
        nouns = [word for word in caption if word in ("cat", "kitten", "stars")]
        cat_first += nouns[0] != "stars"
        plain, sized = plain + ("plain" in caption), sized + ("big" in caption or "large" in caption)
    assert cats > 1.5 * kittens > 0
    assert cat_first > 280
    assert plain < 0.15 * sized


def test_draws_agree_with_the_preference() -> None:
    scene = ORANGE_FISH
    expected = dict(zip(truth(scene).captions(), truth(scene).preference(), strict=True))
    rng, draws = Random(1), 4000
    drawn = [draw(frames_of(scene), rng, 1)[0] for _ in range(draws)]
    for caption in sorted(expected, key=expected.__getitem__)[-5:]:
        # a binomial count: five standard deviations
        p = expected[caption]
        assert abs(drawn.count(caption) / draws - p) < 5 * (p * (1 - p) / draws) ** 0.5


def test_the_vocabulary_has_no_word_that_nobody_says() -> None:
    """Every value of everything at least once, of pictures and of clips."""
    said: dict[bool, set[str]] = {False: set(), True: set()}
    for i, (moving, place, count, arrangement) in enumerate(
        product((False, True), PLACES, COUNTS, (None, *ARRANGEMENTS))
    ):
        for j, kind in enumerate(KINDS):
            if moving and (count > 2 or j > 7):
                continue
            group = Group(kind, COLOURS[(i + j) % 8], SIZES[(i + j) % 3], TEXTURES[(i // 3 + j) % 3], count)
            groups = (group, replace(group, kind=KINDS[j - 1])) if arrangement else (group,)
            travels = TRAVELS[arrangement] if arrangement else MOTIONS[:4]
            motion = Motion(0, (*travels, *IN_PLACE)[j % (len(travels) + 4)]) if moving else None
            scene = Scene(place, groups, arrangement, motion)
            slots = [slot for frame in frames_of(scene) for slot in frame.slots]
            said[moving].update(word for slot in slots for phrase in slot.phrases for word in phrase)
    assert said[False] | said[True] == set(vocabulary())
    assert 120 <= len(said[False]) <= len(vocabulary()) <= 300


def test_captions_are_what_the_tokeniser_gives() -> None:
    for scene in (
        CAT_AND_STARS,
        ORANGE_FISH,
        CLIP,
        Scene("room", (Group("dog", "black", "medium", "plain", 3),)),
    ):
        for caption in truth(scene).captions()[::7]:
            assert tuple(tokenize(" ".join(caption))) == caption


def test_the_list_given_out_is_the_caller_s() -> None:
    this = truth(CAT_AND_STARS)
    this.captions().clear()
    assert len(this.captions()) == this.count


def test_truths_come_in_the_order_asked_for(tmp_path: Path) -> None:
    dataset = make_scenes(tmp_path / "world", Plan(3, 1, 1), workers=1).dataset
    ids = ["test-00000", "train-00002", "train-00000"]
    truths = load_truths(dataset, ids)
    assert [t.id for t in truths] == ids
    captions = {item.id: item.captions for item in dataset.inputs}
    for t in truths:
        assert all(t.contains(caption.split()) for caption in captions[t.id])


def test_a_truth_that_is_not_this_data_set_s_is_refused(tmp_path: Path) -> None:
    dataset = make_scenes(tmp_path / "world", Plan(1, 1, 1), workers=1).dataset
    with pytest.raises(InputError, match=r"no scene for 1 of 2 inputs \(first: 'nobody'\)"):
        load_truths(dataset, ["train-00000", "nobody"])
    with pytest.raises(InputError, match="is version 0 of the made world"):
        load_truths(replace(dataset, version="0"), ["train-00000"])
    scenes_file, head = dataset.path / "scenes.jsonl", dataset.path / "dataset.json"
    scenes_file.write_text(scenes_file.read_text().replace('"kind": "', '"kind": "sea-'))
    with pytest.raises(InputError, match="checksum differs"):
        load_truths(dataset, ["train-00000"])
    write_json(head, {"format": "caplore-dataset-1", "name": "scenes"})
    with pytest.raises(
        InputError, match=r"scenes.jsonl, line 1 is not a scene \('sea-\w+' is not one of circle"
    ):
        load_truths(dataset, ["train-00000"])
    scenes_file.unlink()
    with pytest.raises(InputError, match=r"has no scenes.jsonl(.|\n)*caplore data scenes --to DIR"):
        load_truths(dataset, ["train-00000"])
