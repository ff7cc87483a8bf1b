"""Is exploration better on both sides at once? Differences between groups, and a sentence on how it came out.

Precision is judged by CIDEr of the beam's caption, as in the paper. Recall is judged by the expected recall
at 5 where the truth is known; elsewhere by Div-2 of sampled sets, the paper's proxy. A difference counts
where it is larger than its standard deviation over the seeds that both have; with one seed it is as it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from caplore.report.groups import Group
from caplore.report.tables import (
    EXACT,
    MISSING,
    PRECISION,
    SETS,
    Block,
    Cell,
    Column,
    Line,
    Table,
    sharpened,
    spread_text,
)

RIVALS = ("sll", "sll_me")
PLAIN = ("xe", *RIVALS)


@dataclass(frozen=True)
class Measure:
    """A score that is compared: of which part, as which column, and its name in a table and in a sentence."""

    part: str
    column: Column
    title: str
    words: str = ""

    @property
    def heading(self) -> Column:
        column = self.column
        return Column(f"{self.part}.{column.key}", self.title, column.better, column.scale, column.digits)


def _column(columns: Sequence[Column], key: str) -> Column:
    return next(c for c in columns if c.key == key)


CIDER = Measure("beam", _column(PRECISION, "cider_d"), "CIDEr, beam", "CIDEr at beam search")
P_CORRECT = Measure("exact", _column(EXACT, "precision"), "P(Y|x)", "P(Y|x)")
RECALL_5 = Measure("exact", _column(EXACT, "recall_5"), "recall@5", "expected recall at 5")
DIV_2 = Measure("rs", _column(SETS, "div_2"), "Div-2, rs", "Div-2 of sampled sets")
MEASURES = (
    CIDER,
    P_CORRECT,
    RECALL_5,
    Measure("exact", _column(EXACT, "recall_20"), "recall@20"),
    Measure("rs", _column(SETS, "oracle_cider_d"), "oracle, rs"),
    DIV_2,
    Measure("rs", _column(SETS, "mbleu_4"), "mBLEU-4, rs"),
)


@dataclass(frozen=True)
class Difference:
    """Ours minus theirs; `spread` is the standard deviation over seeds where both have the same ones."""

    measure: Measure
    value: float
    spread: float | None

    @property
    def better(self) -> bool | None:
        """Whether this is an improvement; None where it prints as zero or is within its spread."""
        column = self.measure.column
        if float(column.text(self.value)) == 0 or abs(self.value) <= (self.spread or 0):
            return None
        return (self.value > 0) == (column.better == "up")

    @property
    def text(self) -> str:
        text = self.measure.column.text(abs(self.value))
        sign = "" if float(text) == 0 else "+" if self.value > 0 else "−"
        return sign + text

    @property
    def spread_text(self) -> str:
        return "" if self.spread is None else spread_text(self.measure.column, self.spread)


def difference(ours: Group, theirs: Group, measure: Measure) -> Difference | None:
    """Of the means; over pairs of equal seeds where both groups have the same ones."""
    mine, other = (_by_seed(g, measure) for g in (ours, theirs))
    if not mine or not other:
        return None
    measure = replace(measure, column=sharpened(measure.column, [*mine.values(), *other.values()]))
    if mine.keys() == other.keys():
        steps = [mine[seed] - other[seed] for seed in mine]
        return Difference(measure, fmean(steps), stdev(steps) if len(steps) > 1 else None)
    return Difference(measure, fmean(mine.values()) - fmean(other.values()), None)


def _by_seed(group: Group, measure: Measure) -> dict[int, float]:
    scores = ((r.seed, r.score(measure.part, measure.column.key).value) for r in group.results)
    return {seed: value for seed, value in scores if value is not None}


def pairs(groups: Sequence[Group]) -> Iterator[tuple[Group, Group]]:
    """Every group that explores, against SLL and SLL-ME of the same model."""
    for ours in groups:
        if ours.objective not in PLAIN:
            for theirs in groups:
                if theirs.objective in RIVALS and theirs.model == ours.model:
                    yield ours, theirs


def differences_table(groups: Sequence[Group]) -> Table | None:
    """A row per pair; None where there is nothing to compare."""
    compared = list(pairs(groups))
    measures = [m for m in MEASURES if any(difference(a, b, m) for a, b in compared)]
    if not measures:
        return None
    lines = tuple(
        Line(*_names(a, b, "minus"), len(a.results), tuple(_cell(difference(a, b, m)) for m in measures))
        for a, b in compared
    )
    columns = tuple(m.heading for m in measures)
    return Table("claim", "What exploration changes", columns, (Block("", lines),))


def _names(ours: Group, theirs: Group, word: str) -> tuple[str, str]:
    """Both groups of a pair; what they have in common is said once."""
    if ours.detail == theirs.detail:
        return ours.label, f"{word} {theirs.title}"
    return ours.title, f"{word} {theirs.title}"


def _cell(found: Difference | None) -> Cell:
    return Cell(MISSING) if found is None else Cell(found.text, found.spread_text, better=found.better)


@dataclass(frozen=True)
class Finding:
    """A verdict on one pair, and the numbers it rests on."""

    verdict: str
    numbers: str


def findings(groups: Sequence[Group]) -> list[Finding]:
    found = (_finding(ours, theirs) for ours, theirs in pairs(groups))
    return [one for one in found if one is not None]


def _finding(ours: Group, theirs: Group) -> Finding | None:
    precision = difference(ours, theirs, CIDER)
    recall = difference(ours, theirs, RECALL_5) or difference(ours, theirs, DIV_2)
    if precision is None or recall is None:
        return None
    exact = difference(ours, theirs, P_CORRECT)
    told = [_told(d) for d in (precision, recall, exact) if d is not None]
    seeds = {r.seed for r in ours.results} & {r.seed for r in theirs.results}
    over = f"over {len(seeds)} seeds" if len(seeds) > 1 else "one seed, so chance is not ruled out"
    verdict = f"{' '.join(_names(ours, theirs, 'against'))}: {_verdict(precision.better, recall.better)}."
    return Finding(verdict, f"{', '.join(told)}; {over}.")


def _told(found: Difference) -> str:
    spread = f" ± {found.spread_text}" if found.spread_text else ""
    return f"{found.measure.words} {found.text}{spread}"


def _verdict(precision: bool | None, recall: bool | None) -> str:
    if precision and recall:
        return "better on both sides at once"
    if precision is None and recall is None:
        return "no clear difference on either side"
    how = {True: "better", None: "level", False: "worse"}
    first, second = sorted((("precision", precision), ("recall", recall)), key=lambda side: not side[1])
    if first[1] == second[1]:
        return f"{how[first[1]]} on both sides"
    return f"{how[first[1]]} in {first[0]}, {how[second[1]]} in {second[0]}"
