"""A run folder as the report needs it: its record, its result on one split, the curves of its log.

run.json               what was trained, with which settings
results/<split>.json   what evaluation found
log.jsonl              one line per log step; `"event": "validation"` lines carry scores
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from caplore.errors import InputError
from caplore.files import read_json, read_jsonl
from caplore.report.groups import require_comparable
from caplore.report.results import Result, read_result

QUANTITIES = ("loss", "reward", "entropy", "length", "distance")
NOT_KNOBS = {"data", "to", "start", "seed", "device", "encoder", "name"}
"""Settings that name places and machines, or that a result states by itself."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Phase:
    """One phase's curves: quantity -> (step since the phase began, value)."""

    sequence: bool
    curves: dict[str, tuple[Point, ...]]


@dataclass(frozen=True)
class Log:
    phases: tuple[Phase, ...] = ()
    stopped: str = ""
    """Why training was stopped early, where it was."""
    unmoved: bool = False
    """No epoch of the sequence phase was better than the model it began with: that one was evaluated."""


@dataclass(frozen=True)
class Run:
    path: Path
    record: dict[str, Any]
    result: Result
    log: Log

    @property
    def data(self) -> str:
        """The data set's folder as evaluation or training was given it; empty where it is not recorded."""
        return self.result.data or str(self.record.get("data") or "")


def load(paths: Sequence[Path], split: str) -> list[Run]:
    """The runs at these paths; a folder of runs stands for all of them. All can stand in one report."""
    folders = [folder for path in paths for folder in _expanded(Path(path))]
    folders = list({folder.resolve(): folder for folder in folders}.values())
    _require_results(folders, split)
    runs = [_load(folder, split) for folder in folders]
    require_comparable([run.result for run in runs])
    return runs


def _expanded(path: Path) -> list[Path]:
    if (path / "run.json").is_file():
        return [path]
    if not path.exists():
        raise InputError(
            f"there is no run folder {path}", fix="check the path; caplore train writes run folders"
        )
    inside = sorted(p.parent for p in path.glob("*/run.json")) if path.is_dir() else []
    if not inside:
        raise InputError(
            f"{path} is not a run folder: it has no run.json, and no folder in it has one",
            fix="name the folders that caplore train wrote (its --to)",
        )
    return inside


def _result_path(folder: Path, split: str) -> Path:
    return folder / "results" / f"{split}.json"


def _require_results(folders: Sequence[Path], split: str) -> None:
    """Name every run that was not evaluated on this split, and the commands that would."""
    missing = [folder for folder in folders if not _result_path(folder, split).is_file()]
    if not missing:
        return
    names = ", ".join(map(str, missing))
    commands = "\n       ".join(f"caplore evaluate {folder} --split {split}" for folder in missing)
    others = [{p.stem for p in folder.glob("results/*.json")} for folder in folders]
    common = sorted(set.intersection(*others))
    hint = f"\n       or report a split they all have: --split {common[0]}" if common else ""
    raise InputError(
        f"{len(missing)} of {len(folders)} runs have no results for split {split!r}: {names}",
        fix=commands + hint,
    )


def _load(folder: Path, split: str) -> Run:
    record = read_json(folder / "run.json", "run")
    if not isinstance(record, dict):
        raise InputError(f"{folder}/run.json is not a JSON object")
    result = read_result(_result_path(folder, split))
    if result.split != split:
        raise InputError(
            f"{result.where} says it is about split {result.split!r}",
            fix=f"caplore evaluate {folder} --split {split} writes it anew",
        )
    knobs = tuple(_flat(record.get("config") or {}))
    log = folder / "log.jsonl"
    return Run(
        folder,
        record,
        replace(result, knobs=knobs, path=str(folder)),
        read_log(log) if log.is_file() else Log(),
    )


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Settings as sorted (dotted name, text) pairs, without those that only say where a run was made."""
    for key in sorted(settings):
        value = settings[key]
        if key in NOT_KNOBS:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def read_log(path: Path) -> Log:
    """Curves by phase, steps counted from each phase's first line."""
    lines = [line for _, line in read_jsonl(path, "log")]
    stopped = [str(line.get("why") or "no reason given") for line in lines if line.get("event") == "stopped"]
    best = [
        line.get("epoch") for line in lines if line.get("phase") == "sequence" and line.get("best") is True
    ]
    phases: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if isinstance(line.get("step"), int) and line.get("event") in (None, "validation"):
            phases.setdefault(str(line.get("phase")), []).append(line)
    curves = tuple(_phase(name, found) for name, found in phases.items())
    return Log(curves, stopped[-1] if stopped else "", unmoved=best == [0])


def _phase(name: str, lines: Sequence[dict[str, Any]]) -> Phase:
    first = min(line["step"] for line in lines)
    steps = [line for line in lines if "event" not in line]
    validations = [line for line in lines if "event" in line]
    curves = {q: _curve(((line["step"], line.get(q)) for line in steps), first) for q in QUANTITIES}
    curves["validation"] = _curve(((line["step"], _cider(line)) for line in validations), first)
    return Phase(name != "xe", {quantity: curve for quantity, curve in curves.items() if curve})


def _curve(pairs: Iterable[tuple[int, Any]], first: int) -> tuple[Point, ...]:
    numbers = (
        (step, value) for step, value in pairs if isinstance(value, (int, float)) and math.isfinite(value)
    )
    return tuple((float(step - first), float(value)) for step, value in numbers)


def _cider(line: dict[str, Any]) -> Any:
    """A validation's CIDEr-D, a bare number or a value with its signature."""
    score = line.get("cider_d")
    return score.get("value") if isinstance(score, dict) else score
