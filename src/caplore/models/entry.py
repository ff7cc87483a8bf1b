"""Where features come into a model: checked against what it was built for, and standardised."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from caplore.errors import InputError
from caplore.models.protocol import Features, pooled_vector

_CONSTANT = (
    1e-4  # a dimension that varies less than this (of the mean spread) says nothing: it is only centred
)


class Entry(nn.Module):
    """(x - mean) / spread of each dimension over the training split; x itself until `fit`.

    Encoders differ in scale by orders of magnitude. The two vectors travel with the weights, so a model
    takes an encoder's features as they are stored, wherever it runs.
    """

    mean: Tensor
    rate: Tensor

    def __init__(self, what: str, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.what = what
        self.shape = tuple(shape)
        self.register_buffer("mean", torch.zeros(self.shape[-1]))
        self.register_buffer("rate", torch.ones(self.shape[-1]))

    def rows_of(self, features: Features) -> Float[Tensor, "rows dim"]:
        """What comes in here of these features: a row for each input, and region where there are some."""
        regions = self.what == "region" and features.regions is not None
        return self._checked(features.regions if regions else pooled_vector(features)).flatten(0, -2)

    def fit(self, moments: "Moments") -> None:
        mean, spread = moments.mean_and_spread()
        varies = spread > _CONSTANT * spread.mean()
        self.mean.copy_(mean)
        self.rate.copy_(torch.where(varies, 1 / spread.clamp_min(1e-12), 1.0))

    def forward(self, features: Tensor | None) -> Tensor:
        return (self._checked(features).to(self.mean.dtype) - self.mean) * self.rate

    def _checked(self, features: Tensor | None) -> Tensor:
        shape = None if features is None else tuple(features.shape[1:])
        if features is None or shape != self.shape:
            have = "these have none" if features is None else f"these are {list(features.shape[1:])}"
            raise InputError(
                f"the model was built for {self.what} features of shape {list(self.shape)}, but {have}",
                fix="give the features of the encoder that the model was trained with",
            )
        return features


class Moments:
    """How many rows there were, their sum and the sum of their squares: added up part by part, in float64."""

    def __init__(self, entry: Entry) -> None:
        self.rows = 0
        self.total = torch.zeros_like(entry.mean, dtype=torch.float64)
        self.squares = torch.zeros_like(self.total)

    def add(self, rows: Float[Tensor, "rows dim"]) -> None:
        self.rows += len(rows)
        for part in rows.split(2**16):
            wide = part.double()
            self.total += wide.sum(0)
            self.squares += wide.square().sum(0)

    def mean_and_spread(self) -> tuple[Float[Tensor, " dim"], Float[Tensor, " dim"]]:
        mean = self.total / self.rows
        return mean, (self.squares / self.rows - mean.square()).clamp_min(0).sqrt()


def fit_entries(model: nn.Module, parts: Iterable[Features]) -> None:
    """Standardise a new model's inputs by the features of its training split, which come in parts."""
    seen = {entry: Moments(entry) for entry in model.modules() if isinstance(entry, Entry)}
    for features in parts:
        for entry, moments in seen.items():
            moments.add(entry.rows_of(features))
    for entry, moments in seen.items():
        entry.fit(moments)
