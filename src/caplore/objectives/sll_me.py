"""SLL-ME: sequence-level learning plus the entropy of the next-word policy, differentiated directly."""

from jaxtyping import Bool, Float
from torch import Tensor


def token_entropy(logits: Float[Tensor, "*rows time vocab"]) -> Float[Tensor, "*rows time"]:
    """H(p(.|y_<t, x)) of every step, in nats."""
    logp = logits.float().log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)


def entropy_bonus(
    entropy: Float[Tensor, "*rows time"],
    mask: Bool[Tensor, "*rows time"],
    *,
    count: Float[Tensor, ""] | None = None,
) -> Float[Tensor, ""]:
    """Mean entropy over the captions' own tokens: subtract `weight * bonus` from the loss."""
    total = entropy.masked_fill(~mask, 0.0).sum()
    return total / (mask.sum().float() if count is None else count)
