"""From advantages to a loss: which tokens are the caption's own, and REINFORCE's surrogate."""

from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor

EOS = 0
Reduction = Literal["tokens", "captions"]


def own_tokens(tokens: Int[Tensor, "*rows time"]) -> Bool[Tensor, "*rows time"]:
    """Every word and the first end of sentence; a caption that never ends owns its whole row."""
    before_end = (tokens != EOS).cumprod(-1).bool()
    # Shifting by one brings the end itself in: position t is ours while no end stands before t.
    mask = before_end.new_ones(tokens.shape)
    mask[..., 1:] = before_end[..., :-1]
    return mask


def gather_logprob(
    logits: Float[Tensor, "*rows time vocab"], tokens: Int[Tensor, "*rows time"]
) -> Float[Tensor, "*rows time"]:
    """log p of each token, in float32: the chosen logit less the log of the sum."""
    wide = logits.float()
    return wide.gather(-1, tokens[..., None]).squeeze(-1) - wide.logsumexp(-1)


def policy_loss(
    token_logprob: Float[Tensor, "images samples time"],
    mask: Bool[Tensor, "images samples time"],
    advantage: Float[Tensor, "images samples"],
    *,
    reduction: Reduction = "tokens",
    count: Float[Tensor, ""] | None = None,
) -> Float[Tensor, ""]:
    """REINFORCE: minimising this raises the probability of captions with a positive advantage.

        tokens     sum(-A log p mask) / sum(mask)     as the field's self-critical code does
        captions   mean over captions of -A log p(y)  the estimator as it is derived

    `count` replaces the denominator, for batches that are spread over several processes.
    """
    # masked_fill, not `* mask`: padding may hold -inf, and -inf * 0 is nan.
    own = token_logprob.masked_fill(~mask, 0.0).sum(-1)
    total = -(advantage.detach() * own).sum()
    return total / (denominator(mask, reduction) if count is None else count)


def denominator(mask: Bool[Tensor, "images samples time"], reduction: Reduction) -> Float[Tensor, ""]:
    """What `policy_loss` divides by: own tokens, or captions."""
    if reduction == "tokens":
        return mask.sum().float()
    return mask[..., 0].sum().float()
