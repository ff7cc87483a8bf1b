"""Exact figures of a model on an input whose correct captions Y are all known, from log p(y|x) of each.

Pure functions of one tensor; where the log-probabilities come from is evaluation's business.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def precision(logprob: Float[Tensor, " captions"]) -> Float[Tensor, ""]:
    """P(Y|x) = sum over Y of p(y|x): the generalized precision with membership of Y as the score."""
    return logprob.double().logsumexp(0).exp()


def expected_recall(logprob: Float[Tensor, " captions"], *, k: int) -> Float[Tensor, ""]:
    """How much of Y k draws cover: sum over Y of 1 - (1 - p(y|x))^k, divided by min(k, |Y|).

    The sum is the expected number of different correct captions among k; no k draws can have more than
    min(k, |Y|), so 1 is the best there is.
    """
    if k < 1:
        raise ValueError(f"expected recall at k needs k of at least 1, got {k}")
    p = logprob.double().exp().clamp(max=1.0)
    seen = -torch.expm1(k * torch.log1p(-p))  # 1 - (1 - p)^k, exact for small p; p = 1 gives 1
    return seen.sum() / min(k, max(len(p), 1))


def peak_width(logprob: Float[Tensor, " captions"]) -> Float[Tensor, ""]:
    """exp(H) of p restricted to Y and made to sum to 1: the effective number of correct captions. 0 where p(Y) is 0."""
    wide = logprob.double()
    share = (wide - wide.logsumexp(0)).exp().nan_to_num(0.0)
    width = (-torch.xlogy(share, share).sum()).exp()
    return torch.where(share.sum() > 0, width, 0.0)


def mass_by_rank(logprob: Float[Tensor, " captions"]) -> Float[Tensor, " captions"]:
    """Of p restricted to Y, the share that the r most probable captions hold together, r = 1 .. |Y|."""
    p = logprob.double().exp().sort(descending=True).values
    return p.cumsum(0) / p.sum().clamp_min(1e-300)
