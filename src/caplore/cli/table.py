"""`caplore table DATA`: train what is missing of a grid, evaluate it, print and write the paper's tables."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from caplore.cli.parsing import parse

if TYPE_CHECKING:
    from caplore.evaluation.grid import Cell

PAPER = ("xe", "sll", "sll_me", "sll_sle")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which grid; what is already there is not trained again."""

    data: Annotated[Path, tyro.conf.Positional]
    """Folder of the data set."""
    recipe: str = ""
    """First part of the recipes' names (scenes, flickr8k, ...); empty is the data set's name."""
    models: str = "fc"
    """Captioners, separated by commas: fc, att2in, updown, transformer."""
    objectives: str = ",".join(PAPER)
    """Objectives, separated by commas; cross-entropy is always trained, the others start from it."""
    seeds: int = 1
    """How many seeds of each."""
    split: str = "test"
    """Split to evaluate on."""
    to: Path | None = None
    """Folder for the runs, tables.md, tables.json and report.html; default runs/<recipe>."""
    jobs: int = 0
    """Runs at a time; 0 is two, or one on a machine with one core."""


def main(argv: list[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    argv, knobs = argv[:at], argv[at + 1 :]
    options = parse(
        Options,
        argv,
        prog="caplore table",
        description="The paper's tables for a data set. After `--` come knobs for every training run.",
    )
    from caplore.data.dataset import open_dataset

    dataset = open_dataset(options.data)
    prefix = options.recipe or dataset.name
    folder = options.to or Path("runs") / prefix
    make_table(
        prefix,
        folder,
        models=options.models.split(","),
        objectives=options.objectives.split(","),
        seeds=range(options.seeds),
        split=options.split,
        jobs=options.jobs or min(2, os.cpu_count() or 1),
        knobs=["--data", str(options.data), *knobs],
    )
    return 0


def significance_lines(plan: "Sequence[Cell]") -> Iterator[str]:
    """Every objective that goes beyond SLL against SLL, model by model, over all seeds."""
    from caplore.evaluation.significance import pooled_differences

    kinds: dict[tuple[str, str], list[Path]] = {}
    for cell in plan:
        model, objective = cell.kind
        kinds.setdefault((model, objective), []).append(cell.result)
    for (model, objective), mine in kinds.items():
        base = kinds.get((model, "sll"))
        if objective in ("xe", "sll") or base is None:
            continue
        yield f"{model}: {objective} against sll, {len(mine)} seed{'s' * (len(mine) > 1)}, paired by input:"
        for d in pooled_differences(mine, base):
            assert d.difference is not None
            assert d.interval is not None
            assert d.p is not None
            scale = 100 if "cider" in d.name else 1
            low, high = (f"{scale * end:+.3g}" for end in d.interval)
            p = "p < 0.0002" if d.p < 0.0002 else f"p = {d.p:.4f}"
            yield f"  {d.name:<20}{scale * d.difference:>+8.3g}   95 % {low} to {high}   {p}"


def make_table(
    prefix: str,
    folder: Path,
    *,
    models: Sequence[str],
    objectives: Sequence[str],
    seeds: Sequence[int],
    split: str,
    jobs: int,
    knobs: Sequence[str],
) -> None:
    """Run the grid, then write tables.md and report.html beside the runs and print the tables."""
    from caplore.errors import ConfigError
    from caplore.evaluation import grid
    from caplore.files import write_text
    from caplore.training.recipes import RECIPES

    plan = grid.cells(
        prefix, folder, models=models, objectives=objectives, seeds=seeds, knobs=knobs, split=split
    )
    unknown = sorted({cell.recipe for cell in plan} - set(RECIPES))
    if unknown:
        raise ConfigError(
            f"there is no recipe {unknown[0]!r}",
            fix=f"--recipe and --objectives of these: {', '.join(RECIPES)}",
        )
    grid.run(plan, jobs=jobs, say=lambda line: print(line, file=sys.stderr, flush=True))
    from caplore.report import page, runs, tables

    found = runs.load([cell.folder for cell in plan], split)
    results = [run.result for run in found]
    tests = list(significance_lines(plan))
    write_text(folder / "tables.md", "\n".join([tables.markdown(results), "", *tests]).rstrip() + "\n")
    report = folder / "report.html"
    write_text(report, page.render(found, command=f"caplore report {folder}/*"))
    print(tables.terminal(results))
    print("\n".join(["", *tests]) if tests else "")
    print(f"report: {report}\ntables: {folder / 'tables.md'}")
