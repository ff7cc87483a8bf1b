"""Beyond the paper: objectives of the *set* of samples, through the same surrogate loss.

Two ways to turn a set function F(Y) into one advantage per sample:

    marginal   A_j = F(Y) - F(Y without j)     exact credit: what the set would lose with j
    max@k      the gradient of E[max of k scores], from s >= k samples (Walder and Karkhanis, 2025)

Both leave every other sample's draw untouched, so the estimators are unbiased up to constants.
"""

from collections.abc import Callable
from functools import cache
from math import comb

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.objectives.sll import sll_advantage


def marginal_advantage(
    similarity: Float[Tensor, "images samples other"],
    value: Callable[[Float[Tensor, "sets size other"]], Float[Tensor, " sets"]],
    *,
    square: bool,
) -> Float[Tensor, "images samples"]:
    """F(Y) - F(Y without j), for F a function of the samples' rows of a similarity tensor.

    `square`: the other axis is the samples too (distances within the set), so a sample leaves both axes;
    otherwise it is fixed (the references), and a sample leaves its row only.
    """
    images, samples, _ = similarity.shape
    if samples < 2:
        raise ValueError(f"a marginal reward needs at least 2 samples per image, got {samples}")
    whole = value(similarity)
    keep = _others(samples, similarity.device)
    without = similarity[:, keep]  # images samples samples-1 other
    if square:
        columns = keep[None, :, None, :].expand(images, samples, samples - 1, samples - 1)
        without = without.gather(-1, columns)
    return whole[:, None] - value(without.flatten(0, 1)).view(images, samples)


@cache
def _others(samples: int, device: torch.device) -> Int[Tensor, "samples rest"]:
    """For each sample, the places of the others. Kept: a CUDA graph may not bring constants from the host."""
    return torch.tensor([[k for k in range(samples) if k != j] for j in range(samples)], device=device)


def reference_recall(similarity: Float[Tensor, "sets size refs"]) -> Float[Tensor, " sets"]:
    """(1/M) sum_m max_i sim(y_i, ref_m): how much of what people said the set covers.

    References that are not there are -inf in every row and do not count.
    """
    best = similarity.max(1).values
    there = best > float("-inf")
    return best.masked_fill(~there, 0.0).sum(-1) / there.sum(-1).clamp_min(1)


def mean_distance(distance: Float[Tensor, "sets size size"]) -> Float[Tensor, " sets"]:
    """Mean distance of the distinct pairs of a set; 0 for a set of one."""
    size = distance.shape[-1]
    off = distance.sum((-1, -2)) - distance.diagonal(dim1=-2, dim2=-1).sum(-1)
    return off / max(size * (size - 1), 1)


def max_at_k_advantage(score: Float[Tensor, "images samples"], *, k: int) -> Float[Tensor, "images samples"]:
    """The gradient of E[max of k draws] from s samples, each sample's weight less its leave-one-out baseline.

    With F(Y) = the mean over all k-subsets of Y of their best score, the weight of j is
    sum over k-subsets that contain j of (max - max without j) / C(s-1, k-1): what j adds to the
    subsets it is in. It is never negative, zero for captions that are nowhere the best, and
    unbiased because the second maximum does not depend on j. Times k, because a caption takes part
    in E[max of k] as each of the k draws. k = 1 is the score less the mean of the rest.
    """
    samples = score.shape[1]
    if not 1 <= k <= samples:
        raise ValueError(f"max@k needs 1 <= k <= samples, got k={k}, samples={samples}")
    if k == 1:
        return sll_advantage(score)
    ordered, rank = score.sort(dim=1)
    # Sample i (from the worst) gains over m < i when m is the best of the other k-1: C(m, k-2) subsets below m.
    weights = _subset_shares(samples, k, score.dtype, score.device)
    gain = (ordered[:, :, None] - ordered[:, None, :]).clamp_min(0.0)  # [images, i, m], zero unless m < i
    return k * torch.zeros_like(score).scatter(1, rank, (gain * weights).sum(-1))


@cache
def _subset_shares(
    samples: int, k: int, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, " samples"]:
    """C(m, k-2) / C(s-1, k-1) for each rank m; kept, as `_others` is."""
    shares = [comb(m, k - 2) / comb(samples - 1, k - 1) for m in range(samples)]
    return torch.tensor(shares, dtype=dtype, device=device)
