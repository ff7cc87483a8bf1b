"""Ours against the field's, as ratios: `python -m bench [names]`. Agreement stands beside speed in every row."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One line of a table. `reference` None: not run, and `note` says why."""

    what: str
    ours: float
    reference: float | None = None
    unit: str = "s"
    difference: float | None = None
    note: str = ""


def attempted(what: str, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows; where making them fails, a last one that says why, so that other rows still come."""
    try:
        yield from rows
    except Exception as error:
        why = next(iter(str(error).splitlines()), "")
        yield Row(what, float("nan"), note=f"failed: {type(error).__name__}: {why[:200]}")


def fastest(work: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of several runs, after one that is not counted."""
    work()
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


def in_turns(
    works: Sequence[Callable[[], Any]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """`fastest` of each, one after the other again and again, so that all have the machine's good and bad minutes.

    With `time.process_time` as the clock it is the processor's time, whatever else the machine has to do.
    """
    best = [float("inf")] * len(works)
    for turn in range(repeats + 1):
        for i, work in enumerate(works):
            begun = clock()
            work()
            took = clock() - begun
            best[i] = min(best[i], took) if turn else best[i]
    return best
