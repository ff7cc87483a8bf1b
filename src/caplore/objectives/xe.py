"""Word-level cross-entropy: the first phase of Algorithm 1."""

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from caplore.objectives.policy import gather_logprob


def xe_loss(
    logits: Float[Tensor, "rows time vocab"],
    tokens: Int[Tensor, "rows time"],
    mask: Bool[Tensor, "rows time"],
    *,
    label_smoothing: float = 0.0,
    count: Float[Tensor, ""] | None = None,
) -> Float[Tensor, ""]:
    """-log p(token) averaged over the captions' own tokens, the end of sentence among them.

    `count` replaces the number of own tokens, for batches that are spread over several processes.
    """
    if label_smoothing == 0:
        losses = -gather_logprob(logits, tokens)
    else:
        losses = cross_entropy(
            logits.float().flatten(0, 1), tokens.flatten(), reduction="none", label_smoothing=label_smoothing
        ).view_as(tokens)
    total = losses.masked_fill(~mask, 0.0).sum()
    return total / (mask.sum().float() if count is None else count)
