"""Ours against the field's, as ratios: `python -m bench [names]`. Agreement stands beside speed in every row."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One line of a table. `reference` None: not run, and `note` says why."""

    what: str
    ours: float
    reference: float | None = None
    unit: str = "s"
    difference: float | None = None
    note: str = ""


def fastest(work: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of several runs, after one that is not counted."""
    work()
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best
