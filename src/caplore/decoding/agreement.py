"""Which of several captions do the others agree with? Minimum Bayes risk, with any similarity."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def consensus(
    similarity: Float[Tensor, "images samples samples"],
    weight: Float[Tensor, "images samples"] | None = None,
) -> Float[Tensor, "images samples"]:
    """Expected similarity of each caption to the others of its image; the higher, the more they agree.

    similarity[i, j, k] says how well caption j would do if k were the truth (CIDEr-D, BLEU, ...). For samples
    of a model the plain mean estimates the expectation under it; for a beam, pass as `weight` the softmax of
    the log-probabilities. A caption's similarity to itself never counts.
    """
    others = 1 - torch.eye(similarity.shape[-1], device=similarity.device, dtype=similarity.dtype)
    weights = others if weight is None else others * weight[:, None]
    total = weights.sum(dim=-1)
    return (similarity * weights).sum(dim=-1) / total.where(total > 0, 1)  # a single caption has no others


def ranking(score: Float[Tensor, "images samples"]) -> Int[Tensor, "images samples"]:
    """Captions by falling score, ties in their order: for `Captions.select`."""
    return score.argsort(dim=1, descending=True, stable=True)
