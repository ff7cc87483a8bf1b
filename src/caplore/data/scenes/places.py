"""The places: what is behind the objects, in softer colours than theirs."""

from collections.abc import Callable
from functools import lru_cache
from random import Random

from PIL import Image, ImageDraw

from caplore.data.scenes.sprites import RGB, mix

SAMPLING = 2
VARIANTS = 24  # of each place; a picture also mirrors it or not


class Easel:
    """A picture to paint on in units of its side (0..1, y down), with the random numbers to vary it by."""

    def __init__(self, side: int, rng: Random) -> None:
        self.side, self.rng = side, rng
        self.picture = Image.new("RGB", (side, side))
        self.draw = ImageDraw.Draw(self.picture)

    def fade(self, top: float, bottom: float, above: RGB, below: RGB) -> None:
        """A band that goes smoothly from one colour to another."""
        first, last = round(top * self.side), round(bottom * self.side)
        for y in range(first, last):
            self.draw.line((0, y, self.side, y), fill=mix(above, below, (y - first) / max(1, last - first)))

    def ellipse(self, x: float, y: float, wide: float, high: float, colour: RGB) -> None:
        """An ellipse by its centre and its half axes."""
        s = self.side
        self.draw.ellipse(((x - wide) * s, (y - high) * s, (x + wide) * s, (y + high) * s), fill=colour)

    def box(self, left: float, top: float, right: float, bottom: float, colour: RGB) -> None:
        s = self.side
        self.draw.rectangle((left * s, top * s, right * s, bottom * s), fill=colour)

    def shape(self, colour: RGB, *points: tuple[float, float]) -> None:
        self.draw.polygon([(x * self.side, y * self.side) for x, y in points], fill=colour)

    def stroke(self, colour: RGB, width: float, *points: tuple[float, float]) -> None:
        scaled = [(x * self.side, y * self.side) for x, y in points]
        self.draw.line(scaled, fill=colour, width=max(1, round(width * self.side)), joint="curve")

    def cloud(self, x: float, y: float, size: float, colour: RGB) -> None:
        for dx, dy, part in (
            (-0.9, 0.1, 0.55),
            (0, -0.2, 0.8),
            (0.9, 0.1, 0.6),
            (0.3, 0.2, 0.6),
            (-0.4, 0.2, 0.6),
        ):
            self.ellipse(x + dx * size, y + dy * size, part * size, part * size * 0.72, colour)

    def between(self, low: float, high: float) -> float:
        return self.rng.uniform(low, high)


def _grass(e: Easel) -> None:
    horizon = e.between(0.26, 0.36)
    e.fade(0, horizon + 0.1, (176, 218, 246), (226, 242, 250))
    e.cloud(e.between(0.1, 0.9), e.between(0.06, 0.14), 0.08, (246, 250, 253))
    for colour in ((160, 206, 132), (148, 198, 120)):
        e.ellipse(e.between(0, 1), horizon + 0.2, e.between(0.5, 0.8), e.between(0.2, 0.28), colour)
    e.fade(horizon + 0.1, 1, (154, 204, 122), (124, 184, 98))
    for _ in range(46):
        x, y = e.between(0, 1), e.between(horizon + 0.13, 1)
        e.stroke((108, 168, 84), 0.008, (x, y), (x + e.between(-0.012, 0.012), y - 0.025))


def _beach(e: Easel) -> None:
    water, shore = e.between(0.14, 0.2), e.between(0.34, 0.42)
    e.fade(0, water, (188, 226, 248), (222, 240, 250))
    e.fade(water, shore, (84, 178, 206), (136, 210, 220))
    e.fade(shore, 1, (248, 228, 178), (238, 208, 148))
    for i in range(5):
        e.ellipse(0.25 * i + e.between(-0.05, 0.05), shore, 0.16, 0.022, (250, 250, 246))
    for _ in range(60):
        x, y = e.between(0, 1), e.between(shore + 0.05, 1)
        e.ellipse(x, y, 0.005, 0.004, (222, 188, 128))


def _snow(e: Easel) -> None:
    horizon = e.between(0.3, 0.4)
    e.fade(0, horizon + 0.1, (186, 200, 220), (222, 230, 240))
    for _ in range(5):
        x, tall = e.between(0, 1), e.between(0.14, 0.22)
        for part in (0, 0.33, 0.6):
            wide = 0.06 * (1 - part * 0.6)
            top = horizon + 0.06 - tall * (part + 0.4)
            e.shape((120, 150, 150), (x - wide, top + tall * 0.42), (x, top), (x + wide, top + tall * 0.42))
    e.ellipse(e.between(0, 1), horizon + 0.22, e.between(0.6, 0.9), 0.22, (236, 241, 248))
    e.fade(horizon + 0.1, 1, (240, 244, 250), (222, 231, 243))
    for _ in range(34):
        e.ellipse(e.between(0, 1), e.between(0, horizon + 0.1), 0.007, 0.007, (252, 253, 255))
    for _ in range(4):
        e.ellipse(e.between(0, 1), e.between(horizon + 0.2, 1), e.between(0.1, 0.2), 0.012, (206, 218, 234))


def _street(e: Easel) -> None:
    kerb = e.between(0.42, 0.5)
    e.fade(0, kerb, (214, 222, 232), (232, 234, 238))
    x = -0.05
    while x < 1:
        wide, top = e.between(0.14, 0.24), e.between(0.04, 0.2)
        wall = e.rng.choice(((190, 178, 172), (172, 180, 192), (200, 188, 170), (182, 172, 186)))
        e.box(x, top, x + wide, kerb, wall)
        for row in range(4):
            for column in range(3):
                left, up = x + wide * (0.14 + 0.28 * column), top + 0.04 + 0.085 * row
                if up + 0.05 < kerb:
                    e.box(left, up, left + wide * 0.16, up + 0.045, mix(wall, (250, 246, 220), 0.6))
        x += wide + 0.012
    e.box(0, kerb, 1, kerb + 0.06, (206, 204, 200))
    e.fade(kerb + 0.06, 1, (138, 140, 146), (116, 118, 126))
    shift = e.between(0, 0.3)
    for i in range(-1, 5):
        left = i * 0.3 + shift
        e.shape((236, 232, 214), (left, 0.76), (left + 0.15, 0.76), (left + 0.14, 0.79), (left - 0.01, 0.79))


def _night(e: Easel) -> None:
    horizon = e.between(0.62, 0.72)
    e.fade(0, horizon, (22, 26, 62), (62, 64, 118))
    for _ in range(48):
        size = e.between(0.002, 0.006)
        e.ellipse(e.between(0, 1), e.between(0, horizon), size, size, (236, 236, 210))
    e.fade(horizon, 1, (38, 44, 72), (20, 24, 44))
    for x in (e.between(-0.1, 0.4), e.between(0.5, 1.1)):
        e.ellipse(x, horizon + 0.16, e.between(0.4, 0.6), 0.2, (34, 40, 66))


def _room(e: Easel) -> None:
    floor = e.between(0.56, 0.64)
    e.fade(0, floor, (246, 232, 214), (240, 222, 200))
    shift = e.between(0, 0.1)
    for i in range(-1, 11):
        e.box(i * 0.1 + shift, 0, i * 0.1 + shift + 0.035, floor, (236, 216, 192))
    left = e.between(0.1, 0.6)
    e.box(left, 0.1, left + 0.26, 0.36, (250, 250, 248))
    e.box(left + 0.018, 0.118, left + 0.242, 0.342, (190, 222, 242))
    e.box(left + 0.122, 0.118, left + 0.138, 0.342, (250, 250, 248))
    e.box(left + 0.018, 0.222, left + 0.242, 0.238, (250, 250, 248))
    e.box(0, floor - 0.03, 1, floor, (252, 246, 238))
    e.fade(floor, 1, (196, 150, 106), (176, 130, 88))
    for i in range(-6, 13):  # planks, running away from the eye
        e.stroke(
            (158, 114, 74), 0.006, (0.5 + (i - 3 + shift) * 0.09, floor), (0.5 + (i - 3 + shift) * 0.2, 1)
        )
    e.ellipse(0.5, floor + 0.24, e.between(0.3, 0.42), 0.1, (206, 196, 214))
    e.ellipse(0.5, floor + 0.24, e.between(0.2, 0.28), 0.066, (190, 178, 202))


def _water(e: Easel) -> None:
    e.fade(0, 1, (130, 214, 222), (22, 112, 150))
    for _ in range(4):
        x = e.between(-0.2, 1)
        e.shape((150, 222, 228), (x, 0), (x + 0.08, 0), (x + 0.02, 0.5), (x - 0.08, 0.5))
    for _ in range(16):
        x, y, size = e.between(0, 1), e.between(0.05, 0.9), e.between(0.008, 0.02)
        e.ellipse(x, y, size, size, (196, 238, 242))
        e.ellipse(x, y, size * 0.7, size * 0.7, (96, 180, 200))
    e.ellipse(e.between(0.2, 0.8), 1.06, 0.9, 0.16, (208, 194, 150))
    for _ in range(6):
        x = e.between(0, 1)
        e.stroke((40, 140, 116), 0.018, *((x + 0.015 * (-1) ** i, 1 - 0.045 * i) for i in range(5)))


def _sky(e: Easel) -> None:
    e.fade(0, 1, (118, 186, 244), (206, 232, 252))
    for _ in range(6):
        x, y, size = e.between(0, 1), e.between(0.06, 0.96), e.between(0.06, 0.12)
        e.cloud(x, y, size, (246, 250, 254))


PAINTERS: dict[str, Callable[[Easel], None]] = {
    "grass": _grass,
    "beach": _beach,
    "snow": _snow,
    "street": _street,
    "night": _night,
    "room": _room,
    "water": _water,
    "sky": _sky,
}


@lru_cache(maxsize=512)
def backdrop(place: str, variant: int, side: int) -> Image.Image:
    """The place as side x side pixels; each variant (0 to VARIANTS - 1) is laid out a little differently."""
    easel = Easel(side * SAMPLING, Random(f"{place} {variant}"))
    PAINTERS[place](easel)
    return easel.picture.reduce(SAMPLING)
