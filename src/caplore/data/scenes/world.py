"""What can be in a picture of the made world, and how one is chosen: values, no words, no drawing.

A scene is a place and one or two groups of objects. The objects of a group are all alike. Two groups
stand side by side or one above the other; the first of them is the left or the upper one. In a clip
one group moves. Everything a caption may say is in the scene, and nothing else is.
"""

from dataclasses import asdict, dataclass
from random import Random
from typing import Any

SHAPES = ("circle", "square", "triangle", "star", "heart", "moon")
ANIMALS = ("cat", "dog", "rabbit", "bird", "fish", "turtle", "butterfly", "snail")
KINDS = SHAPES + ANIMALS
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black")
SIZES = ("small", "medium", "big")
TEXTURES = ("plain", "striped", "spotted")
COUNTS = (1, 2, 3)
PLACES = ("grass", "beach", "snow", "street", "night", "room", "water", "sky")
ARRANGEMENTS = ("beside", "above")
TRAVELS = {"beside": ("up", "down"), "above": ("left", "right")}
IN_PLACE = ("spin", "jump", "shake", "blink")
MOTIONS = ("left", "right", "up", "down", *IN_PLACE)

COMPANY = 0.5  # how often there is a second group


@dataclass(frozen=True)
class Group:
    """`count` objects that look alike."""

    kind: str
    colour: str
    size: str
    texture: str
    count: int

    def __post_init__(self) -> None:
        for value, known in (
            (self.kind, KINDS),
            (self.colour, COLOURS),
            (self.size, SIZES),
            (self.texture, TEXTURES),
            (self.count, COUNTS),
        ):
            if value not in known:
                raise ValueError(f"{value!r} is not one of {', '.join(map(str, known))}")


@dataclass(frozen=True)
class Motion:
    """Which group moves (0 or 1), and how."""

    group: int
    kind: str


@dataclass(frozen=True)
class Scene:
    """All that is true of a picture; of a clip where there is a motion."""

    place: str
    groups: tuple[Group, ...]
    arrangement: str | None = None
    motion: Motion | None = None

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise ValueError(f"{self.place!r} is not one of {', '.join(PLACES)}")
        if len(self.groups) not in (1, 2) or (len(self.groups) == 2) != (self.arrangement in ARRANGEMENTS):
            raise ValueError("a scene has one group, or two and how they are arranged")
        if len({group.kind for group in self.groups}) < len(self.groups):
            raise ValueError("two groups are of two kinds")
        if self.motion and (self.motion.kind not in MOTIONS or self.motion.group >= len(self.groups)):
            raise ValueError(f"{self.motion} is no motion of a group that is there")

    def record(self) -> dict[str, Any]:
        """As a line of scenes.jsonl."""
        return asdict(self)

    @classmethod
    def from_record(cls, row: dict[str, Any]) -> "Scene":
        """The scene of a line of scenes.jsonl; ValueError, KeyError or TypeError where it is not one."""
        return cls(
            place=row["place"],
            groups=tuple(Group(**group) for group in row["groups"]),
            arrangement=row["arrangement"],
            motion=Motion(**row["motion"]) if row["motion"] else None,
        )


def random_scene(rng: Random, *, moving: bool = False) -> Scene:
    """A scene at random, its values independent; in a clip at most two of a kind, to leave room to move."""
    kinds = rng.sample(KINDS, 2 if rng.random() < COMPANY else 1)
    groups = tuple(_random_group(rng, kind, most=2 if moving else 3) for kind in kinds)
    arrangement = rng.choice(ARRANGEMENTS) if len(groups) == 2 else None
    motion = None
    if moving:
        # A group that travels keeps to its own half, so that what is left of it stays left of it.
        travels = TRAVELS[arrangement] if arrangement else TRAVELS["beside"] + TRAVELS["above"]
        motion = Motion(rng.randrange(len(groups)), rng.choice(travels + IN_PLACE))
    return Scene(rng.choice(PLACES), groups, arrangement, motion)


def _random_group(rng: Random, kind: str, *, most: int) -> Group:
    return Group(
        kind=kind,
        colour=rng.choice(COLOURS),
        size=rng.choices(SIZES, (3, 4, 3))[0],
        texture=rng.choices(TEXTURES, (2, 1, 1))[0],
        count=rng.choices(COUNTS[:most], (5, 3, 2)[:most])[0],
    )
