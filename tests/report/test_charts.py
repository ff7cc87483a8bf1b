"""Charts: well-formed, escaped, within their frame, readable in colour and without."""

import itertools
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import caplore.report
from caplore.report import charts
from caplore.report.charts import Cloud, Frame, Series, Style

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda v: round(v, 6))
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8).map(tuple)
SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def coordinates(svg: str) -> list[tuple[float, float]]:
    """Where lines and marks are drawn."""
    places = re.findall(r"(?<=[ML])(-?[\d.]+),(-?[\d.]+)", svg) + re.findall(
        r'cx="(-?[\d.]+)" cy="(-?[\d.]+)"', svg
    )
    return [(float(x), float(y)) for x, y in places]


@settings(max_examples=60, deadline=None)
@given(st.lists(POINTS, min_size=1, max_size=9))
def test_a_scatter_of_any_points_stays_in_its_frame(clouds: list[tuple[charts.Point, ...]]) -> None:
    frame = Frame("f", "t", "d", "x", "y")
    drawn = [Cloud(Style(str(i), i), dots, dots[0], str(i)) for i, dots in enumerate(clouds)]
    svg = charts.scatter(frame, drawn)
    parsed(svg)
    for x, y in coordinates(svg):
        assert -10 <= x <= frame.width + 10
        assert -10 <= y <= frame.height + 10


@settings(max_examples=60, deadline=None)
@given(st.lists(POINTS, min_size=1, max_size=9), st.booleans())
def test_lines_of_any_points_stay_in_their_frame(lines: list[tuple[charts.Point, ...]], log: bool) -> None:
    """x of a line chart is a count: it begins at 0, or at 1 on a logarithmic axis."""
    frame = Frame("f", "t", "d", "x", "y", log_x=log)
    counted = [tuple((1 + abs(x), y) for x, y in line) for line in lines]
    svg = charts.lines(
        frame, [Series(Style(str(i), i), line, seeds=(line,)) for i, line in enumerate(counted)]
    )
    parsed(svg)
    for x, y in coordinates(svg):
        assert -10 <= x <= frame.width + 10
        assert -10 <= y <= frame.height + 10


def ticks(svg: str) -> list[str]:
    return re.findall(r'class="tick"[^>]*>([^<]+)<', svg)


def test_next_to_nothing_does_not_look_like_a_gulf() -> None:
    """Two points a hundredth apart stand close together: an axis spans a fifth of its largest value."""
    near = [Cloud(Style(n, i), (p,), p) for i, (n, p) in enumerate((("a", (0.50, 9)), ("b", (0.51, 1))))]
    svg = charts.scatter(Frame("f", "t", "d", "x", "y"), near)
    (xa, ya), (xb, yb) = (coordinates(part)[-1] for part in re.findall(r'<g class="s\d d0">.*?</g>', svg))
    assert 5 < xb - xa < 60
    assert yb - ya > 150


def test_a_frame_from_zero_begins_there() -> None:
    line = [Series(Style("a", 0), ((0.0, 9.4), (1.0, 9.6)))]
    frame = Frame("f", "t", "d", "x", "y")
    assert "0" not in ticks(charts.lines(frame, line))[:1]
    assert ticks(charts.lines(replace(frame, from_zero=True), line))[0] == "0"


def test_nothing_to_draw_is_no_chart() -> None:
    frame = Frame("f", "t", "d", "x", "y")
    assert charts.scatter(frame, []) == ""
    assert charts.lines(frame, [Series(Style("a", 0), ())]) == ""


def test_text_is_escaped_and_the_chart_described() -> None:
    evil = '</text><script>alert("x")</script>'
    frame = Frame("f", evil, evil, evil, evil)
    svg = charts.scatter(frame, [Cloud(Style(evil, 1), (), (1.0, 2.0), evil)], [(evil, (2.0, 3.0))])
    root = parsed(svg)
    assert not root.findall(f".//{SVG}script")
    assert root.get("role") == "img"
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert (title.text, description.text) == (evil, evil)
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"


@settings(deadline=None)
@given(NUMBERS, st.floats(1e-3, 1e6), st.integers(2, 8))
@example(32768.96875, 0.00390625, 4)
def test_ticks_are_round_even_and_span_the_data(low: float, size: float, count: int) -> None:
    high = low + size
    ticks = charts.nice_ticks(low, high, count)
    step = ticks[1] - ticks[0]
    slack = 1e-6 * step + 1e-9 * abs(low)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= count + 3
    step = float(f"{step:.6g}")  # the difference of two large ticks: its last digits are rounding
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - m) for m in (1, 2, 5)) < 1e-3


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [(0.25, 0.05, "0.25"), (1500, 500, "1,500"), (-0.5, 0.5, "−0.5"), (-0.0, 1, "0")],
)
def test_tick_texts(value: float, step: float, text: str) -> None:
    assert charts.tick_text(value, step) == text


def test_labels_of_points_side_by_side_do_not_cover_each_other() -> None:
    points = [(100.0, 100.0), (112.0, 100.0), (200.0, 100.0)]
    placed = charts.place_labels(points, [], ["SLL", "SLL-ME", "SLL-SLE"], (0, 0, 400, 300))
    boxes = [
        charts._text_box(x, y, anchor, len(t) * 7.5)
        for (x, y, anchor), t in zip(placed, ("SLL", "SLL-ME", "SLL-SLE"), strict=True)
    ]
    assert all(charts._cover(a, [b]) == 0 for a, b in itertools.combinations(boxes, 2))


def test_a_label_at_the_edge_turns_inwards() -> None:
    ((x, _, anchor),) = charts.place_labels([(395.0, 100.0)], [], ["SLL-SLE"], (0, 0, 400, 300))
    assert anchor == "end"
    assert x < 395


def test_every_slot_has_a_shape_of_its_own() -> None:
    shapes = {charts.marker(Style("", slot), 0, 0) for slot in range(len(charts.SHAPES))}
    assert len(shapes) == len(charts.SHAPES)


# The colours. Luminance and contrast after WCAG 2.1; colour vision deficiency after Machado, Oliveira and Fernandes
# 2009 (severity 1); differences in CIE L*a*b*.
STYLE = (Path(caplore.report.__file__).parent / "templates" / "style.css").read_text()
SCHEMES = [
    dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    for block in re.findall(r":root \{(.*?)\}", STYLE, re.S)
]
DEFICIENCIES = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def linear(colour: str) -> tuple[float, ...]:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)


def times(matrix: tuple[tuple[float, ...], ...], vector: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def contrast(a: str, b: str) -> float:
    low, high = sorted(times(TO_XYZ, linear(colour))[1] for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    clipped = tuple(min(max(v, 0.0), 1.0) for v in rgb)
    x, y, z = (v / white for v, white in zip(times(TO_XYZ, clipped), (0.9505, 1.0, 1.089), strict=True))
    f = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark"])
def test_all_text_colours_have_contrast_enough(scheme: dict[str, str]) -> None:
    for name in ("ink", "soft", "faint", "good", "bad", "link", *(f"s{i}" for i in range(8))):
        assert contrast(scheme[name], scheme["paper"]) >= 4.5, name
    assert contrast(scheme["ink"], scheme["best"]) >= 7


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark"])
@pytest.mark.parametrize("eye", DEFICIENCIES)
def test_series_are_told_apart_by_every_eye(scheme: dict[str, str], eye: str) -> None:
    """The paper's four objectives at a distance of 18, all eight at 11 (2.3 is just noticeable)."""
    seen = [lab(times(DEFICIENCIES[eye], linear(scheme[f"s{i}"]))) for i in range(8)]
    for i, j in itertools.combinations(range(8), 2):
        assert math.dist(seen[i], seen[j]) >= (18 if j < 4 else 11), (i, j)
