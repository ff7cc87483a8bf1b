"""The objects, as stickers: a kind is a list of strokes in a 100 x 100 box, in a colour and a texture.

Strokes are painted in order. The tone "body" takes the object's colour and texture; "head" takes its
lighter tint and no texture; the other tones are details on top. Everything is drawn large and reduced,
so that edges are smooth.
"""

import math
from functools import lru_cache
from typing import NamedTuple

from PIL import Image, ImageChops, ImageDraw, ImageFilter

RGB = tuple[int, int, int]
Points = tuple[tuple[float, float], ...]

WHITE, BLACK = (255, 255, 255), (0, 0, 0)
INK, BEAK = (38, 36, 44), (250, 176, 40)
PAINT: dict[str, RGB] = {
    "red": (222, 44, 44),
    "orange": (248, 138, 24),
    "yellow": (252, 214, 40),
    "green": (44, 160, 66),
    "blue": (36, 104, 222),
    "purple": (132, 66, 190),
    "pink": (246, 118, 180),
    "black": (52, 50, 58),
}
PALE = ("yellow",)  # its stripes and spots are darker than it is, not lighter

SAMPLING = 4  # a sprite is drawn this many times larger, and reduced
BORDER = 0.045  # of the object's size: the white rim of the sticker
ROOM = 0.12  # of the object's size: space around it for the rim and the shadow


class Stroke(NamedTuple):
    """One mark: an ellipse (two corners), a polygon, or a thick line through points."""

    form: str
    tone: str
    points: Points
    width: float = 0.0


def ellipse(tone: str, left: float, top: float, right: float, bottom: float) -> Stroke:
    return Stroke("ellipse", tone, ((left, top), (right, bottom)))


def polygon(tone: str, *points: tuple[float, float]) -> Stroke:
    return Stroke("polygon", tone, points)


def line(tone: str, width: float, *points: tuple[float, float]) -> Stroke:
    return Stroke("line", tone, points, width)


def _star() -> Points:
    tip = [(math.radians(36 * i - 90), 52 if i % 2 == 0 else 22) for i in range(10)]
    return tuple((50 + r * math.cos(a), 54 + r * math.sin(a)) for a, r in tip)


def _heart() -> Points:
    turn = [2 * math.pi * i / 60 for i in range(60)]
    return tuple(
        (
            50 + 3.0 * 16 * math.sin(t) ** 3,
            47 - 3.05 * (13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)),
        )
        for t in turn
    )


def _moon() -> Points:
    """A crescent: an outer arc of a circle, and back along the arc of a circle shifted to the right."""
    outer = [math.radians(55 + 250 * i / 40) for i in range(41)]
    inner = [math.radians(292 - 224 * i / 40) for i in range(41)]
    return tuple((56 + 48 * math.cos(a), 50 + 48 * math.sin(a)) for a in outer) + tuple(
        (76 + 35 * math.cos(a), 50 + 41 * math.sin(a)) for a in inner
    )


def _swirl() -> Points:
    turn = [i / 30 for i in range(31)]
    return tuple(
        (60 + 24 * (1 - t) * math.cos(13 * t + 2.6), 44 + 24 * (1 - t) * math.sin(13 * t + 2.6)) for t in turn
    )


def _eyes(left: float, right: float, y: float, radius: float = 4.5) -> tuple[Stroke, ...]:
    """Two eyes with a glint each."""
    eyes = [
        ellipse("ink", x - radius, y - radius * 1.15, x + radius, y + radius * 1.15) for x in (left, right)
    ]
    glints = [
        ellipse("white", x - radius * 0.1, y - radius * 0.8, x + radius * 0.7, y) for x in (left, right)
    ]
    return (*eyes, *glints)


STROKES: dict[str, tuple[Stroke, ...]] = {
    "circle": (ellipse("body", 3, 3, 97, 97),),
    "square": (
        polygon("body", (7, 7), (93, 7), (93, 93), (7, 93)),
        line("body", 8, (7, 7), (93, 7), (93, 93), (7, 93), (7, 7)),
    ),
    "triangle": (
        polygon("body", (50, 9), (95, 90), (5, 90)),
        line("body", 8, (50, 9), (95, 90), (5, 90), (50, 9)),
    ),
    "star": (polygon("body", *_star()), line("body", 5, *_star(), _star()[0])),
    "heart": (polygon("body", *_heart()),),
    "moon": (polygon("body", *_moon()),),
    "cat": (
        line("body", 9, (64, 90), (82, 92), (92, 82), (91, 66), (84, 56)),
        ellipse("body", 26, 46, 74, 99),
        polygon("body", (21, 40), (19, 2), (50, 16)),
        polygon("body", (79, 40), (81, 2), (50, 16)),
        ellipse("body", 18, 10, 82, 60),
        polygon("shade", (25, 22), (24, 10), (36, 16)),
        polygon("shade", (75, 22), (76, 10), (64, 16)),
        ellipse("light", 38, 64, 62, 95),
        *_eyes(38, 62, 34, 5.5),
        polygon("nose", (46, 44), (54, 44), (50, 49)),
        line("ink", 1.6, (30, 46), (8, 42)),
        line("ink", 1.6, (30, 50), (9, 53)),
        line("ink", 1.6, (70, 46), (92, 42)),
        line("ink", 1.6, (70, 50), (91, 53)),
    ),
    "dog": (
        line("body", 9, (82, 52), (92, 42), (97, 28)),
        ellipse("body", 24, 42, 90, 78),
        *(line("body", 12, (x, 66), (x, 94)) for x in (34, 48, 68, 82)),
        ellipse("body", 8, 10, 54, 58),
        ellipse("light", 0, 32, 28, 56),
        polygon("shade", (38, 14), (50, 16), (58, 36), (54, 52), (46, 50), (40, 34)),
        ellipse("ink", 0, 33, 11, 43),
        ellipse("ink", 20, 24, 29, 34.5),
        ellipse("white", 24, 26, 28, 30),
        line("red", 5, (16, 54), (16, 60)),
        line("red", 6, (36, 57), (50, 51)),
    ),
    "rabbit": (
        ellipse("body", 24, 0, 44, 52),
        ellipse("body", 56, 0, 76, 52),
        ellipse("head", 66, 78, 88, 98),
        ellipse("body", 24, 58, 76, 100),
        ellipse("body", 20, 32, 80, 76),
        ellipse("shade", 30, 7, 39, 40),
        ellipse("shade", 61, 7, 70, 40),
        ellipse("light", 38, 78, 62, 98),
        *_eyes(38, 62, 52, 5),
        ellipse("nose", 46, 58, 54, 64),
        polygon("white", (45, 66), (55, 66), (54, 74), (46, 74)),
    ),
    "bird": (
        line("beak", 3.5, (40, 80), (40, 98), (48, 98)),
        line("beak", 3.5, (54, 80), (54, 98), (62, 98)),
        polygon("beak", (84, 24), (100, 34), (84, 42)),
        polygon("body", (26, 46), (0, 30), (4, 58), (24, 70)),
        ellipse("body", 12, 30, 80, 88),
        ellipse("body", 48, 8, 90, 52),
        polygon("shade", (20, 50), (58, 46), (58, 56), (54, 64), (46, 70), (36, 70), (27, 64)),
        ellipse("ink", 69, 21, 79, 33),
        ellipse("white", 73, 23, 78, 28),
    ),
    "fish": (
        polygon("head", (66, 50), (98, 20), (92, 50), (98, 80)),
        polygon("head", (30, 28), (48, 8), (68, 34)),
        polygon("head", (40, 72), (56, 90), (64, 68)),
        ellipse("body", 2, 20, 80, 80),
        line("shade", 3, (30, 30), (35, 42), (35, 58), (30, 70)),
        ellipse("white", 10, 36, 25, 52),
        ellipse("ink", 13, 39, 22, 49),
        line("ink", 2.5, (4, 60), (13, 63)),
    ),
    "turtle": (
        ellipse("head", 72, 36, 100, 66),
        polygon("head", (66, 62), (78, 50), (86, 64), (78, 76)),
        *(line("head", 14, (x, 72), (x, 88)) for x in (24, 62)),
        polygon("head", (12, 74), (0, 80), (12, 82)),
        polygon(
            "body",
            *(
                (42 + 36 * math.cos(math.radians(a)), 76 + 58 * math.sin(math.radians(a)))
                for a in range(180, 361, 6)
            ),
        ),
        line("shade", 5, (7, 76), (77, 76)),
        polygon("shade", (34, 36), (50, 36), (57, 50), (50, 62), (34, 62), (27, 50)),
        ellipse("ink", 86, 44, 93, 52),
    ),
    "butterfly": (
        ellipse("head", 12, 46, 50, 96),
        ellipse("head", 50, 46, 88, 96),
        ellipse("body", 0, 6, 50, 62),
        ellipse("body", 50, 6, 100, 62),
        line("ink", 2.4, (50, 26), (42, 8), (36, 4)),
        line("ink", 2.4, (50, 26), (58, 8), (64, 4)),
        ellipse("ink", 45, 20, 55, 90),
    ),
    "snail": (
        polygon(
            "head", (0, 92), (6, 76), (10, 58), (10, 40), (26, 40), (27, 60), (36, 72), (88, 74), (100, 92)
        ),
        line("head", 4, (13, 44), (8, 22)),
        line("head", 4, (22, 44), (27, 22)),
        ellipse("body", 28, 8, 94, 80),
        line("shade", 5, *_swirl()),
        ellipse("ink", 4, 15, 13, 24),
        ellipse("ink", 23, 15, 32, 24),
        line("ink", 2.2, (4, 58), (11, 60)),
    ),
}
FACING = {"dog": "left", "fish": "left", "snail": "left", "bird": "right", "turtle": "right"}  # as painted


def mix(colour: RGB, other: RGB, share: float) -> RGB:
    """`share` of `other` in `colour`."""
    r, g, b = (round(c + (o - c) * share) for c, o in zip(colour, other, strict=True))
    return r, g, b


def _tones(colour: str) -> dict[str, RGB]:
    body = PAINT[colour]
    return {
        "body": body,
        "head": mix(body, WHITE, 0.28),
        "light": mix(body, WHITE, 0.55),
        "shade": mix(body, BLACK, 0.3) if colour != "black" else mix(body, WHITE, 0.25),
        "mark": mix(body, BLACK, 0.45) if colour in PALE else mix(body, WHITE, 0.72),
        "nose": (120, 40, 60) if colour in ("pink", "red") else (255, 120, 150),
        "ink": INK if colour != "black" else (16, 14, 20),
        "white": WHITE,
        "red": (214, 60, 70) if colour not in ("red", "pink", "orange") else (60, 90, 200),
        "beak": BEAK if colour not in ("orange", "yellow") else (214, 84, 30),
    }


@lru_cache(maxsize=2048)
def sprite(kind: str, colour: str, texture: str, pixels: int) -> Image.Image:
    """The object `pixels` high, at twice that resolution, with ROOM around it, on nothing."""
    side = pixels * SAMPLING
    room = round(side * ROOM)
    canvas = side + 2 * room
    tones = _tones(colour)
    body, shape = Image.new("L", (canvas, canvas)), Image.new("L", (canvas, canvas))
    paint = Image.new("RGB", (canvas, canvas), tones["body"])
    _texture(ImageDraw.Draw(paint), texture, tones["mark"], canvas, side)
    picture = Image.new("RGB", (canvas, canvas), WHITE)
    over = ImageDraw.Draw(picture)
    for stroke in STROKES[kind]:
        _draw(ImageDraw.Draw(shape), stroke, 255, side, room)
        if stroke.tone == "body":
            body.paste(0, (0, 0, canvas, canvas))
            _draw(ImageDraw.Draw(body), stroke, 255, side, room)
            picture.paste(paint, mask=body)
        else:
            _draw(over, stroke, tones[stroke.tone], side, room)
    rim = shape.filter(ImageFilter.GaussianBlur(side * BORDER)).point(lambda v: 255 if v > 24 else 0)
    sticker = Image.new("RGB", (canvas, canvas), WHITE)
    sticker.paste(picture, mask=shape)
    sticker.putalpha(rim)
    drop = round(side * 0.03)
    soft = (
        ImageChops.offset(rim, drop // 2, drop)
        .filter(ImageFilter.GaussianBlur(side * 0.025))
        .point(lambda v: v * 2 // 5)
    )
    whole = Image.merge("RGBA", (*(Image.new("L", (canvas, canvas), v) for v in (20, 24, 40)), soft))
    whole.alpha_composite(sticker)
    return whole.reduce(SAMPLING // 2)


def _draw(on: ImageDraw.ImageDraw, stroke: Stroke, fill: int | RGB, side: int, room: int) -> None:
    points = [(x * side / 100 + room, y * side / 100 + room) for x, y in stroke.points]
    if stroke.form == "ellipse":
        on.ellipse(points, fill=fill)
    elif stroke.form == "polygon":
        on.polygon(points, fill=fill)
    else:
        width = stroke.width * side / 100
        on.line(points, fill=fill, width=round(width), joint="curve")
        for x, y in (points[0], points[-1]):
            on.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=fill)


def _texture(on: ImageDraw.ImageDraw, texture: str, mark: RGB, canvas: int, side: int) -> None:
    """Slanting stripes, or staggered round spots, over the whole canvas; plain leaves it as it is."""
    if texture == "striped":
        step = side * 0.25
        for i in range(-8, 16):
            x = i * step
            on.line((x, canvas, x + canvas * 0.45, 0), fill=mark, width=round(step * 0.45))
    elif texture == "spotted":
        step, radius = side * 0.27, side * 0.085
        for row in range(9):
            for column in range(9):
                x, y = (column + 0.5 * (row % 2)) * step, row * step * 0.87
                on.ellipse((x - radius, y - radius, x + radius, y + radius), fill=mark)
