"""What every decoder returns."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

EOS, BOS = 0, 1  # as in caplore.models.protocol


class Captions(NamedTuple):
    """Captions as rows of ids, with the log-probability of each token.

    Time is the decoder's `max_words`: a caption has at most that many words, and its end (id 0) where there is
    room for it. A row without a 0 was cut. After the end all is 0: the ids, and the log-probabilities.
    """

    tokens: Int[Tensor, "images samples time"]
    token_logprob: Float[Tensor, "images samples time"]

    @property
    def logprob(self) -> Float[Tensor, "images samples"]:
        """log p(caption): the sum over its own tokens, the end included."""
        return self.token_logprob.sum(-1)
