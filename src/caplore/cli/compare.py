"""caplore compare A.json B.json: is one system better than the other, or is it chance?"""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from caplore.cli.parsing import parse
from caplore.errors import ConfigError
from caplore.evaluation.comparison import Comparison, Difference, compare
from caplore.files import write_json

WIDTH = 80
ABOUT = """Compare two results of `caplore score --json` or of `caplore evaluate`, from the numbers
kept beside them, without scoring again.

  caplore compare sle/results/test.json sll/results/test.json

For every score both have: the difference (first - second), its 95 % interval (paired
bootstrap over inputs), and p, how often swapping the two systems' captions of random
inputs makes at least that difference (paired approximate randomisation)."""


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
    json: Path | None = None
    """Write the comparison here as well."""

    def __post_init__(self) -> None:
        if self.draws < 1 or self.swaps < 1:
            raise ConfigError(f"--draws is {self.draws} and --swaps {self.swaps}: both are 1 or more")


def main(argv: list[str]) -> int:
    options = parse(Options, argv, prog="caplore compare", description=ABOUT)
    comparison = compare(
        options.first, options.second, draws=options.draws, swaps=options.swaps, seed=options.seed
    )
    if options.json is not None:
        write_json(options.json, comparison.to_json())
    print("\n".join(page(comparison)))
    return 0


def page(comparison: Comparison) -> list[str]:
    """One row a score, 80 columns; what is surely different is marked."""
    lines = [f"A  {comparison.first}", f"B  {comparison.second}", f"{comparison.inputs:,} inputs"]
    for note in comparison.notes:
        lines += textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")
    width = max(len(d.name) for d in comparison.differences)
    lines += ["", f"{'':{width}}{'A':>8}{'B':>8}{'A - B':>9}  {'95 % interval':17}       p"]
    for difference in comparison.differences:
        lines += _row(difference, width)
    return [*lines, "", "*  p < 0.05. With many scores, some fall below that by chance."]


def _row(d: Difference, width: int) -> list[str]:
    row = f"{d.name:<{width}}{_number(d.first):>8}{_number(d.second):>8}{_number(d.difference, '+'):>9}"
    if d.interval is not None and d.p is not None:
        low, high = (_number(end, "+") for end in d.interval)
        row += f"  {low:>8} {high:>8}  {d.p:6.4f}{' *' if d.p < 0.05 else ''}"
    note = (
        []
        if d.note is None
        else textwrap.wrap(d.note, WIDTH, initial_indent="    ", subsequent_indent="    ")
    )
    return [row.rstrip(), *note]


def _number(value: float | None, sign: str = "") -> str:
    """Four decimals, none for numbers of words."""
    return "-" if value is None else format(value, f"{sign}.4f" if abs(value) < 100 else f"{sign}.0f")
