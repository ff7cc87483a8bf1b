"""`caplore data SUBCOMMAND`: make a data set (scenes), import yours (import), look one over (check)."""

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from caplore.cli.parsing import parse
from caplore.errors import CaploreError

USAGE = """usage: caplore data SUBCOMMAND [options]      caplore data SUBCOMMAND --help

  scenes  draw a made world: pictures or clips whose correct captions are all known
  import  turn your captions and pictures into a data set
  check   look a data set over and say what is wrong with it"""


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if argv else 2
    if argv[0] == "scenes":
        return scenes(argv[1:])
    if argv[0] in ("import", "check"):
        return importlib.import_module("caplore.cli.data_import").main(argv)
    raise CaploreError(f"caplore data has no sub-command {argv[0]!r}", fix="one of scenes, import, check")


@dataclass(frozen=True)
class ScenesOptions:
    """Draw a made world: pictures (or clips) of coloured shapes and animals, with captions from a grammar.

    Every input has five captions to train on; the complete set of its correct captions is known, so that
    precision and recall can be computed exactly.
    """

    to: Path
    """The folder to write; new or empty."""
    train: int | None = None
    """Inputs to train on; default: 4000 pictures or 1000 clips."""
    val: int | None = None
    """Inputs to select models on; default: 500 pictures or 200 clips."""
    test: int | None = None
    """Inputs to score on; default: 500 pictures or 200 clips."""
    clips: bool = False
    """Short animated GIFs in which something moves, instead of pictures."""
    seed: int = 0
    """Another seed, another data set of the same kind."""
    workers: int | None = None
    """Processes that draw; default: one per core. The result does not depend on it."""
    replace: bool = False
    """Draw anew over a made world that is there with other settings; its features go with it."""


def scenes(argv: list[str]) -> int:
    options = parse(ScenesOptions, argv, prog="caplore data scenes", description=ScenesOptions.__doc__ or "")
    from caplore.data.scenes.make import Plan, make_scenes

    usual = (1000, 200, 200) if options.clips else (4000, 500, 500)
    asked = (options.train, options.val, options.test)
    train, val, test = (u if a is None else a for u, a in zip(usual, asked, strict=True))
    plan = Plan(train, val, test, options.clips, options.seed)
    things = "clips" if options.clips else "pictures"
    started = time.monotonic()
    with _progress_bar(f"drawing {things}", len(plan.inputs)) as progress:
        made = make_scenes(
            options.to, plan, replace=options.replace, workers=options.workers, progress=progress
        )
    seconds = time.monotonic() - started
    counts = f"{len(plan.inputs):,} {things} ({train:,} train, {val:,} val, {test:,} test)"
    if made.drawn:
        size = sum(path.stat().st_size for path in options.to.rglob("*")) / 1e6
        captions = sum(len(item.captions) for item in made.dataset.inputs)
        print(f"{options.to}: {counts}, {captions:,} captions, {size:.0f} MB, {seconds:.1f} s")
    else:
        print(f"{options.to}: {counts} are there already, of these settings and this seed; nothing to do")
    print(f"next: caplore features {options.to} --encoder tiny")
    return 0


@contextmanager
def _progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left, on stderr; yields what to call with how many more are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
