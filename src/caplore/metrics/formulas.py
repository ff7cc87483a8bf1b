"""The formulas that turn counts into scores, each in one place, for numpy arrays and torch tensors alike.

Evaluation holds its numbers in numpy, the reward in torch on any device. What both compute is arithmetic and the
functions `log` and `exp`, which the caller gives: `bleu(rows, log=np.log, exp=np.exp)`. Nothing here imports either.
"""

from collections.abc import Callable
from typing import Any

Numbers = Any
"""A numpy array or a torch tensor; the axes are those of the last line of a docstring."""
Each = Callable[[Numbers], Numbers]

ORDERS = 4  # n-grams of up to four words
TINY, SMALL = 1e-15, 1e-9  # BLEU's smoothing in coco-caption: of matches, of totals
STATISTICS = 2 * ORDERS + 2  # BLEU's numbers: matches, totals, length, closest reference length
BETA = 1.2  # ROUGE-L's weight of recall
SCALE = 10.0  # of CIDEr and CIDEr-D
SIGMA = 6.0  # CIDEr-D's price of lengths that differ


def bleu(statistics: Numbers, *, log: Each, exp: Each) -> Numbers:
    """BLEU-1 .. BLEU-4 of one caption's numbers, or of their sums over a corpus: [..., statistics] -> [..., orders]."""
    matches, totals = statistics[..., :ORDERS], statistics[..., ORDERS : 2 * ORDERS]
    length, closest = statistics[..., -2:-1], statistics[..., -1:]
    logs = log((matches + TINY) / (totals + SMALL)).cumsum(-1)
    orders = (totals >= 0).cumsum(-1)  # 1, 2, 3, 4, wherever the statistics are
    brevity = 1 - 1 / ((length + TINY) / (closest + SMALL))
    return exp(logs / orders + brevity * (brevity < 0))


def mbleu(sums: Numbers, *, log: Each, exp: Each) -> Numbers:
    """mBLEU-1 .. 4 from the sums over images of each slot's numbers: corpus BLEU of each slot, then their mean.

    A slot that no image fills does not count. [..., slots x statistics] -> [..., orders]
    """
    slots = sums.reshape(*sums.shape[:-1], -1, STATISTICS)
    filled = (slots[..., -2:] > 0).any(-1)
    scores = bleu(slots, log=log, exp=exp) * filled[..., None]
    return scores.sum(-2) / _or_one(filled.sum(-1))[..., None]


def rouge_l(precision: Numbers, recall: Numbers) -> Numbers:
    """(1 + beta^2) P R / (R + beta^2 P); 0 where both are."""
    return (1 + BETA**2) * precision * recall / _or_one(recall + BETA**2 * precision)


def f1(precision: Numbers, recall: Numbers) -> Numbers:
    return 2 * precision * recall / _or_one(precision + recall)


def self_cider(eigenvalues: Numbers, size: Numbers, *, log: Each) -> Numbers:
    """-log( sqrt(l_1) / sum_i sqrt(l_i) ) / log(size), eigenvalues ascending; 0 of one caption. [..., n] -> [...]"""
    roots = (eigenvalues * (eigenvalues > 0)) ** 0.5
    share = roots[..., -1] / _or_one(roots.sum(-1))
    return (0 - log(_or_one(share))) / log(size + 2 * (size < 2))


def vendi(eigenvalues: Numbers, size: Numbers, *, log: Each, exp: Each) -> Numbers:
    """exp(-sum_i l_i log l_i) of the eigenvalues / size: the effective number of captions. [..., n] -> [...]"""
    shares = eigenvalues * (eigenvalues > 0) / _or_one(size)[..., None]
    return exp(0 - (shares * log(_or_one(shares))).sum(-1))


def _or_one(values: Numbers) -> Numbers:
    """1 in place of 0: a divisor that leaves 0 / 0 at 0, a logarithm's argument that gives 0 log 0 = 0."""
    return values + (values == 0)
