"""`caplore table DATA`: train what is missing of a grid, evaluate it, print and write the paper's tables."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from caplore.cli.parsing import parse

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
    write_text(folder / "tables.md", tables.markdown(results) + "\n")
    report = folder / "report.html"
    write_text(report, page.render(found, command=f"caplore report {folder}/*"))
    print(tables.terminal(results))
    print(f"\nreport: {report}\ntables: {folder / 'tables.md'}")
