"""What every captioner can do. Axes: rows (images, or images x samples, flat), time, vocab, regions, dim.

    begin(features) -> state                  once per image
    step(tokens, state) -> logits, state      one word further, for decoding; never any dropout
    forward(features, tokens) -> logits       all words at once, for the gradient

The three agree to float tolerance, and tests/models say so. A state is a tuple of tensors whose first
axis is rows, so any decoder can repeat, reorder and cut it without knowing what is inside.

The last thing a model here does is one linear layer over the vocabulary, by far its largest tensor. `Headed`
models show what comes before it, so that training computes logits of the captions' own tokens only, and can
join the layer with the loss:

    advance(tokens, state) -> output, state   step = out of it
    hidden(features, tokens) -> outputs       forward = out of it
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

EOS, BOS = 0, 1  # as caplore.text.vocabulary; models may not import it, tests/test_layers.py compares them

State = tuple[Tensor, ...]


class Features(NamedTuple):
    """What an encoder said of some images: one vector each, region vectors each, or both."""

    pooled: Float[Tensor, "rows pooled_dim"] | None
    regions: Float[Tensor, "rows regions region_dim"] | None

    @property
    def rows(self) -> int:
        present = self.pooled if self.pooled is not None else self.regions
        assert present is not None, "features have a pooled vector, regions, or both"
        return len(present)


@runtime_checkable  # for those who check shapes at run time
class Captioner(Protocol):
    """Any encoder-decoder; see the module's docstring."""

    def begin(self, features: Features) -> State: ...

    def step(
        self, tokens: Int[Tensor, " rows"], state: State
    ) -> tuple[Float[Tensor, "rows vocab"], State]: ...

    def forward(
        self, features: Features, tokens: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time vocab"]:
        """Logits of tokens[:, t] given the features and tokens[:, :t]; tokens have no BOS.

        Several captions of an image may share its row of the features: with k times as many rows of tokens
        as of features, rows i*k to i*k + k - 1 are captions of image i, and the image is encoded once.
        """
        ...

    def __call__(
        self, features: Features, tokens: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time vocab"]: ...


@runtime_checkable
class Headed(Captioner, Protocol):
    """A captioner whose logits are one linear layer of its outputs."""

    out: nn.Linear

    def advance(
        self, tokens: Int[Tensor, " rows"], state: State
    ) -> tuple[Float[Tensor, "rows dim"], State]: ...

    def hidden(
        self, features: Features, tokens: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time dim"]: ...


def repeat_state(state: State, times: int) -> State:
    """Each row `times` times, next to itself."""
    return tuple(part.repeat_interleave(times, dim=0) for part in state)


def select_state(state: State, rows: Int[Tensor, " chosen"]) -> State:
    return tuple(part.index_select(0, rows) for part in state)


def repeat_features(features: Features, times: int) -> Features:
    return Features(*(None if f is None else f.repeat_interleave(times, dim=0) for f in features))


def spread(state: State, rows: int) -> State:
    """The state of each image, for all the rows of captions it has."""
    images = len(state[0])
    if rows % images:
        raise ValueError(f"{rows} captions cannot be shared out evenly to {images} images")
    return state if rows == images else repeat_state(state, rows // images)


def shift_right(tokens: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
    """What the decoder reads: BOS, then all tokens but the last."""
    return torch.cat([tokens.new_full((len(tokens), 1), BOS), tokens[:, :-1]], dim=1)


def pooled_vector(features: Features) -> Float[Tensor, "rows pooled_dim"]:
    """The one vector of each image: the encoder's own, or the mean of its regions where it gave none."""
    if features.pooled is not None:
        return features.pooled
    assert features.regions is not None, "features have a pooled vector, regions, or both"
    return features.regions.mean(dim=1)
