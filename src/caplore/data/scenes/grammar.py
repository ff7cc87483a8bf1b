"""What people say of a scene of the made world: a lexicon, sentence patterns, and how often each is chosen.

A caption is correct when all it says is true, it names every group of objects by its kind and, of a
clip, says how they move. Size, texture, place (and the colour of a lone group) may be left out.

A sentence pattern is a line such as "NP STAND WHERE": a word in capitals is a slot, filled by one of
its phrases whatever fills the others; any other word stands for itself. So the captions of a scene are a
sum of products: easy to count, to enumerate, to draw from, and to recognise without enumerating.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product
from math import prod
from random import Random
from typing import NamedTuple

from caplore.data.scenes.world import ANIMALS, COLOURS, SIZES, TEXTURES, Group, Scene

Phrase = tuple[str, ...]

NOUNS: Mapping[str, tuple[tuple[str, str], ...]] = {  # one, many; the commonest first, here and below
    "circle": (("circle", "circles"), ("disc", "discs")),
    "square": (("square", "squares"), ("box", "boxes")),
    "triangle": (("triangle", "triangles"),),
    "star": (("star", "stars"),),
    "heart": (("heart", "hearts"),),
    "moon": (("moon", "moons"), ("crescent", "crescents")),
    "cat": (("cat", "cats"), ("kitten", "kittens")),
    "dog": (("dog", "dogs"), ("puppy", "puppies")),
    "rabbit": (("rabbit", "rabbits"), ("bunny", "bunnies")),
    "bird": (("bird", "birds"), ("chick", "chicks")),
    "fish": (("fish", "fish"),),
    "turtle": (("turtle", "turtles"), ("tortoise", "tortoises")),
    "butterfly": (("butterfly", "butterflies"),),
    "snail": (("snail", "snails"),),
}
DETERMINERS = {1: ("a", "one"), 2: ("two", "a couple of"), 3: ("three", "several")}
SIZE_WORDS = {"small": ("small", "little"), "medium": ("medium-sized",), "big": ("big", "large")}
TEXTURE_AFTER = {"striped": "with stripes", "spotted": "with spots"}
WHERE = {
    "grass": ("on the grass", "in the meadow", "in a field"),
    "beach": ("on the beach", "on the sand", "by the sea"),
    "snow": ("in the snow", "on the snow", "in winter"),
    "street": ("on the street", "on the road", "in the city"),
    "night": ("at night", "in the dark", "under the night sky"),
    "room": ("in a room", "on the floor", "indoors"),
    "water": ("in the water", "under water", "in the ocean"),
    "sky": ("in the sky", "in the air", "among the clouds"),
}
STAND = {  # where there is firm ground; in the water; in the sky: (shapes, animals), each (one, many)
    "ground": (("lies", "lie"), ("sits", "sit")),
    "water": (("floats", "float"), ("swims", "swim")),
    "sky": (("hovers", "hover"), ("flies", "fly")),
}
BY = {
    "left": ("to the left of", "left of", "next to"),
    "right": ("to the right of", "right of", "next to"),
    "above": ("above", "over", "on top of"),
    "below": ("below", "under", "beneath"),
}
CONVERSE = {"beside": ("left", "right"), "above": ("above", "below")}  # of the first group, of the second
MOVES = {  # one does, many do, doing; the word after "|" follows each
    "left": ("moves move moving | to the left", "slides slide sliding | to the left", "goes go going | left"),
    "right": (
        "moves move moving | to the right",
        "slides slide sliding | to the right",
        "goes go going | right",
    ),
    "up": ("moves move moving | up", "rises rise rising", "goes go going | up"),
    "down": ("moves move moving | down", "falls fall falling", "goes go going | down"),
    "spin": ("spins spin spinning", "turns turn turning | around", "rotates rotate rotating"),
    "jump": ("jumps jump jumping", "bounces bounce bouncing", "hops hop hopping"),
    "shake": ("shakes shake shaking", "wobbles wobble wobbling", "trembles tremble trembling"),
    "blink": ("blinks blink blinking", "flashes flash flashing", "flickers flicker flickering"),
}

# How often each pattern is chosen. "?" marks a slot that may be left empty.
ONE = {
    "NP WHERE?": 0.34,
    "there BE NP WHERE?": 0.2,
    "NP STAND WHERE": 0.28,
    "a picture of NP WHERE?": 0.08,
    "WHERE there BE NP": 0.06,
    "WHERE STAND NP": 0.04,
}
TWO = {
    "NP BY OTHER WHERE?": 0.36,
    "NP STAND BY OTHER WHERE?": 0.3,
    "there BE NP BY OTHER WHERE?": 0.13,
    "NP and OTHER WHERE?": 0.15,
    "WHERE NP STAND BY OTHER": 0.06,
}
ONE_MOVES = {
    "NP MOVES WHERE?": 0.34,
    "NP BE MOVING WHERE?": 0.3,
    "NP MOVING WHERE?": 0.16,
    "there BE NP MOVING WHERE?": 0.12,
    "WHERE NP MOVES": 0.08,
}
TWO_MOVES = {
    "NP MOVES BY OTHER WHERE?": 0.38,
    "NP BE MOVING BY OTHER WHERE?": 0.3,
    "NP MOVING BY OTHER WHERE?": 0.18,
    "there BE NP MOVING BY OTHER": 0.1,
    "BY OTHER NP MOVES": 0.04,
}
# Of two groups, what is said beyond number, colour and kind, and how often: never more than this.
DETAILS = {
    ("", ""): 0.4,
    ("size", ""): 0.17,
    ("", "size"): 0.08,
    ("size", "size"): 0.15,
    ("texture", ""): 0.12,
    ("", "texture"): 0.08,
}
SAYS_PLACE, SAYS_COLOUR, SAYS_SIZE, SAYS_TEXTURE = 0.6, 0.9, 0.45, 0.6
UNREMARKABLE = 0.08  # a medium size or a plain texture is mentioned this much less often
SALIENT_FIRST = 0.8  # animals before shapes, then big before small, then left before right


class Slot(NamedTuple):
    """The phrases that may fill a place in a sentence, and how often each does; the weights sum to 1."""

    phrases: tuple[Phrase, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Frame:
    """A sentence pattern of one scene: its slots are filled independently."""

    weight: float
    slots: tuple[Slot, ...]

    @property
    def count(self) -> int:
        return prod(len(slot.phrases) for slot in self.slots)

    def captions(self) -> list[Phrase]:
        """All of them, in the order of the slots' phrases."""
        found: list[Phrase] = [()]
        for slot in self.slots:
            found = [begun + phrase for begun in found for phrase in slot.phrases]
        return found

    def weights(self) -> list[float]:
        """How often each is said, in the order of `captions`."""
        found = [self.weight]
        for slot in self.slots:
            found = [begun * weight for begun in found for weight in slot.weights]
        return found

    def matches(self, words: Phrase) -> bool:
        """Whether the words are one of its captions: follows the positions that slot after slot can reach."""
        reached = {0}
        for slot in self.slots:
            reached = {at + len(p) for at in reached for p in slot.phrases if words[at : at + len(p)] == p}
            if not reached:
                return False
        return len(words) in reached


def _slot(*texts: str, said: float = 1.0) -> Slot:
    """One of these, the r-th 1/r times as often as the first; or, if `said` is below 1, nothing."""
    share = [1 / rank for rank in range(1, len(texts) + 1)]
    weights = [said * part / sum(share) for part in share]
    if said < 1:
        return Slot(((), *(tuple(text.split()) for text in texts)), (1 - said, *weights))
    return Slot(tuple(tuple(text.split()) for text in texts), tuple(weights))


NOTHING = _slot("")


def _choices(slot: Slot) -> list[tuple[Phrase, float]]:
    return list(zip(*slot, strict=True))


def _noun_phrases(
    group: Group,
    *,
    numbers: Slot,
    size: Slot = NOTHING,
    texture: Slot = NOTHING,
    colour: Slot,
    after: bool = False,
) -> Slot:
    """ "a big striped red cat": every choice of number, size, texture, colour and noun.

    `after` lets the texture follow the noun, too: "a red cat with stripes".
    """
    nouns = _slot(*(words[group.count > 1] for words in NOUNS[group.kind]))
    textures = _sides(texture, TEXTURE_AFTER.get(group.texture, "") if after else "")
    phrases, weights = [], []
    for (number, n), (big, b), (red, r), (cat, c), (before, behind, t) in product(
        _choices(numbers), _choices(size), _choices(colour), _choices(nouns), textures
    ):
        phrases.append(_with_article((*number, *big, *before, *red, *cat, *behind)))
        weights.append(n * b * r * c * t)
    return Slot(tuple(phrases), tuple(weights))


def _sides(texture: Slot, behind: str) -> list[tuple[Phrase, Phrase, float]]:
    """(before the noun, after it, how often): half as often after it, where it may follow, as before."""
    ways: list[tuple[Phrase, Phrase, float]] = []
    for phrase, weight in _choices(texture):
        if phrase and behind:
            ways += [(phrase, (), weight * 2 / 3), ((), tuple(behind.split()), weight / 3)]
        else:
            ways.append((phrase, (), weight))
    return ways


def _with_article(words: Phrase) -> Phrase:
    """ "a" before a vowel is "an"."""
    return ("an", *words[1:]) if words[0] == "a" and words[1][0] in "aeiou" else words


def _size(group: Group, said: float) -> Slot:
    return _slot(*SIZE_WORDS[group.size], said=said)


def _frames(patterns: Mapping[str, float], slots: Mapping[str, Slot], share: float = 1.0) -> Iterable[Frame]:
    for pattern, weight in patterns.items():
        yield Frame(
            share * weight, tuple(slots[word] if word.isupper() else _slot(word) for word in pattern.split())
        )


def _agreeing(scene: Scene, group: Group) -> dict[str, Slot]:
    """The verbs and the place, as they go with a subject of one or of many."""
    many = group.count > 1
    be = "are" if many else "is"
    stand = STAND.get(scene.place, STAND["ground"])[group.kind in ANIMALS][many]
    slots = {"BE": _slot(be), "STAND": _slot(be, stand)}
    if scene.motion:
        slots["MOVES"] = _slot(*(_inflected(verb, 1 if many else 0) for verb in MOVES[scene.motion.kind]))
        slots["MOVING"] = _slot(*(_inflected(verb, 2) for verb in MOVES[scene.motion.kind]))
    return slots


def _inflected(verb: str, form: int) -> str:
    """One form of an entry of MOVES, with what follows it."""
    forms, _, behind = verb.partition("|")
    return f"{forms.split()[form]} {behind}"


def _where(scene: Scene, phrases: int) -> dict[str, Slot]:
    said = WHERE[scene.place][:phrases]
    return {"WHERE": _slot(*said), "WHERE?": _slot(*said, said=SAYS_PLACE)}


def _of_one(scene: Scene) -> Iterable[Frame]:
    (group,) = scene.groups
    numbers = DETERMINERS[group.count][: 1 if scene.motion else None]
    noun_phrases = _noun_phrases(
        group,
        numbers=_slot(*numbers),
        size=_size(group, SAYS_SIZE * (UNREMARKABLE if group.size == "medium" else 1)),
        texture=_slot(
            group.texture,
            said=SAYS_TEXTURE * (UNREMARKABLE if group.texture == "plain" else 1),
        ),
        colour=_slot(group.colour, said=SAYS_COLOUR),
        after=True,
    )
    slots = {"NP": noun_phrases, **_agreeing(scene, group), **_where(scene, 2 if scene.motion else 3)}
    return _frames(ONE_MOVES if scene.motion else ONE, slots)


def _of_two(scene: Scene) -> Iterable[Frame]:
    """Both orders, the more salient group more often first; of a clip, what moves is always the subject."""
    assert scene.arrangement is not None
    for first, share in _orders(scene):
        group, other = scene.groups[first], scene.groups[1 - first]
        slots = {**_agreeing(scene, group), **_where(scene, 1 if scene.motion else 2)}
        slots["BY"] = _slot(*BY[CONVERSE[scene.arrangement][first]])
        for (of_group, of_other), weight in _details(group, other, long=scene.motion is None):
            slots["NP"], slots["OTHER"] = _brief(group, of_group), _brief(other, of_other)
            yield from _frames(TWO_MOVES if scene.motion else TWO, slots, share * weight)


def _orders(scene: Scene) -> list[tuple[int, float]]:
    """Which group is named first, and how often."""
    if scene.motion:
        return [(scene.motion.group, 1.0)]
    salience = [
        (group.kind in ANIMALS, SIZES.index(group.size), -at) for at, group in enumerate(scene.groups)
    ]
    salient = salience.index(max(salience))
    return [(salient, SALIENT_FIRST), (1 - salient, 1 - SALIENT_FIRST)]


def _details(group: Group, other: Group, *, long: bool) -> list[tuple[tuple[str, str], float]]:
    """What more is said of each group, and how often; a detail of both only where sentences may be `long`."""
    found = {}
    for (of_group, of_other), weight in DETAILS.items():
        if long or not (of_group and of_other):
            dull = sum(_unremarkable(g, detail) for g, detail in ((group, of_group), (other, of_other)))
            found[of_group, of_other] = weight * UNREMARKABLE**dull
    return [(details, weight / sum(found.values())) for details, weight in found.items()]


def _unremarkable(group: Group, detail: str) -> bool:
    return (detail == "size" and group.size == "medium") or (detail == "texture" and group.texture == "plain")


@lru_cache(maxsize=1024)
def _brief(group: Group, detail: str) -> Slot:
    """A group in few words: number, colour, kind and one detail."""
    return _noun_phrases(
        group,
        numbers=_slot(DETERMINERS[group.count][0]),
        size=_size(group, 1.0) if detail == "size" else NOTHING,
        texture=_slot(group.texture) if detail == "texture" else NOTHING,
        colour=_slot(group.colour),
    )


def frames_of(scene: Scene) -> tuple[Frame, ...]:
    """The correct captions of a scene; none of them is in two of the frames, or twice in one."""
    return tuple(_of_one(scene) if len(scene.groups) == 1 else _of_two(scene))


def draw(frames: Sequence[Frame], rng: Random, references: int) -> list[Phrase]:
    """What different people say: drawn by preference, no two alike (there are enough captions for that)."""
    totals = list(accumulate(frame.weight for frame in frames))
    drawn: dict[Phrase, None] = {}
    while len(drawn) < references:
        (frame,) = rng.choices(frames, cum_weights=totals)
        chosen = (rng.choices(slot.phrases, slot.weights)[0] for slot in frame.slots)
        drawn[tuple(word for phrase in chosen for word in phrase)] = None
    return list(drawn)


def vocabulary() -> list[str]:
    """Every word of every caption of every scene, pictures and clips, in alphabetical order."""
    tables = (
        NOUNS,
        DETERMINERS,
        SIZE_WORDS,
        TEXTURE_AFTER,
        WHERE,
        STAND,
        BY,
        MOVES,
        ONE,
        TWO,
        ONE_MOVES,
        TWO_MOVES,
    )
    words = {"an", "is", "are", *COLOURS, *TEXTURES}
    for table in tables:
        words.update(word for text in _texts(table) for word in text.split() if word.islower())
    return sorted(words)


def _texts(entry: object) -> Iterator[str]:
    """The strings of a table: of a pattern table its keys, of any other its values, however deep."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, Mapping):
        for key, value in entry.items():
            yield from _texts(key if isinstance(value, float) else value)
    elif isinstance(entry, tuple):
        for part in entry:
            yield from _texts(part)
