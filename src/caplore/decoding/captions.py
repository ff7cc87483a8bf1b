"""What every decoder returns."""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor


class Captions(NamedTuple):
    """Captions as rows of ids, with the log-probability of each token.

    Time is the decoder's `max_words`: a caption has at most that many words, and its end (id 0) where there
    is room for it. A row without a 0 was cut. After the end all is 0: the ids, and the log-probabilities.
    """

    tokens: Int[Tensor, "images samples time"]
    token_logprob: Float[Tensor, "images samples time"]

    @property
    def logprob(self) -> Float[Tensor, "images samples"]:
        """log p(caption): the sum over its own tokens, the end included."""
        return self.token_logprob.sum(-1)

    def select(self, samples: Int[Tensor, "images chosen"]) -> "Captions":
        """These of each image's captions, in this order."""
        index = samples[..., None].expand(-1, -1, self.tokens.shape[-1])
        return Captions(self.tokens.gather(1, index), self.token_logprob.gather(1, index))


def first_of_its_kind(tokens: Int[Tensor, "images samples time"]) -> Bool[Tensor, "images samples"]:
    """Which captions of an image are not the same, word for word, as an earlier one of the image."""
    same = (tokens[:, :, None] == tokens[:, None]).all(dim=-1)  # images samples samples
    return ~same.tril(diagonal=-1).any(dim=-1)
