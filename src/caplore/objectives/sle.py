"""SLL-SLE: be right, and be different (Chen and Jin, CVPR 2020).

    maximise  alpha * sum_y Delta(y) p(y|x)  +  (1 - alpha) * sum_y sum_y' d(y, y') p(y|x) p(y'|x)

REINFORCE on both expectations gives each sample a second "reward": twice its mean distance to the
others. Twice, because a caption takes part in E[d(y, y')] as y and as y'.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Estimator = Literal["paper", "unbiased"]


def diversity_advantage(
    distance: Float[Tensor, "images samples samples"], *, estimator: Estimator = "paper"
) -> Float[Tensor, "images samples"]:
    """2 (D_j - b): how much further than usual caption j lies from the others. `distance` is symmetric.

        paper      D_j = (1/s) sum_k d_jk (self included), b = (1/s^2) sum_jk d_jk
        unbiased   D_j = mean over k != j,                 b = mean over the pairs without j

    The paper's b contains d_jk itself, which shrinks the expected gradient: with the (1/s) above to
    (1 - 1/s)(1 - 2/s) of it, .48 at s = 5, and to zero at s = 2. tests/objectives enumerates every
    draw of a toy policy to show both.
    """
    samples = distance.shape[1]
    if estimator == "paper":
        return 2 * (distance.mean(-1) - distance.mean((-1, -2))[:, None])
    if samples < 3:
        raise ValueError(
            f"the unbiased estimator needs at least 3 samples per image, got {samples}: "
            "the baseline of each sample is the distance between two others"
        )
    off_diagonal = distance * ~torch.eye(samples, dtype=torch.bool, device=distance.device)
    to_rest = off_diagonal.sum(-1)
    without = (to_rest.sum(1, keepdim=True) - 2 * to_rest) / ((samples - 1) * (samples - 2))
    return 2 * (to_rest / (samples - 1) - without)


def authors_diversity_advantage(
    joint_bleu: Float[Tensor, "images samples"], *, floor: float = -0.5
) -> Float[Tensor, "images samples"]:
    """2 (D_j - max(mean D, floor)), D_j = -BLEU of caption j against the others *jointly* as references.

    The first author's earlier public code for video (2018). While a set is varied this is centred on
    zero; when its captions are nearly the same the floor makes every advantage negative, a push
    against collapse.
    """
    spread = -joint_bleu
    return 2 * (spread - spread.mean(1, keepdim=True).clamp_min(floor))


def sle_advantage(
    precision: Float[Tensor, "images samples"], diversity: Float[Tensor, "images samples"], *, alpha: float
) -> Float[Tensor, "images samples"]:
    """alpha * precision + (1 - alpha) * diversity; both are advantages, their baselines taken off."""
    return alpha * precision + (1 - alpha) * diversity
