"""Sequence-level learning: ascend E[score(y)], which is the generalized precision of the model.

    GP = sum_y Delta(y, Y) p(y|x)

The gradient is E[(Delta(y) - b) grad log p(y|x)] for any baseline b that does not depend on y.
"""

from jaxtyping import Float
from torch import Tensor


def rest_mean(x: Float[Tensor, "images samples"]) -> Float[Tensor, "images samples"]:
    """For each sample, the mean of the *other* samples of its image."""
    samples = x.shape[1]
    if samples < 2:
        raise ValueError(f"the mean of the rest needs at least 2 samples per image, got {samples}")
    return (x.sum(1, keepdim=True) - x) / (samples - 1)


def sll_advantage(
    score: Float[Tensor, "images samples"], greedy_score: Float[Tensor, " images"] | None = None
) -> Float[Tensor, "images samples"]:
    """A_j = Delta_j - b: b is the score of the greedy caption (self-critical), or the rest's mean without one."""
    return score - (rest_mean(score) if greedy_score is None else greedy_score[:, None])
