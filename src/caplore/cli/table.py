"""`caplore table DATA`: train what is missing of a grid, evaluate it, print and write the paper's tables."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from caplore.cli.parsing import parse

if TYPE_CHECKING:
    from caplore.data.dataset import Dataset
    from caplore.evaluation.comparison import Difference
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
    spice: bool = False
    """SPICE of the single captions as well (once: caplore setup spice); METEOR is there once it is set up."""
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
        dataset,
        models=options.models.split(","),
        objectives=options.objectives.split(","),
        seeds=range(options.seeds),
        split=options.split,
        spice=options.spice,
        jobs=options.jobs or min(2, os.cpu_count() or 1),
        knobs=knobs,
    )
    return 0


def _refuse_what_cannot_be(plan: "Sequence[Cell]", dataset: "Dataset") -> None:
    """Say it now, rather than when the first runs are trained."""
    from caplore.errors import ConfigError
    from caplore.metrics.spice import Spice
    from caplore.models import NAMES
    from caplore.training.recipes import RECIPES

    unknown = sorted({cell.recipe for cell in plan} - set(RECIPES))
    if unknown:
        raise ConfigError(
            f"there is no recipe {unknown[0]!r}",
            fix=f"--recipe and --objectives of these: {', '.join(RECIPES)}",
        )
    strange = sorted({cell.kind[0] for cell in plan} - set(NAMES))
    if strange:
        raise ConfigError(f"there is no model {strange[0]!r}", fix=f"--models of these: {', '.join(NAMES)}")
    for cell in plan:
        dataset.split(cell.split)
        if cell.spice:
            Spice.installed()


@dataclass(frozen=True)
class Test:
    """An objective against SLL, with the same model, over all seeds."""

    model: str
    objective: str
    seeds: int
    differences: "list[Difference]"


def significance(plan: "Sequence[Cell]") -> "Iterator[Test]":
    """Every objective that goes beyond SLL against SLL, model by model, paired by input."""
    from caplore.evaluation.significance import pooled_differences

    kinds: dict[tuple[str, str], list[Path]] = {}
    for cell in plan:
        kinds.setdefault(cell.kind, []).append(cell.result)
    for (model, objective), mine in kinds.items():
        base = kinds.get((model, "sll"))
        if objective not in ("xe", "sll") and base is not None:
            yield Test(model, objective, len(mine), pooled_differences(mine, base))


def significance_lines(tests: "Sequence[Test]") -> Iterator[str]:
    """The tests as text."""
    for test in tests:
        plural = "s" * (test.seeds > 1)
        yield f"{test.model}: {test.objective} against sll, {test.seeds} seed{plural}, paired by input:"
        for d in test.differences:
            assert d.difference is not None
            assert d.interval is not None
            assert d.p is not None
            scale = 100 if d.name.endswith(("cider_d", "meteor", "spice")) else 1
            low, high = (f"{scale * end:+.3g}" for end in d.interval)
            p = "p < 0.0002" if d.p < 0.0002 else f"p = {d.p:.4f}"
            yield f"  {d.name:<20}{scale * d.difference:>+8.3g}   95 % {low} to {high}   {p}"


def make_table(
    prefix: str,
    folder: Path,
    dataset: "Dataset",
    *,
    models: Sequence[str],
    objectives: Sequence[str],
    seeds: Sequence[int],
    split: str,
    jobs: int,
    knobs: Sequence[str],
    spice: bool = False,
) -> None:
    """Run the grid, then write tables.md, tables.json and report.html beside the runs and print the tables."""
    from caplore.evaluation import grid
    from caplore.files import write_json, write_text

    plan = grid.cells(
        prefix,
        folder,
        models=models,
        objectives=objectives,
        seeds=seeds,
        knobs=["--data", str(dataset.path), *knobs],
        split=split,
        spice=spice,
    )
    _refuse_what_cannot_be(plan, dataset)
    grid.run(plan, jobs=jobs, say=lambda line: print(line, file=sys.stderr, flush=True))
    from caplore.cli.terminal import page_width
    from caplore.report import page, runs, tables, tables_json

    found = runs.load([cell.folder for cell in plan], split)
    results = [run.result for run in found]
    tests = list(significance(plan))
    lines = list(significance_lines(tests))
    block = ["```text", *lines, "```"] if lines else []
    write_text(folder / "tables.md", "\n".join([tables.markdown(results), *block]).rstrip() + "\n")
    write_json(folder / "tables.json", tables_json.as_json(results, [asdict(test) for test in tests]))
    report = folder / "report.html"
    write_text(report, page.render(found, command=f"caplore report {folder}/*"))
    print(tables.terminal(results, width=page_width()))
    print("\n".join(["", *lines]) if lines else "")
    print(f"report: {report}\ntables: {folder / 'tables.md'}, {folder / 'tables.json'}")
