"""Groups of runs -> the paper's tables, as data; and those as Markdown or as plain text for a terminal.

    precision   one caption per input by beam search: METEOR, CIDEr, SPICE, BLEU, ROUGE-L
    sets        several captions per input, sampled (rs) and from the beam (bs): CIDEr, oracle, Div-n, mBLEU-4
    exact       made worlds only: P(Y|x), expected recall, peak width

Every value is a mean over the seeds of a group, with the sample standard deviation where there are several.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from typing import Any, Literal

from caplore.report import paper
from caplore.report.groups import Group, Summary, group, require_comparable
from caplore.report.results import NOT_ASKED, Result

Better = Literal["up", "down", "none"]
ARROWS = {"up": "↑", "down": "↓", "none": ""}
MISSING = "–"
Parts = Sequence[tuple[str, str]]
"""What a table is about: decoders (or "exact") and the heading of each one's block."""


@dataclass(frozen=True)
class Column:
    """A score's key, how it prints, which way is better; a narrow terminal leaves out the highest `rank` first."""

    key: str
    title: str
    better: Better = "up"
    scale: float = 1.0
    digits: int = 2
    rank: int = 0
    extra: bool = False
    """Beyond the paper's tables: shown where it was computed, not missed where it was not asked for."""

    @property
    def heading(self) -> str:
        return f"{self.title} {ARROWS[self.better]}".rstrip()

    def text(self, value: float) -> str:
        # + 0.0 turns the -0.0 that rounding may leave into 0.0.
        return f"{round(value * self.scale, self.digits) + 0.0:.{self.digits}f}"


def sharpened(column: Column, values: Iterable[float]) -> Column:
    """The column with as many more digits as its largest value needs to print two that count, at most three."""
    largest = max((abs(value * column.scale) for value in values), default=0.0)
    if largest == 0:
        return column
    more = 1 - column.digits - floor(log10(largest))
    return replace(column, digits=column.digits + min(max(0, more), 3))


@dataclass(frozen=True)
class Cell:
    text: str
    spread: str = ""
    best: bool = False
    better: bool | None = None
    """In a table of differences: whether this one is an improvement."""


@dataclass(frozen=True)
class Line:
    label: str
    detail: str
    seeds: int
    cells: tuple[Cell, ...]
    source: str = ""
    """Whose figures, where they are not ours."""


@dataclass(frozen=True)
class Block:
    """Lines that may be compared with each other: the best of a column is marked within one block."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: tuple[Column, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> Iterator[Cell]:
        return (cell for block in self.blocks for line in block.lines for cell in line.cells)

    @property
    def counts_differ(self) -> bool:
        """Whether some rows have more seeds than others, so that each has to say how many."""
        return len({line.seeds for b in self.blocks for line in b.lines if not line.source}) > 1


PERCENT: dict[str, Any] = {"scale": 100.0, "digits": 1}
PRECISION = (
    Column("meteor", "METEOR", **PERCENT),
    Column("cider_d", "CIDEr", **PERCENT),
    Column("spice", "SPICE", **PERCENT),
    Column("bleu_1", "BLEU-1", rank=4, **PERCENT),
    Column("bleu_2", "BLEU-2", rank=6, **PERCENT),
    Column("bleu_3", "BLEU-3", rank=5, **PERCENT),
    Column("bleu_4", "BLEU-4", rank=1, **PERCENT),
    Column("rouge_l", "ROUGE-L", rank=2, **PERCENT),
)
SETS = (
    Column("cider_d", "CIDEr", **PERCENT),
    Column("oracle_cider_d", "oracle", rank=1, **PERCENT),
    Column("div_1", "Div-1", rank=2),
    Column("div_2", "Div-2"),
    Column("mbleu_4", "mBLEU-4", "down"),
    Column("self_cider", "self-CIDEr", rank=4, extra=True),
    Column("recall_cider_d", "ref. recall", rank=3, extra=True, **PERCENT),
)
EXACT = (
    Column("precision", "P(Y|x)", digits=3),
    Column("recall_5", "recall@5", digits=3),
    Column("recall_20", "recall@20", digits=3),
    Column("peak_width", "peak width", digits=1),
)
DECODERS = {"rs": "random sampling (rs)", "bs": "top of the beam (bs)"}


def build(results: Sequence[Result]) -> list[Table]:
    """The tables these results can fill, for results that may be compared."""
    require_comparable(results)
    groups = group(results)
    built = (precision_table(groups), sets_table(groups), exact_table(groups))
    return [table for table in built if table is not None]


def precision_table(groups: Sequence[Group]) -> Table | None:
    decoder = _first_decoder(groups, "beam")
    if decoder is None:
        return None
    title = f"Precision: one caption per input, beam {decoder.get('width', '')}".rstrip()
    return _table("precision", title, PRECISION, groups, [("beam", "")])


def sets_table(groups: Sequence[Group]) -> Table | None:
    parts = [p for r in groups[0].results for p in r.decoders if p != "beam"]
    if not parts:
        return None
    settings = _first_decoder(groups, parts[0]) or {}
    size = settings.get("n")
    title = f"Sets of {size} captions per input" if size else "Sets of captions per input"
    titled = [(part, DECODERS.get(part, part)) for part in dict.fromkeys(parts)]
    return _table("sets", title, SETS, groups, titled)


def exact_table(groups: Sequence[Group]) -> Table | None:
    """Against the complete set Y; None where the data is not a made world."""
    exact = [r.exact for g in groups for r in g.results if r.exact is not None]
    if not exact:
        return None
    truths = [s.value for e in exact if (s := e.scores.get("truths")) and s.value is not None]
    size = f", {truths[0]:,.0f} correct captions each on average" if truths else ""
    title = f"Exact figures on {exact[0].inputs:,} inputs{size}"
    return _table("exact", title, EXACT, groups, [("exact", "")])


def _first_decoder(groups: Sequence[Group], part: str) -> dict[str, Any] | None:
    return next((r.decoders[part].settings for g in groups for r in g.results if part in r.decoders), None)


def _table(
    name: str,
    title: str,
    columns: Sequence[Column],
    groups: Sequence[Group],
    parts: Parts,
) -> Table:
    """Columns that no run computed go, with a note; the rest is filled block by block."""
    dataset = groups[0].results[0].dataset.name
    published = {part: paper.rows(dataset, part) for part, _ in parts}
    known = {key for rows in published.values() for row in rows for key in row.scores}
    shown = tuple(
        sharpened(c, (v for g in groups for part, _ in parts for v in g.values(part, c.key)))
        for c in columns
        if c.key in known or _computed(c, groups, parts)
    )
    blocks = []
    for part, heading in parts:
        blocks.append(Block(heading, _lines(groups, part, shown)))
        if theirs := tuple(_paper_line(row, shown) for row in published[part]):
            blocks.append(Block(f"{heading}: the paper" if heading else "the paper", theirs))
    gone = [
        c for c in columns if not _computed(c, groups, parts) and (not c.extra or _asked(c, groups, parts))
    ]
    notes = [*_missing_notes(gone, shown, groups, parts), *_signature_notes(shown, groups, parts)]
    return Table(name, title, shown, tuple(blocks), tuple(notes))


def _computed(column: Column, groups: Sequence[Group], parts: Parts) -> bool:
    return any(g.values(part, column.key) for g in groups for part, _ in parts)


def _asked(column: Column, groups: Sequence[Group], parts: Parts) -> bool:
    """Whether any result mentions this score, be it to say that it was not computed."""
    scores = (r.score(part, column.key) for g in groups for r in g.results for part, _ in parts)
    return any(score.note != NOT_ASKED for score in scores)


def _lines(groups: Sequence[Group], part: str, columns: Sequence[Column]) -> tuple[Line, ...]:
    summaries = [[g.summary(part, c.key) for c in columns] for g in groups]
    best = [_best(c, [row[i].mean for row in summaries]) for i, c in enumerate(columns)]
    return tuple(
        Line(
            g.label,
            g.detail,
            len(g.results),
            tuple(_cell(*three) for three in zip(columns, row, best, strict=True)),
        )
        for g, row in zip(groups, summaries, strict=True)
    )


def _best(column: Column, means: Sequence[float | None]) -> str | None:
    """The best value as printed: two that print alike are both the best. One line alone is no competition."""
    values = [mean for mean in means if mean is not None]
    if len(values) < 2 or column.better == "none":
        return None
    return column.text(max(values) if column.better == "up" else min(values))


def _cell(column: Column, summary: Summary, best: str | None) -> Cell:
    if summary.mean is None:
        return Cell(MISSING)
    text = column.text(summary.mean)
    spread = "" if summary.spread is None else spread_text(column, summary.spread)
    return Cell(text, spread, text == best)


def spread_text(column: Column, spread: float) -> str:
    """A spread in the column's digits, with up to two more where it would print as zero."""
    texts = (f"{spread * column.scale:.{column.digits + more}f}" for more in range(3))
    return next((text for text in texts if float(text) > 0), column.text(spread))


def _paper_line(row: paper.Row, columns: Sequence[Column]) -> Line:
    cells = tuple(Cell(c.text(row.scores[c.key]) if c.key in row.scores else MISSING) for c in columns)
    return Line(row.label, "", 0, cells, source=paper.CITATION)


def _missing_notes(
    gone: Sequence[Column], shown: Sequence[Column], groups: Sequence[Group], parts: Parts
) -> Iterable[str]:
    """'not computed: why', once per reason."""
    reasons: dict[str, list[str]] = {}
    for column in gone:
        notes = [n for g in groups for part, _ in parts for n in g.summary(part, column.key).notes]
        reasons.setdefault("; ".join(dict.fromkeys(notes)), []).append(column.title)
    for why, titles in reasons.items():
        yield f"{', '.join(titles)} not computed: {why}"
    for column in (c for c in shown if c not in gone):
        for part, _ in parts:
            for g in groups:
                found = g.summary(part, column.key)
                if found.notes:
                    where = f"{column.title} of {g.title} ({part})"
                    share = f"{len(g.results) - found.seeds} of {len(g.results)} runs"
                    yield f"{where} not computed for {share}: {'; '.join(found.notes)}"


def _signature_notes(columns: Sequence[Column], groups: Sequence[Group], parts: Parts) -> Iterable[str]:
    """Numbers made in different ways must not stand in one column unannounced."""
    for part, heading in parts:
        for column in columns:
            scores = [r.score(part, column.key) for g in groups for r in g.results]
            ways = dict.fromkeys(s.signature for s in scores if s.value is not None)
            if len(ways) > 1:
                where = f"{column.title}, {heading}" if heading else column.title
                yield f"Careful: {where} was computed in {len(ways)} ways, do not compare: {' / '.join(ways)}"
        settings = [r.decoders[part].settings for g in groups for r in g.results if part in r.decoders]
        if any(s != settings[0] for s in settings[1:]):
            yield f"Careful: the runs were decoded with different settings ({heading or part})"


def seeds_note(tables: Sequence[Table]) -> str:
    """What the ± means, and over how many seeds."""
    counts = sorted({line.seeds for t in tables for b in t.blocks for line in b.lines if not line.source})
    if not counts or counts[-1] < 2:
        return "One seed per row: the spread over seeds is not known."
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean ± standard deviation over {number} seeds."


def _label(line: Line, counts_differ: bool) -> str:
    label = f"{line.label} · {line.detail}" if line.detail else line.label
    return (
        f"{label} ({line.seeds} seed{'s' if line.seeds > 1 else ''})"
        if counts_differ and line.seeds
        else label
    )


def markdown(results: Sequence[Result]) -> str:
    """The tables as Markdown: best value of a column in bold, mean ± spread over seeds."""
    tables = build(results)
    return "\n".join([*(_markdown(table) for table in tables), seeds_note(tables), ""])


def _markdown(table: Table) -> str:
    heads = ["", *(c.heading for c in table.columns)]
    lines = [f"**{table.title}**", "", _pipes(heads), "|---|" + "---:|" * len(table.columns)]
    for block in table.blocks:
        if block.title:
            lines.append(_pipes([f"*{block.title}*", *("" for _ in table.columns)]))
        for line in block.lines:
            lines.append(_pipes([_label(line, table.counts_differ), *map(_markdown_cell, line.cells)]))
    return "\n".join([*lines, "", *(f"{note}  " for note in table.notes), *([""] if table.notes else [])])


def _pipes(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return f"{text} ± {cell.spread}" if cell.spread else text


def terminal(results: Sequence[Result], *, width: int = 80, colour: bool = False) -> str:
    """The tables as plain text no wider than `width`: the least needed columns are left out, and named.

    The best value of a column carries a star, and with `colour` is bold as well.
    """
    tables = build(results)
    legend = textwrap.wrap(f"{seeds_note(tables)} * best of its column.", max(width, 20))
    return "\n".join([*(_fitted(table, width, colour) for table in tables), *legend, ""])


def _fitted(table: Table, width: int, colour: bool) -> str:
    order = sorted(range(len(table.columns)), key=lambda i: (-table.columns[i].rank, -i))
    for dropped in range(len(order)):
        keep = sorted(order[dropped:])
        if max(map(len, _plain(_with_columns(table, keep), colour=False).splitlines())) <= width:
            break
    left_out = [c.title for i, c in enumerate(table.columns) if i not in keep]
    more = [f"(left out to fit: {', '.join(left_out)})"] if left_out else []
    notes = [line for note in (*more, *table.notes) for line in textwrap.wrap(note, max(width, 20))]
    title = textwrap.wrap(table.title, max(width, 20))
    return "\n".join([*title, _plain(_with_columns(table, keep), colour), *notes, ""])


def _with_columns(table: Table, keep: Sequence[int]) -> Table:
    blocks = tuple(
        replace(b, lines=tuple(replace(line, cells=tuple(line.cells[i] for i in keep)) for line in b.lines))
        for b in table.blocks
    )
    return replace(table, columns=tuple(table.columns[i] for i in keep), blocks=blocks)


def _plain(table: Table, colour: bool) -> str:
    """Headings, then lines; a cell ends in a star or a space, so the values themselves stay aligned."""
    differ = table.counts_differ
    rows = [
        [_label(line, differ), *map(_plain_cell, line.cells)]
        for block in table.blocks
        for line in block.lines
    ]
    heads = ["", *(f"{c.heading} " for c in table.columns)]
    wide = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines, following = [_plain_line(heads, wide, colour=False)], iter(rows)
    for block in table.blocks:
        lines += [f"  {block.title}"] if block.title else []
        lines += [_plain_line(next(following), wide, colour) for _ in block.lines]
    return "\n".join(lines)


def _plain_cell(cell: Cell) -> str:
    spread = f" ±{cell.spread}" if cell.spread else ""
    return f"{cell.text}{spread}{'*' if cell.best else ' '}"


def _plain_line(row: Sequence[str], wide: Sequence[int], colour: bool) -> str:
    cells = [row[0].ljust(wide[0])]
    for text, width in zip(row[1:], wide[1:], strict=True):
        bold = f"\x1b[1m{text}\x1b[0m" if colour and text.endswith("*") else text
        cells.append(" " * (width - len(text)) + bold)
    return " ".join(cells).rstrip()
