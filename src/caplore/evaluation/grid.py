"""A grid of runs: models x objectives x seeds, trained where missing, evaluated, each in its own process.

A cell of the grid is a run folder `<model>-<objective>-<seed>`. What is done stays done: a grid that was
interrupted goes on with what is missing, and a run that was cut short is resumed.
"""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from caplore.errors import CaploreError, ConfigError
from caplore.files import read_json
from caplore.metrics.meteor.tables import is_set_up
from caplore.training.config import Recipe
from caplore.training.recipes import RECIPES
from caplore.training.run import Run


@dataclass(frozen=True)
class Cell:
    """One run to train and evaluate; `start` is the cross-entropy run its sequence phase begins from."""

    folder: Path
    recipe: str
    start: Path | None
    knobs: tuple[str, ...]
    split: str
    kind: tuple[str, str] = ("fc", "xe")
    """Model and objective."""
    spice: bool = False
    """SPICE is wanted in the result."""

    @property
    def result(self) -> Path:
        return self.folder / "results" / f"{self.split}.json"

    def status(self) -> str:
        """missing | started | stopped | done"""
        path = self.folder / "run.json"
        return str(read_json(path, "run")["status"]) if path.is_file() else "missing"

    def commands(self) -> Iterator[list[str]]:
        """What is left to do, as a person would type it."""
        status = self.status()
        if status == "missing":
            start = [] if self.start is None else ["--start", str(self.start)]
            yield ["train", self.recipe, "--to", str(self.folder), *start, *self.knobs]
        elif status == "started":
            yield ["train", "--resume", str(self.folder)]
        if status in ("missing", "started") or not self.is_scored():
            yield [
                "evaluate",
                str(self.folder),
                "--split",
                self.split,
                *(["--spice"] if self.spice else []),
            ]

    def is_scored(self) -> bool:
        """There is a result, with METEOR if that is set up (by now), and with SPICE if it is wanted."""
        if not self.result.is_file():
            return False
        scores = read_json(self.result, "result")["decoders"]["beam"]["scores"]
        wanted = [name for name, so in (("meteor", is_set_up()), ("spice", self.spice)) if so]
        return all(scores.get(name, {}).get("value") is not None for name in wanted)


def cells(
    prefix: str,
    to: Path,
    *,
    models: Sequence[str],
    objectives: Sequence[str],
    seeds: Sequence[int],
    knobs: Sequence[str] = (),
    split: str = "test",
    spice: bool = False,
) -> list[Cell]:
    """The grid; every objective but `xe` starts from the cross-entropy run of its model and seed.

    A knob goes to the recipes that have it (alpha to SLL-SLE, a sequence phase to all but cross-entropy).
    """
    found = []
    for model in models:
        for seed in seeds:
            xe = to / f"{model}-xe-{seed}"
            for objective in dict.fromkeys(["xe", *objectives]):
                name = "sle" if objective == "sll_sle" else objective.replace("_", "-")
                folder = to / f"{model}-{name}-{seed}"
                recipe = RECIPES.get(f"{prefix}-{name}")
                mine = knobs if recipe is None else knobs_of(recipe[1], knobs)
                own = ("--model.name", model, "--seed", str(seed), *mine)
                start = None if objective == "xe" else xe
                found.append(Cell(folder, f"{prefix}-{name}", start, own, split, (model, objective), spice))
    _refuse_unused(knobs, found)
    return found


def knobs_of(recipe: Recipe, knobs: Sequence[str]) -> tuple[str, ...]:
    """Those of `--knob value ...` that this recipe has."""
    kept: list[str] = []
    takes = True
    for word in knobs:
        if word.startswith("--"):
            takes = _has(recipe, word)
        if takes:
            kept.append(word)
    return tuple(kept)


def _has(recipe: Recipe, knob: str) -> bool:
    """Whether `--sequence.objective.alpha` (or `--no-fast`, `--seed=1`) names a field."""
    value: object = recipe
    for part in knob.removeprefix("--").partition("=")[0].replace("-", "_").split("."):
        fields = (
            {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else {}
        )
        name = part if part in fields else part.removeprefix("no_")
        if name not in fields:
            return False
        value = getattr(value, name)
    return True


def _refuse_unused(knobs: Sequence[str], found: Sequence[Cell]) -> None:
    used = {word for cell in found for word in cell.knobs}
    lost = next((word for word in knobs if word.startswith("--") and word not in used), None)
    if lost is not None:
        raise ConfigError(
            f"none of these runs has the knob {lost}",
            fix=f"caplore train {found[-1].recipe} --help lists the knobs",
        )


def run(grid: Sequence[Cell], *, jobs: int, say: Callable[[str], None]) -> None:
    """Train and evaluate every cell, `jobs` at a time; a collapsed run keeps its last good model and goes on."""
    waiting = list(grid)
    running: dict[Future[None], Cell] = {}
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with _terminable(), ThreadPoolExecutor(jobs) as pool:
        try:
            while waiting or running:
                for cell in [c for c in waiting if c.start is None or _is_trained(c.start)]:
                    if len(running) == jobs:
                        break
                    waiting.remove(cell)
                    alone = len(running) == 0 and not any(_is_ready(c) for c in waiting)
                    running[pool.submit(_work, cell, threads * (jobs if alone else 1), say)] = cell
                # An evaluation may still be running while its weights already are there: look again soon.
                finished, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in finished:
                    running.pop(future)
                    future.result()
        except BaseException:
            for future in running:
                future.cancel()
            _stop_children()
            raise


def _is_trained(folder: Path) -> bool:
    path = folder / "run.json"
    return path.is_file() and read_json(path)["status"] in ("done", "stopped")


def _is_ready(cell: Cell) -> bool:
    return cell.start is None or _is_trained(cell.start)


_CHILDREN: set[subprocess.Popen[str]] = set()


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does: a grid that is told to stop leaves no run behind that goes on without it."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop_children() -> None:
    """SIGTERM: a training run saves where it is."""
    for child in list(_CHILDREN):
        child.terminate()


def _work(cell: Cell, threads: int, say: Callable[[str], None]) -> None:
    for command in cell.commands():
        began = time.monotonic()
        code, errors = _call(command, threads)
        took = f"{time.monotonic() - began:.0f} s"
        if code == 0:
            idle = command[0] == "train" and Run(cell.folder).is_unmoved()
            say(
                f"{command[0]:<9}{cell.folder}  {took}{': no epoch beat cross-entropy, whose model is kept' * idle}"
            )
        elif command[0] == "train" and cell.status() == "stopped":
            say(f"stopped  {cell.folder}  {took}: {Run(cell.folder).head()['stopped']}")
        else:
            raise CaploreError(
                f"`caplore {' '.join(command)}` failed (exit {code}):\n{errors.strip()[-2000:]}",
                fix="mend that, then run the same command again: what is done is not repeated",
            )


def _call(command: Sequence[str], threads: int) -> tuple[int, str]:
    child = subprocess.Popen(
        [sys.executable, "-m", "caplore", *command, *(["--quiet"] if command[0] == "train" else [])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    _CHILDREN.add(child)
    try:
        _, errors = child.communicate()
        return child.returncode, errors
    finally:
        _CHILDREN.discard(child)
