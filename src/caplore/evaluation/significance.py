"""Two objectives over several seeds: one difference per score, with its interval and significance.

The numbers kept for each input are averaged over seeds first, so a test asks about the objectives as
they were trained, over the inputs of the split; how much seeds differ is the tables' spread.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from caplore.errors import InputError
from caplore.evaluation.comparison import Difference, Stored, read_result

MEASURES = (
    "beam/cider_d",
    "beam/meteor",
    "beam/spice",
    "rs/cider_d",
    "rs/oracle_cider_d",
    "rs/div_2",
    "rs/mbleu_4",
    "bs/oracle_cider_d",
)


def pooled_differences(
    first: Sequence[Path],
    second: Sequence[Path],
    *,
    names: Sequence[str] = MEASURES,
    draws: int = 1000,
    swaps: int = 10_000,
    seed: int = 0,
) -> list[Difference]:
    """First less second for each score that all results have; paired by input."""
    from caplore.metrics.bootstrap import Statistics, bootstrap_difference, randomization_test

    ours, theirs = [read_result(path) for path in first], [read_result(path) for path in second]
    _require_same_inputs([*ours, *theirs])
    found = []
    for name in names:
        if not all(name in stored.kept.scores for stored in (*ours, *theirs)):
            continue
        a, b = (
            Statistics(
                np.mean([s.kept.scores[name].rows for s in side], axis=0),
                side[0].kept.scores[name].aggregate,
            )
            for side in (ours, theirs)
        )
        interval = bootstrap_difference(a, b, draws=draws, seed=seed)
        p = randomization_test(a, b, draws=swaps, seed=seed)
        found.append(Difference(name, a.value, b.value, a.value - b.value, (interval.low, interval.high), p))
    return found


def _require_same_inputs(results: Sequence[Stored]) -> None:
    for stored in results[1:]:
        if stored.kept.ids != results[0].kept.ids:
            raise InputError(
                f"{stored.path} and {results[0].path} are of different inputs",
                fix="evaluate all runs on the same split of the same data set",
            )
