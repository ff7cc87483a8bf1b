"""The run folder: what was asked for, what happened, what came out.

run.json            resolved recipe, versions, commit, signatures, status
vocabulary.json     the words the model can say
log.jsonl           one line per log step, validation, phase
checkpoints/        last.safetensors (to resume), <phase>-best.safetensors (to use)
results/            what caplore evaluate writes
"""

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from caplore import __version__
from caplore.data.dataset import Dataset, open_dataset
from caplore.errors import InputError
from caplore.files import explaining_full_disk, read_json, read_jsonl, sweep, write_json, write_jsonl
from caplore.text.vocabulary import Vocabulary
from caplore.training import config
from caplore.training.config import Recipe

FORMAT = "caplore-run-1"


@dataclass(frozen=True)
class Run:
    """A run folder that exists."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def last(self) -> Path:
        return self.path / "checkpoints" / "last.safetensors"

    def best_of(self, phase: str) -> Path:
        return self.path / "checkpoints" / f"{phase}-best.safetensors"

    @property
    def best(self) -> Path:
        """The model to use: the best of the last phase that has one."""
        for phase in ("sequence", "xe"):
            if self.best_of(phase).is_file():
                return self.best_of(phase)
        raise InputError(
            f"run {self.path} has no trained model yet", fix=f"caplore train --resume {self.path}"
        )

    def head(self) -> dict[str, Any]:
        head = read_json(self.path / "run.json", "run")
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise InputError(f"{self.path}/run.json is not of the format {FORMAT}")
        return head

    def update(self, **changes: Any) -> None:
        write_json(self.path / "run.json", {**self.head(), **changes})

    def recipe(self) -> Recipe:
        return config.from_json(self.head()["config"])

    def dataset(self) -> Dataset:
        """Its data set: where run.json says; a relative name from here, else from any folder around the run."""
        head = self.head()
        named = Path(head["data"])
        around = [] if named.is_absolute() else [up / named for up in self.path.absolute().parents]
        for place in (named, *around):
            with contextlib.suppress(InputError):
                found = open_dataset(place)
                if found.checksum == head["dataset"]["checksum"]:
                    return found
        return open_dataset(named)

    def vocabulary(self) -> Vocabulary:
        return Vocabulary.load(self.path / "vocabulary.json")

    def log(self, **line: Any) -> None:
        """Append a line; a line that a crash cut short is dropped on resume."""
        path = self.path / "log.jsonl"
        with explaining_full_disk(path), path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")

    def lines(self) -> Iterator[dict[str, Any]]:
        if (self.path / "log.jsonl").is_file():
            yield from (row for _, row in read_jsonl(self.path / "log.jsonl", "log"))

    def is_unmoved(self) -> bool:
        """No epoch of the sequence phase was better than the model it began with, which is the one that is kept."""
        validations = [line for line in self.lines() if line.get("event") == "validation"]
        return [v["epoch"] for v in validations if v["phase"] == "sequence" and v["best"]] == [0]

    @contextlib.contextmanager
    def held(self) -> "Iterator[Run]":
        """One process trains a run: a lock on its folder, which ends with the process however that ends."""
        try:
            import fcntl
        except ImportError:  # Windows
            yield self
            return
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            raise InputError(
                f"another process is training run {self.path}",
                fix="wait until it is done, or stop that process",
            ) from None
        except OSError:  # a file system without locks
            pass
        try:
            yield self
        finally:
            os.close(folder)

    def rewind(self, count: int) -> None:
        """Keep the first `count` lines of the log: what came after the checkpoint will be said again."""
        sweep(self.path)
        sweep(self.last.parent)
        path = self.path / "log.jsonl"
        kept = path.read_bytes().split(b"\n")[:count] if path.is_file() else []
        write_jsonl(path, (json.loads(line) for line in kept))

    def log_length(self) -> int:
        path = self.path / "log.jsonl"
        return path.read_bytes().count(b"\n") if path.is_file() else 0


def open_run(path: Path) -> Run:
    path = Path(path)
    if not (path / "run.json").is_file():
        raise InputError(
            f"{path} is not a run folder: it has no run.json", fix="caplore train RECIPE --to DIR makes one"
        )
    run = Run(path)
    run.head()
    return run


def create_run(recipe: Recipe, recipe_name: str, vocabulary: Vocabulary, **facts: Any) -> Run:
    """A new run folder; a folder that holds a run already is never written over."""
    path = Path(recipe.to)
    if (path / "run.json").exists():
        raise InputError(
            f"{path} holds a run already", fix=f"caplore train --resume {path}, or --to another folder"
        )
    vocabulary.save(path / "vocabulary.json")
    write_json(
        path / "run.json",
        {
            "format": FORMAT,
            "name": path.name,
            "recipe": recipe_name,
            "objective": recipe.objective,
            "model": recipe.model.name,
            "data": str(recipe.data),
            "seed": recipe.seed,
            "status": "started",
            "config": config.to_json(recipe),
            "commit": _commit(),
            "versions": {
                "caplore": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            **facts,
        },
    )
    return Run(path)


def _commit() -> str | None:
    """The commit of the source this runs from, where it is a checkout."""
    try:
        found = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
