"""From numbers that add up to scores, intervals and tests, without scoring a caption twice.

Every corpus score is a function of the sum over inputs of a row of numbers: a mean is sum / inputs, BLEU a function of
summed matches and lengths. A resample of the inputs is then a sum with other weights, so a thousand of them are one
matrix product. Axes: inputs (images or clips), columns, draws.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caplore.metrics import formulas

Sums = NDArray[np.float64]  # [..., columns], ... being nothing or draws
Values = NDArray[np.float64]  # [...]

_ELEMENTS = 2**22  # numbers in an array of draws


def _mean(sums: Sums, inputs: int) -> Values:
    return _divided(sums[..., 0], inputs)


def _ratio(sums: Sums, inputs: int) -> Values:
    return _divided(sums[..., 0], sums[..., 1])


def _divided(values: Values, by: Any) -> Values:
    """nan of nothing, without a warning."""
    with np.errstate(invalid="ignore"):
        return np.divide(values, by)


def _meteor(sums: Sums, inputs: int) -> Values:
    from caplore.metrics.meteor import score

    return score(sums)


def _bleu(n: int) -> Callable[[Sums, int], Values]:
    return lambda sums, inputs: formulas.bleu(sums, log=np.log, exp=np.exp)[..., n - 1]


def _mbleu(n: int) -> Callable[[Sums, int], Values]:
    return lambda sums, inputs: formulas.mbleu(sums, log=np.log, exp=np.exp)[..., n - 1]


AGGREGATES: dict[str, Callable[[Sums, int], Values]] = {
    "mean": _mean,  # of the first column over inputs
    "ratio": _ratio,  # of the first two columns' sums
    "meteor": _meteor,
    **{f"bleu_{n}": _bleu(n) for n in (1, 2, 3, 4)},
    **{f"mbleu_{n}": _mbleu(n) for n in (1, 2, 3, 4)},
}
"""How sums become a score, by the name that is stored with them."""


@dataclass(frozen=True)
class Statistics:
    """One row of numbers per input, and the name of what makes a score of their sums."""

    rows: NDArray[np.float64]  # [inputs, columns]
    aggregate: str

    @property
    def value(self) -> float:
        """The score of all inputs; nan where there are none."""
        return float(AGGREGATES[self.aggregate](self.rows.sum(0), len(self.rows)))


@dataclass(frozen=True)
class Interval:
    """Between which values a score lies; `level` is how often such an interval holds the true one."""

    low: float
    high: float
    level: float
    draws: int


def bootstrap(statistics: Statistics, *, draws: int = 1000, level: float = 0.95, seed: int = 0) -> Interval:
    """The interval between percentiles of the score of inputs drawn anew with replacement (Efron, 1979)."""
    return _percentiles(_resampled([statistics], draws, seed)[0], level)


def bootstrap_all(
    scores: Mapping[str, Statistics], *, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, Interval]:
    """The same intervals for many scores of the same inputs, which are drawn once."""
    found = _resampled(list(scores.values()), draws, seed)
    return {name: _percentiles(of_draws, level) for name, of_draws in zip(scores, found, strict=True)}


def bootstrap_difference(
    ours: Statistics, theirs: Statistics, *, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The same for ours - theirs, both on the same draws of inputs: they must be rows of the same inputs."""
    _refuse_other_inputs(ours, theirs)
    first, second = _resampled([ours, theirs], draws, seed)
    return _percentiles(first - second, level)


def randomization_test(ours: Statistics, theirs: Statistics, *, draws: int = 10_000, seed: int = 0) -> float:
    """Paired approximate randomisation (Noreen, 1989): the two-sided p of "both systems are the same".

    If they are, swapping their captions of an input changes nothing; p is how often random swaps of half of the
    inputs give at least the difference that was seen, (1 + those) / (1 + draws).
    """
    _refuse_other_inputs(ours, theirs)
    score = AGGREGATES[ours.aggregate]
    inputs, ours_sum, theirs_sum = len(ours.rows), ours.rows.sum(0), theirs.rows.sum(0)
    seen = np.abs(score(ours_sum, inputs) - score(theirs_sum, inputs))
    rng = np.random.default_rng(seed)
    as_large = 0
    for some in _split(draws, inputs):
        moved = _coins(rng, some, inputs) @ (theirs.rows - ours.rows)
        differences = score(ours_sum + moved, inputs) - score(theirs_sum - moved, inputs)
        as_large += int((np.abs(differences) >= seen - 1e-12).sum())  # a swap that changes nothing counts
    return (1 + as_large) / (1 + draws)


def _coins(rng: "np.random.Generator", draws: int, inputs: int) -> NDArray[np.float64]:
    """0 or 1 for each input of each draw. Whole words of 64 bits a draw: the same however draws are cut into parts."""
    width = 8 * -(-inputs // 64)
    drawn = np.frombuffer(rng.bytes(draws * width), dtype=np.uint8).reshape(draws, width)
    return np.unpackbits(drawn, axis=1, count=inputs).astype(np.float64)


def _resampled(systems: list[Statistics], draws: int, seed: int) -> list[Values]:
    """The scores of the same draws for each system; those that share their rows share the sums."""
    if not systems:
        return []
    inputs = len(systems[0].rows)
    rng = np.random.default_rng(seed)
    scores: list[list[Values]] = [[] for _ in systems]
    for some in _split(draws, inputs):
        times = _times_drawn(rng, some, inputs)
        sums: dict[int, Sums] = {}
        for of_system, system in zip(scores, systems, strict=True):
            if id(system.rows) not in sums:
                sums[id(system.rows)] = times @ system.rows
            of_system.append(AGGREGATES[system.aggregate](sums[id(system.rows)], inputs))
    return [np.concatenate(of_system) for of_system in scores]


def _times_drawn(rng: "np.random.Generator", draws: int, inputs: int) -> NDArray[np.float64]:
    """How often each draw, which is of as many inputs as there are, has each of them."""
    drawn = rng.integers(inputs, size=(draws, inputs)) + np.arange(draws)[:, None] * inputs
    counts = np.bincount(drawn.ravel(), minlength=draws * inputs)
    return counts.reshape(draws, inputs).astype(np.float64)


def _percentiles(scores: Values, level: float) -> Interval:
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Interval(low, high, level, len(scores))


def _split(draws: int, inputs: int) -> list[int]:
    size = max(1, _ELEMENTS // max(1, inputs))
    return [min(size, draws - begin) for begin in range(0, draws, size)]


def _refuse_other_inputs(ours: Statistics, theirs: Statistics) -> None:
    if ours.rows.shape != theirs.rows.shape or ours.aggregate != theirs.aggregate:
        raise ValueError(
            f"paired statistics are of the same score on the same inputs, not {ours.aggregate} of "
            f"{list(ours.rows.shape)} and {theirs.aggregate} of {list(theirs.rows.shape)}"
        )
