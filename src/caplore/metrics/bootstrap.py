"""From numbers that add up to scores, intervals and tests, without scoring a caption twice.

Every corpus score is a function of the sum over inputs of a row of numbers: a mean is sum / inputs, BLEU a function of
summed matches and lengths. A resample of the inputs is then a sum with other weights, so a thousand of them are one
matrix product. Axes: inputs (images or clips), columns, draws.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from caplore.metrics.bleu import bleu
from caplore.metrics.diversity import mbleu

Sums = Float[Tensor, "*draws columns"]
Counts = Float[Tensor, "*#draws"]  # one number for all draws, or one for each

_ELEMENTS = 2**24


def _mean(sums: Sums, inputs: Counts) -> Counts:
    return sums[..., 0] / inputs


def _ratio(sums: Sums, inputs: Counts) -> Counts:
    return sums[..., 0] / sums[..., 1]


def _meteor(sums: Sums, inputs: Counts) -> Counts:
    from caplore.metrics.meteor import score

    return torch.from_numpy(np.asarray(score(sums.numpy())))


def _order(score: Callable[[Tensor], Tensor], n: int) -> Callable[[Sums, Counts], Counts]:
    return lambda sums, inputs: score(sums)[..., n - 1]


AGGREGATES: dict[str, Callable[[Sums, Counts], Counts]] = {
    "mean": _mean,  # of the first column over inputs
    "ratio": _ratio,  # of the first two columns' sums
    "meteor": _meteor,
    **{f"bleu_{n}": _order(bleu, n) for n in (1, 2, 3, 4)},
    **{f"mbleu_{n}": _order(mbleu, n) for n in (1, 2, 3, 4)},
}
"""How sums become a score, by the name that is stored with them."""


@dataclass(frozen=True)
class Statistics:
    """One row of numbers per input, and the name of what makes a score of their sums."""

    rows: Float[Tensor, "inputs columns"]
    aggregate: str

    @property
    def value(self) -> float:
        """The score of all inputs; nan where there are none."""
        return float(
            AGGREGATES[self.aggregate](self.rows.double().sum(0), torch.tensor(float(len(self.rows))))
        )


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
    a, b = ours.rows.double(), theirs.rows.double()
    inputs = torch.tensor(float(len(a)), dtype=torch.double)
    seen = (score(a.sum(0), inputs) - score(b.sum(0), inputs)).abs()
    rng = torch.Generator().manual_seed(seed)
    as_large = 0
    for some in _split(draws, len(a)):
        swapped = torch.randint(2, (some, len(a)), generator=rng, dtype=torch.uint8).double()
        moved = swapped @ (b - a)
        differences = score(a.sum(0) + moved, inputs) - score(b.sum(0) - moved, inputs)
        as_large += int((differences.abs() >= seen - 1e-12).sum())  # a swap that changes nothing counts
    return (1 + as_large) / (1 + draws)


def _resampled(systems: list[Statistics], draws: int, seed: int) -> list[Float[Tensor, " draws"]]:
    """The scores of the same draws for each system; those that share their rows share the sums."""
    if not systems:
        return []
    inputs = len(systems[0].rows)
    rng = torch.Generator().manual_seed(seed)
    scores: list[list[Tensor]] = [[] for _ in systems]
    for some in _split(draws, inputs):
        drawn = torch.randint(inputs, (some, inputs), generator=rng)
        weights = torch.zeros(some, inputs, dtype=torch.double).scatter_add_(
            1, drawn, torch.ones((), dtype=torch.double).expand(some, inputs)
        )
        sums: dict[int, Tensor] = {}
        for of_system, system in zip(scores, systems, strict=True):
            if id(system.rows) not in sums:
                sums[id(system.rows)] = weights @ system.rows.double()
            of_system.append(AGGREGATES[system.aggregate](sums[id(system.rows)], torch.tensor(float(inputs))))
    return [torch.cat(of_system) for of_system in scores]


def _percentiles(scores: Float[Tensor, " draws"], level: float) -> Interval:
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.double)
    low, high = scores.double().quantile(ends).tolist()
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
