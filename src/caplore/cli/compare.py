"""caplore compare A.json B.json: is one system better than the other, or is it chance?"""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Optional

import tyro

from caplore.cli.parsing import parse
from caplore.cli.terminal import WIDEST, page_width
from caplore.errors import ConfigError
from caplore.evaluation.comparison import Comparison, Difference, compare
from caplore.evaluation.statistics_io import naming_unwritable
from caplore.files import write_json

INTERVAL = 29
ABOUT = """Compare two results of `caplore score --json` or of `caplore evaluate`, from the numbers
kept beside them, without scoring again.

  caplore compare sle/results/test.json sll/results/test.json

For every score both have: the difference (first - second), its 95 % interval (paired
bootstrap over inputs), and p, how often swapping the two systems' captions of random
inputs makes at least that difference (paired approximate randomisation)."""


# Optional[X], not X | None: of that tyro asks typeguard, whose import takes half as long as numpy's.
# ruff: noqa: UP045
@dataclass(frozen=True)
class Options:
    first: Annotated[Path, tyro.conf.Positional]
    """A result."""
    second: Annotated[Path, tyro.conf.Positional]
    """The result it is compared with."""
    draws: int = 1000
    """Draws of the bootstrap."""
    swaps: int = 10_000
    """Draws of the randomisation: the smallest p is 1 in this many."""
    seed: int = 0
    json: Optional[Path] = None
    """Write the comparison here as well."""

    def __post_init__(self) -> None:
        if self.draws < 1 or self.swaps < 1:
            raise ConfigError(f"--draws is {self.draws} and --swaps {self.swaps}: both are 1 or more")


def main(argv: list[str]) -> int:
    options = parse(Options, argv, prog="caplore compare", description=ABOUT)
    comparison = compare(
        options.first, options.second, draws=options.draws, swaps=options.swaps, seed=options.seed
    )
    print("\n".join(page(comparison, page_width())), flush=True)
    if options.json is not None:
        with naming_unwritable(options.json):
            write_json(options.json, comparison.to_json())
    return 0


def page(comparison: Comparison, columns: int = WIDEST) -> list[str]:
    """One row a score; what is surely different is marked."""
    lines = [f"A  {comparison.first}", f"B  {comparison.second}", f"{comparison.inputs:,} inputs"]
    for note in comparison.notes:
        lines += textwrap.wrap(f"note: {note}", columns, subsequent_indent="  ")
    width = max(len(d.name) for d in comparison.differences)
    head = f"{'':{width}}{'A':>8}{'B':>8}{'A - B':>9}"
    beside = len(head) + INTERVAL <= columns
    lines += ["", head + f"  {'95 % interval':17}       p" if beside else head]
    for difference in comparison.differences:
        lines += _row(difference, width, columns, beside=beside)
    end = "*  p < 0.05. With many scores, some fall below that by chance."
    return [*lines, "", *textwrap.wrap(end, columns, subsequent_indent="   ")]


def _row(d: Difference, width: int, columns: int, *, beside: bool) -> list[str]:
    """A score of both, with the interval and p beside it or, where the page is narrow, below."""
    row = f"{d.name:<{width}}{_number(d.first):>8}{_number(d.second):>8}{_number(d.difference, '+'):>9}"
    lines = [row]
    if d.interval is not None and d.p is not None:
        low, high = (_number(end, "+") for end in d.interval)
        sure = " *" if d.p < 0.05 else ""
        if beside:
            lines = [f"{row}  {low:>8} {high:>8}  {d.p:6.4f}{sure}"]
        else:
            lines.append(f"    {low} .. {high}, p {d.p:.4f}{sure}")
    if d.note is not None:
        lines += textwrap.wrap(d.note, columns, initial_indent="    ", subsequent_indent="    ")
    return [line.rstrip() for line in lines]


def _number(value: float | None, sign: str = "") -> str:
    """Four decimals, none for numbers of words."""
    return "-" if value is None else format(value, f"{sign}.4f" if abs(value) < 100 else f"{sign}.0f")
