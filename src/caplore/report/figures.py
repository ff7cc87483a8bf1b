"""Groups and logs -> the page's figures, each with a sentence that says how to read it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from caplore.report import charts, paper
from caplore.report.charts import Cloud, Frame, Point, Series, Style
from caplore.report.groups import OBJECTIVES, Group
from caplore.report.results import Peak, Result
from caplore.report.runs import Log, Phase

MOST_POINTS = 60
LONGEST_NAME = 10


@dataclass(frozen=True)
class Figure:
    title: str
    svg: str
    reading: str


@dataclass(frozen=True)
class Panels:
    """Small charts that are read together."""

    title: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Side:
    """One axis of the precision and recall picture: where its score is, and its name in words."""

    part: str
    key: str
    words: str
    title: str = ""
    scale: float = 1.0
    less: bool = False
    """Drawn as 1 - score: a score where lower is better, turned so that right is better."""

    def of(self, result: Result) -> float | None:
        return self.place(result.score(self.part, self.key).value)

    def place(self, value: float | None) -> float | None:
        return None if value is None else self.scale * (1 - value if self.less else value)


P_CORRECT = Side("exact", "precision", "P(Y|x), probability of correct captions")
RECALL_5 = Side("exact", "recall_5", "expected recall at 5", "recall")
CIDER_RS = Side("rs", "cider_d", "CIDEr of sampled captions", scale=100)
RECALL_REFS = Side(
    "rs", "recall_cider_d", "recall of the references (CIDEr)", "recall of the references", 100
)
DIV_2 = Side("rs", "div_2", "Div-2 of sampled sets", "diversity")
NOT_MBLEU = Side("rs", "mbleu_4", "1 − mBLEU-4 of sampled sets", "captions that do not repeat", less=True)
PROXY = " All correct captions are not known here, so what sets say stands for recall, as in the paper."


def styles(groups: Sequence[Group]) -> list[Style]:
    """Colour and shape by objective, dash and fill by which of that objective's groups it is."""
    order = list(dict.fromkeys([*OBJECTIVES, *(g.objective for g in groups)]))
    seen: dict[str, int] = {}
    out = []
    for g in groups:
        out.append(Style(g.title, order.index(g.objective), seen.get(g.objective, 0)))
        seen[g.objective] = seen.get(g.objective, 0) + 1
    return out


def is_named_in_place(groups: Sequence[Group]) -> bool:
    """Whether names are short enough to stand in the charts; otherwise the legend has them."""
    return max(len(g.title) for g in groups) <= LONGEST_NAME


def precision_recall(groups: Sequence[Group]) -> list[Figure]:
    """On made worlds the exact pair; elsewhere CIDEr against the proxies that were computed."""
    if any(g.values("exact", "precision") and g.values("exact", "recall_5") for g in groups):
        return [_plane("plane", groups, RECALL_5, P_CORRECT)]
    recalls = [
        side for side in (RECALL_REFS, DIV_2, NOT_MBLEU) if any(g.values(side.part, side.key) for g in groups)
    ]
    figures = [_plane(f"plane-{i}", groups, side, CIDER_RS) for i, side in enumerate(recalls[:2])]
    return [figure for figure in figures if figure.svg]


def _plane(name: str, groups: Sequence[Group], recall: Side, precision: Side) -> Figure:
    short = is_named_in_place(groups)
    clouds = []
    for g, style in zip(groups, styles(groups), strict=True):
        dots = [
            (x, y)
            for r in g.results
            if (x := recall.of(r)) is not None and (y := precision.of(r)) is not None
        ]
        if dots:
            mean = (fmean(x for x, _ in dots), fmean(y for _, y in dots))
            clouds.append(Cloud(style, tuple(dots), mean, g.title if short else ""))
    others = _published(groups[0].results[0].dataset.name, recall, precision)
    title = f"Precision against {recall.title}"
    frame = Frame(name, title, _told(clouds), f"{recall.words} →", f"↑ {precision.words}")
    seeds = (
        " Small dots are seeds, the large mark is their mean." if any(len(c.dots) > 1 for c in clouds) else ""
    )
    proxy = "" if recall.part == "exact" else PROXY
    theirs = f" Hollow grey points are the paper's own ({paper.CITATION})." if others else ""
    return Figure(
        title,
        charts.scatter(frame, clouds, others),
        "Higher is more often right; further right covers more of what is right. Training that rewards single "
        f"captions only moves up and to the left; the corner to reach is the upper right.{proxy}{seeds}{theirs}",
    )


def _published(dataset: str, recall: Side, precision: Side) -> list[tuple[str, Point]]:
    points = []
    for row in paper.rows(dataset, recall.part):
        x, y = recall.place(row.scores.get(recall.key)), precision.place(row.scores.get(precision.key))
        if x is not None and y is not None:
            points.append((row.label, (x, y)))
    return points


def _told(clouds: Sequence[Cloud]) -> str:
    """The means in words, for those who do not see the chart."""
    return "; ".join(f"{c.style.label}: {c.mean[0]:.3g} across, {c.mean[1]:.3g} up" for c in clouds)


def peak_width(groups: Sequence[Group]) -> Figure | None:
    """Cumulative probability over the rank of correct captions; the mark is the effective number of them."""
    short = is_named_in_place(groups)
    series = []
    for g, style in zip(groups, styles(groups), strict=True):
        peaks = [r.exact.peak for r in g.results if r.exact is not None and r.exact.peak is not None]
        if not peaks:
            continue
        line = _mean_line([_points(p) for p in peaks])
        width = g.summary("exact", "peak_width").mean
        spot = None if width is None else (width, _at([(math.log(x), y) for x, y in line], math.log(width)))
        series.append(Series(style, line, spot=spot, name=g.title if short else ""))
    if not series:
        return None
    told = "; ".join(f"{s.style.label}: {s.spot[0]:.3g} captions" for s in series if s.spot)
    frame = Frame(
        "peak",
        "Peak width",
        f"Effective number of correct captions. {told}",
        "correct captions, most probable first →",
        "↑ share of the probability they hold",
        log_x=True,
    )
    cut = any(s.points[-1][1] < 0.995 for s in series)
    return Figure(
        "How wide the peak is",
        charts.lines(frame, series),
        "Rank an input's correct captions by their probability: the curve is the share of it that the first r "
        "of them hold. A curve that is high at once is a sharp peak, one caption said again and again. The mark "
        "is the effective number of captions (the exponential of the entropy): further right is wider."
        + (
            " Where a curve ends below 1, some inputs' correct captions have no probability at all."
            if cut
            else ""
        ),
    )


def _points(peak: Peak) -> tuple[Point, ...]:
    return tuple(zip(peak.ranks, peak.mass, strict=True))


@dataclass(frozen=True)
class Panel:
    """A logged quantity of one phase, as it is drawn and explained."""

    sequence: bool
    quantity: str
    title: str
    reading: str
    scale: float = 1.0
    from_zero: bool = False


VALIDATION = "CIDEr of one caption per validation input; the best epoch is kept."
PANELS = (
    Panel(False, "validation", "validation CIDEr", VALIDATION, 100),
    Panel(
        False, "loss", "loss", "Mean negative log-probability per word of the references; lower is nearer."
    ),
    Panel(True, "reward", "reward", "Mean score of the sampled captions, on the scale the objective uses."),
    Panel(True, "validation", "validation CIDEr", VALIDATION, 100),
    Panel(
        True,
        "entropy",
        "entropy (nats per word)",
        "How open the choice of the next word is; at 0 there is no choice left.",
        from_zero=True,
    ),
    Panel(
        True,
        "distance",
        "distance within a set",
        "Mean distance of captions of one input; at 0 they are all the same.",
        from_zero=True,
    ),
    Panel(
        True,
        "length",
        "words per caption",
        "A length that runs away is the first sign of a collapse.",
        from_zero=True,
    ),
)


def training_curves(groups: Sequence[Group], logs: Mapping[str, Log]) -> list[Panels]:
    """Small charts by phase: what was logged while the runs were trained."""
    titles = {False: "Word-level phase", True: "Sequence-level phase"}
    found: dict[bool, list[Figure]] = {False: [], True: []}
    for number, panel in enumerate(PANELS):
        series = list(_curves(groups, logs, panel))
        if series:
            found[panel.sequence].append(_panel(f"curve-{number}", panel, series))
    return [Panels(titles[phase], tuple(figures)) for phase, figures in found.items() if figures]


def _panel(name: str, panel: Panel, series: Sequence[Series]) -> Figure:
    ends = "; ".join(f"{s.style.label} ends at {s.points[-1][1]:.3g}" for s in series)
    frame = Frame(
        name, panel.title, ends, "steps →", panel.title, width=340, height=230, from_zero=panel.from_zero
    )
    return Figure(panel.title, charts.lines(frame, series), panel.reading)


def _curves(groups: Sequence[Group], logs: Mapping[str, Log], panel: Panel) -> Iterable[Series]:
    for g, style in zip(groups, styles(groups), strict=True):
        phases = (_phase(logs.get(r.where, Log()), panel.sequence) for r in g.results)
        curves = (phase.curves.get(panel.quantity, ()) for phase in phases if phase is not None)
        seeds = [_thinned(curve, panel.scale) for curve in curves if len(curve) > 1]
        if seeds:
            yield Series(style, _mean_line(seeds), tuple(seeds) if len(seeds) > 1 else ())


def _phase(log: Log, sequence: bool) -> Phase | None:
    """The last phase of this kind."""
    return next((p for p in reversed(log.phases) if p.sequence == sequence), None)


def _thinned(points: Sequence[Point], scale: float) -> tuple[Point, ...]:
    """At most MOST_POINTS points, each the mean of its neighbours."""
    size = -(-len(points) // MOST_POINTS)
    parts = (points[i : i + size] for i in range(0, len(points), size))
    return tuple((fmean(x for x, _ in part), scale * fmean(y for _, y in part)) for part in parts)


def _mean_line(lines: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """The mean of several lines at the first one's places, as far as all of them go."""
    reach = min(line[-1][0] for line in lines)
    return tuple((x, fmean(_at(line, x) for line in lines)) for x, _ in lines[0] if x <= reach)


def _at(line: Sequence[Point], x: float) -> float:
    """The line's height at x, straight between its points and level outside."""
    for (x0, y0), (x1, y1) in pairwise(line):
        if x <= x1:
            return y0 + (y1 - y0) * max(0.0, x - x0) / (x1 - x0) if x1 > x0 else y1
    return line[-1][1]
