"""A captioner that must not say certain things: wrap any model in it, and decode as before."""

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.models.protocol import BOS, EOS, Captioner, Features, State, shift_right


class Forbidding:
    """The model's distribution with some words taken out, and the rest made to sum to one again.

    `words` are never said (UNK, say); no caption ends right after one of `endings` ("a", "of", "with");
    with `repeats` off, no word follows itself. The limit may still cut a caption after any word.
    Log-probabilities that a decoder returns are those of this distribution.
    """

    def __init__(
        self,
        model: Captioner,
        vocab: int,
        *,
        words: Iterable[int] = (),
        endings: Iterable[int] = (),
        repeats: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model
        self.never = _among(words, vocab, device)
        self.before_end = _among(endings, vocab, device)
        self.repeats = repeats
        if self.never[EOS]:
            raise ValueError("the end of a caption (id 0) cannot be forbidden")

    def begin(self, features: Features) -> State:
        return self.model.begin(features)

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocab"], State]:
        logits, state = self.model.step(tokens, state)
        return self._without(logits, tokens), state

    def forward(
        self, features: Features, tokens: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time vocab"]:
        return self._without(self.model(features, tokens), shift_right(tokens))

    __call__ = forward

    def _without(
        self, logits: Float[Tensor, "*rows vocab"], previous: Int[Tensor, "*rows"]
    ) -> Float[Tensor, "*rows vocab"]:
        logits = logits.masked_fill(self.never, -torch.inf)
        if not self.repeats:
            previous_logit = logits.gather(-1, previous[..., None])
            cost = previous_logit.masked_fill(previous[..., None] > BOS, -torch.inf)
            logits = logits.scatter(-1, previous[..., None], cost)
        end = logits[..., EOS].masked_fill(self.before_end[previous], -torch.inf)
        return torch.cat([end[..., None], logits[..., 1:]], dim=-1)


def _among(ids: Iterable[int], vocab: int, device: torch.device | str) -> Tensor:
    found = torch.zeros(vocab, dtype=torch.bool)
    found[list(ids)] = True
    return found.to(device)
