"""Charts as SVG text: pure functions from data to a string, no state, no page.

Colour comes from the page: a series of slot 3 has class `s3`, and the style sheet gives that class its `--c`.
Every slot has its own marker shape too, so a chart can be read without colour. Drawn about as wide as a phone,
so that text keeps its size there; the view box scales up gently on a laptop. All text is escaped here.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

Point = tuple[float, float]
Box = tuple[float, float, float, float]
FONT = 13.0
LEAST_SPAN = 0.2  # of the largest value: what an axis of a scatter spans at least
SHAPES = ("circle", "square", "diamond", "triangle", "down", "plus", "hexagon", "cross")
_POLYGONS = {  # corners on the unit circle's scale, y down
    "square": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "diamond": ((0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)),
    "triangle": ((0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
    "down": ((0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
    "hexagon": ((-0.55, -1.0), (0.55, -1.0), (1.1, 0.0), (0.55, 1.0), (-0.55, 1.0), (-1.1, 0.0)),
}


@dataclass(frozen=True)
class Style:
    """Who a series is: name, colour and shape (`slot`), and a dash for a second run of the same objective."""

    label: str
    slot: int
    dash: int = 0

    @property
    def classes(self) -> str:
        return f"s{self.slot % len(SHAPES)} d{self.dash % 4}"


@dataclass(frozen=True)
class Cloud:
    """A run over its seeds: small dots, one large mark at the mean."""

    style: Style
    dots: tuple[Point, ...]
    mean: Point
    name: str = ""


@dataclass(frozen=True)
class Series:
    """A line, thin lines of its seeds behind it; its marker and its name stand at `spot`, or at its end."""

    style: Style
    points: tuple[Point, ...]
    seeds: tuple[tuple[Point, ...], ...] = ()
    spot: Point | None = None
    name: str = ""


@dataclass(frozen=True)
class Frame:
    """Title and description (for those who do not see it), axis titles and the size of the view box."""

    name: str
    title: str
    description: str
    x_title: str
    y_title: str
    width: float = 400
    height: float = 320
    log_x: bool = False
    from_zero: bool = False
    """For quantities whose zero means something: y starts there."""


@dataclass(frozen=True)
class _Scale:
    """Data to pixels, straight or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        place = math.log if self.log else float
        share = (place(value) - place(self.low)) / (place(self.high) - place(self.low))
        return self.start + share * (self.end - self.start)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) that span low..high, about `count` of them."""
    if high <= low:
        low, high = low - (abs(low) or 1) * 0.1, high + (abs(high) or 1) * 0.1
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_text(value: float, step: float) -> str:
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    return f"{value + 0.0:,.{digits}f}".replace("-", "−")


def scatter(frame: Frame, clouds: Sequence[Cloud], others: Sequence[tuple[str, Point]] = ()) -> str:
    """Clouds of seeds with their means, named if they have a name; `others` (someone else's) are hollow."""
    every = [p for c in clouds for p in (*c.dots, c.mean)] + [p for _, p in others]
    if not every:
        return ""
    x, y, axes = _axes(frame, [p[0] for p in every], [p[1] for p in every], pad=0.12)
    means = [(x(c.mean[0]), y(c.mean[1])) for c in clouds]
    spots = [(x(p[0]), y(p[1])) for _, p in others]
    body = [axes]
    body += [_foreign(*spot, label) for spot, (label, _) in zip(spots, others, strict=True)]
    for cloud, mean in zip(clouds, means, strict=True):
        dots = [(x(a), y(b)) for a, b in cloud.dots] if len(cloud.dots) > 1 else []
        spokes = "".join(f'<path class="spoke" d="M{_xy(mean)}L{_xy(dot)}"/>' for dot in dots)
        small = "".join(f'<circle class="dot" cx="{_n(a)}" cy="{_n(b)}" r="3"/>' for a, b in dots)
        body.append(f'<g class="{cloud.style.classes}">{spokes}{small}{marker(cloud.style, *mean)}</g>')
    names = [(c.name, c.style.classes) for c in clouds] + [(name, "paper") for name, _ in others]
    seeds = [(x(a), y(b)) for c in clouds for a, b in c.dots]
    return _svg(
        frame, [*body, *_names([*means, *spots], seeds, names, (x.start, y.end, frame.width - 2, y.start))]
    )


def lines(frame: Frame, series: Sequence[Series]) -> str:
    """One line per series, marked at its spot or its end, and named there if it has a name."""
    drawn = [s for s in series if s.points]
    if not drawn:
        return ""
    points = [p for s in drawn for line in (s.points, *s.seeds) for p in line]
    x, y, axes = _axes(frame, [p[0] for p in points], [p[1] for p in points])
    body, spots = [axes], []
    for one in drawn:
        thin = "".join(f'<path class="thin" d="{_path(line, x, y)}"/>' for line in one.seeds)
        at = one.points[-1] if one.spot is None else one.spot
        spots.append((x(at[0]), y(at[1])))
        body.append(
            f'<g class="{one.style.classes}">{thin}<path class="line" d="{_path(one.points, x, y)}"/>'
            f"{marker(one.style, *spots[-1], radius=5.5)}</g>"
        )
    along = [p for s in drawn for p in _walk([(x(a), y(b)) for a, b in s.points])]
    names = [(s.name, s.style.classes) for s in drawn]
    return _svg(frame, [*body, *_names(spots, along, names, (x.start, y.end, frame.width - 2, y.start))])


def _names(
    spots: Sequence[Point], obstacles: Sequence[Point], names: Sequence[tuple[str, str]], bounds: Box
) -> Iterable[str]:
    """Text elements of (name, classes) pairs beside their spots; an empty name writes nothing."""
    places = place_labels(spots, obstacles, [name for name, _ in names], bounds)
    for (x, y, anchor), (name, classes) in zip(places, names, strict=True):
        if name:
            yield (
                f'<text class="name {classes}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">'
                f"{escape(name)}</text>"
            )


def _walk(points: Sequence[Point], step: float = 6) -> Iterable[Point]:
    """Points a few pixels apart along a line, so that a label can keep clear of it."""
    for (x0, y0), (x1, y1) in pairwise(points):
        parts = max(1, round(math.hypot(x1 - x0, y1 - y0) / step))
        yield from ((x0 + (x1 - x0) * i / parts, y0 + (y1 - y0) * i / parts) for i in range(parts))


def legend_key(style: Style) -> str:
    """A short piece of the line with its marker, for a legend in the page's text."""
    return (
        f'<svg class="key {style.classes}" viewBox="0 0 34 14" width="34" height="14" aria-hidden="true">'
        f'<path class="line" d="M1,7L33,7"/>{marker(style, 17, 7, radius=5)}</svg>'
    )


def marker(style: Style, x: float, y: float, radius: float = 6.5) -> str:
    shape = SHAPES[style.slot % len(SHAPES)]
    if shape == "circle":
        return f'<circle class="mark" cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"/>'
    if shape in ("plus", "cross"):
        return f'<path class="mark" d="{_arms(x, y, radius, turned=shape == "cross")}"/>'
    corners = ((x + a * radius, y + b * radius) for a, b in _POLYGONS[shape])
    return f'<path class="mark" d="M{"L".join(map(_xy, corners))}Z"/>'


def _arms(x: float, y: float, radius: float, *, turned: bool) -> str:
    """A plus sign as an outline, turned by 45 degrees for a cross."""
    a, b = radius * 0.4, radius * 1.15
    outline = (
        (a, a),
        (a, b),
        (-a, b),
        (-a, a),
        (-b, a),
        (-b, -a),
        (-a, -a),
        (-a, -b),
        (a, -b),
        (a, -a),
        (b, -a),
        (b, a),
    )
    half = math.sqrt(0.5)
    corners = (((u - v) * half, (u + v) * half) if turned else (u, v) for u, v in outline)
    return f"M{'L'.join(_xy((x + u, y + v)) for u, v in corners)}Z"


# Anchor and offset of a label's baseline: right, left, above, below, lower right, upper left of its point.
BESIDE = (
    ("start", 11, 4.5),
    ("end", -11, 4.5),
    ("middle", 0, -12),
    ("middle", 0, 22),
    ("start", 10, 18),
    ("end", -10, -8),
)


def place_labels(
    points: Sequence[Point], obstacles: Iterable[Point], labels: Sequence[str], bounds: Box
) -> list[tuple[float, float, str]]:
    """(x, y, anchor) of each label beside its point, where it covers least; marks and labels weigh most."""
    heavy: list[Box] = [(a - 9, b - 9, a + 9, b + 9) for a, b in points]
    light: list[Box] = [(a - 3, b - 3, a + 3, b + 3) for a, b in obstacles]
    placed = []
    for (x, y), label in zip(points, labels, strict=True):
        wide = len(label) * FONT * 0.58
        spots = [(x + dx, y + dy, anchor) for anchor, dx, dy in BESIDE]
        boxes = [_text_box(*spot, wide) for spot in spots]
        costs = [4 * _cover(box, heavy) + _cover(box, light) + _outside(box, bounds) for box in boxes]
        best = costs.index(min(costs))
        heavy.append(boxes[best])
        placed.append(spots[best])
    return placed


def _text_box(x: float, y: float, anchor: str, wide: float) -> Box:
    left = {"start": x, "end": x - wide, "middle": x - wide / 2}[anchor]
    return left, y - FONT * 0.9, left + wide, y + FONT * 0.3


def _cover(box: Box, boxes: Iterable[Box]) -> float:
    return sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in boxes
    )


def _outside(box: Box, bounds: Box) -> float:
    over = (bounds[0] - box[0], bounds[1] - box[1], box[2] - bounds[2], box[3] - bounds[3])
    return 1000 * sum(max(0.0, o) for o in over)


def _axes(
    frame: Frame, xs: Sequence[float], ys: Sequence[float], *, pad: float = 0.0
) -> tuple[_Scale, _Scale, str]:
    """Scales over the data, and the grid with its numbers; the y title stands above, so no text is turned.

    With `pad` the frame is the data and a margin, otherwise y spans round numbers and x goes from 0 to its end.
    A frame with a margin is never so narrow that next to nothing looks like a gulf.
    """
    y_low, y_high, y_ticks = _domain([*ys, 0.0] if frame.from_zero else ys, pad)
    y_texts = _tick_texts(y_ticks)
    left = max(map(len, y_texts)) * FONT * 0.6 + 10
    y = _Scale(y_low, y_high, frame.height - 44, 30)
    x_low, x_high, x_ticks = _log_domain(xs) if frame.log_x else _domain(xs, pad) if pad else _run(xs)
    x = _Scale(x_low, x_high, left, frame.width - 14, frame.log_x)
    x_texts = [f"{tick:,.0f}" for tick in x_ticks] if frame.log_x else _tick_texts(x_ticks)
    parts = [f'<text class="axis-title" x="0" y="14">{escape(frame.y_title)}</text>']
    for tick, text in zip(y_ticks, y_texts, strict=True):
        parts.append(f'<path class="grid" d="M{_n(x.start)},{_n(y(tick))}H{_n(x.end)}"/>')
        parts.append(_tick(left - 7, y(tick) + 4.5, "end", text))
    for tick, text in zip(x_ticks, x_texts, strict=True):
        parts.append(f'<path class="tickmark" d="M{_n(x(tick))},{_n(y.start)}v5"/>')
        parts.append(_tick(x(tick), y.start + 19, "middle", text))
    parts.append(
        f'<text class="axis-title" x="{_n(x.end)}" y="{_n(frame.height - 6)}" text-anchor="end">'
        f"{escape(frame.x_title)}</text>"
    )
    parts.append(f'<path class="axis" d="M{_n(x.start)},{_n(y.start)}H{_n(x.end)}"/>')
    return x, y, "".join(parts)


def _domain(values: Sequence[float], pad: float) -> tuple[float, float, list[float]]:
    """Lower end, upper end, ticks: round numbers around the data, or inside the data and its margin."""
    low, high = min(values), max(values)
    if not pad or low == high:
        ticks = nice_ticks(low, high, 4)
        return ticks[0], ticks[-1], ticks
    span = max(high - low, LEAST_SPAN * max(abs(low), abs(high)))
    middle, half = (low + high) / 2, span * (0.5 + pad)
    low, high = middle - half, middle + half
    return low, high, [tick for tick in nice_ticks(low, high, 6) if low <= tick <= high]


def _run(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Steps of a run: from 0 to the last, ticks not beyond it."""
    last = max(max(values), 1.0)
    return 0.0, last, [tick for tick in nice_ticks(0, last, 4) if tick <= last]


def _log_domain(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Ranks: from 1 to the last, ticks at powers of ten."""
    last = max(max(values), 2.0)
    return 1.0, last, [10.0**i for i in range(math.floor(math.log10(last) + 1e-9) + 1)]


def _tick_texts(ticks: Sequence[float]) -> list[str]:
    return [tick_text(tick, ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0])) for tick in ticks]


def _tick(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text class="tick" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{text}</text>'


def _foreign(x: float, y: float, label: str) -> str:
    return f'<circle class="paper" cx="{_n(x)}" cy="{_n(y)}" r="4.5"><title>{escape(label)}</title></circle>'


def _path(points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    return "M" + "L".join(_xy((x(a), y(b))) for a, b in points)


def _svg(frame: Frame, body: Iterable[str]) -> str:
    ids = f"{frame.name}-title {frame.name}-text"
    return (
        f'<svg class="chart" role="img" aria-labelledby="{ids}" '
        f'viewBox="0 0 {_n(frame.width)} {_n(frame.height)}" '
        f'font-size="{FONT}"><title id="{frame.name}-title">{escape(frame.title)}</title>'
        f'<desc id="{frame.name}-text">{escape(frame.description)}</desc>{"".join(body)}</svg>'
    )


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _xy(point: Point) -> str:
    return f"{_n(point[0])},{_n(point[1])}"
