"""The numbers that scores are sums of, kept beside a result so that two results can be compared without rescoring.

`results/test.json` has `results/test.statistics.safetensors`: one float64 array [inputs, columns] for each set of
numbers (scores that are functions of the same numbers share one), the ids of the inputs, and for each score
which array it is made of and how (caplore.metrics.bootstrap.AGGREGATES). Scores of several ways of decoding
have names like `beam/cider_d`. Nothing in it can run, and no number in it is rounded.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from caplore.errors import InputError
from caplore.files import replacing

if TYPE_CHECKING:
    from caplore.metrics.bootstrap import Statistics

FORMAT = "caplore-statistics-1"


@dataclass(frozen=True)
class Kept:
    """What was kept: the inputs, and of each score their numbers, in the same order."""

    ids: list[str]
    scores: "dict[str, Statistics]"


@contextmanager
def naming_unwritable(path: str | Path) -> Iterator[None]:
    """A path that cannot be written to is a message, not a traceback."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror})",
            fix="name a file in a folder that you may write to",
        ) from None


def statistics_path(result: Path) -> Path:
    """Where the statistics of a result lie."""
    return Path(result).with_suffix(".statistics.safetensors")


def write_statistics(
    result: Path, ids: Sequence[str], groups: "Mapping[str, Mapping[str, Statistics]]"
) -> Path:
    """Keep the statistics of a result. `groups` are ways of decoding, or one that is called ""."""
    from safetensors.numpy import save_file

    arrays: dict[str, np.ndarray] = {"ids": np.frombuffer(json.dumps(list(ids)).encode(), dtype=np.uint8)}
    made_of: dict[str, tuple[str, str]] = {}
    for group, scores in groups.items():
        first_of: dict[int, str] = {}  # BLEU-1 .. BLEU-4 are made of the same numbers
        for name, statistics in scores.items():
            if len(statistics.rows) != len(ids):
                raise ValueError(f"{name} has {len(statistics.rows)} rows, there are {len(ids)} inputs")
            full = f"{group}/{name}" if group else name
            key = first_of.setdefault(id(statistics.rows), full)
            if key == full:
                arrays[key] = np.ascontiguousarray(statistics.rows, dtype=np.float64)
            made_of[full] = (key, statistics.aggregate)
    path = statistics_path(result)
    with replacing(path) as temporary:
        save_file(arrays, temporary, metadata={"format": FORMAT, "scores": json.dumps(made_of)})
    return path


def read_statistics(result: Path) -> Kept:
    """The statistics of a result; every score as it was when they were written."""
    from safetensors import SafetensorError, safe_open

    from caplore.metrics.bootstrap import AGGREGATES, Statistics

    path = statistics_path(result)
    if not path.is_file():
        raise InputError(
            f"{result} has no {path.name} beside it, and without it differences have no interval",
            fix="copy it along with the result, or score again with --json",
        )
    try:
        with safe_open(path, framework="numpy") as file:
            head = file.metadata() or {}
            if head.get("format") != FORMAT:
                raise InputError(f"{path} is not of the format {FORMAT}")
            ids = json.loads(file.get_tensor("ids").tobytes())
            made_of = json.loads(head["scores"])
            rows = {key: file.get_tensor(key) for key in {key for key, _ in made_of.values()}}
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error})", fix="score again with --json") from None
    scores = {name: Statistics(rows[key], aggregate) for name, (key, aggregate) in made_of.items()}
    for name, statistics in scores.items():
        if statistics.aggregate not in AGGREGATES or len(statistics.rows) != len(ids):
            raise InputError(
                f"{path} is damaged (its {name} has {len(statistics.rows)} rows of {len(ids)} inputs)"
            )
    return Kept(list(map(str, ids)), scores)
