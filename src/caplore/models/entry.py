"""Where features come into a model: checked against what it was built for, and standardised."""

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

    def fit(self, features: Float[Tensor, "inputs ..."]) -> None:
        """Take mean and spread from these (over inputs, and regions where there are some)."""
        rows = self._checked(features).flatten(0, -2)
        total = torch.zeros_like(self.mean, dtype=torch.float64)
        squares = torch.zeros_like(total)
        for part in rows.split(2**16):
            wide = part.double()
            total += wide.sum(0)
            squares += wide.square().sum(0)
        mean = total / len(rows)
        spread = (squares / len(rows) - mean.square()).clamp_min(0).sqrt()
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


def fit_entries(model: nn.Module, features: Features) -> None:
    """Standardise a new model's inputs by the features of its training split."""
    for part in model.modules():
        if isinstance(part, Entry):
            regions = part.what == "region"
            part.fit(
                features.regions if regions and features.regions is not None else pooled_vector(features)
            )
