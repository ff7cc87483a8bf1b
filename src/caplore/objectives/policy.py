"""From advantages to a loss: which tokens are the caption's own, and REINFORCE's surrogate."""

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

EOS = 0
Reduction = Literal["tokens", "captions"]

_CACHED = 2**19  # numbers: 2 MiB in float32


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
    return _ChosenLogprob.apply(logits.flatten(0, -2), tokens.flatten()).view(tokens.shape)


class _ChosenLogprob(torch.autograd.Function):
    """log softmax(z)[y] and its gradient, y's place less softmax(z), row by row.

    Logits are by far the largest tensor of a step. They are read once forward and once back, some rows at a time, so
    that what is made of them stays in the cache of a CPU; logits in bfloat16 are never whole in float32.
    """

    @staticmethod
    def forward(ctx: Any, logits: Float[Tensor, "words vocab"], tokens: Int[Tensor, " words"]) -> Tensor:
        log_sum = torch.cat([some.float().logsumexp(-1) for some in logits.split(_rows(logits))])
        ctx.save_for_backward(logits, tokens, log_sum)
        return logits.gather(-1, tokens[:, None]).squeeze(-1).float() - log_sum

    @staticmethod
    def backward(ctx: Any, push: Float[Tensor, " words"]) -> tuple[Tensor, None]:
        logits, tokens, log_sum = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        parts = (tensor.split(_rows(logits)) for tensor in (gradient, logits, tokens, log_sum, push))
        for into, some, chosen, total, weight in zip(*parts, strict=True):
            pushed = (some.float() - total[:, None]).exp_().mul_(-weight[:, None])
            into.copy_(pushed.scatter_add_(-1, chosen[:, None], weight[:, None]))
        return gradient, None


def _rows(logits: Float[Tensor, "words vocab"]) -> int:
    """How many rows at a time: a cache full of a CPU, all of them elsewhere."""
    return max(1, _CACHED // logits.shape[-1]) if logits.device.type == "cpu" else max(1, len(logits))


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
