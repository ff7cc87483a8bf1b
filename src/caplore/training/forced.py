"""Teacher forcing: the logits of the words of captions, given those before them.

Captions end at different times, so that half of a batch is padding. On a CPU, where to look costs nothing, little of it
is computed: images are put in groups by their longest caption, each group runs as many steps as it needs, and the
output layer meets the captions' own tokens only. On a GPU everything is computed, and the host is not asked.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from caplore.models import Model
from caplore.models.protocol import Features, Headed
from caplore.objectives.policy import own_tokens

GROUPS, FEWEST = 4, 16  # at most so many groups, of at least so many images


class Forced(NamedTuple):
    """Logits of the words at `places` of captions [images, captions, time] laid flat; of all, where that is None."""

    logits: Float[Tensor, "words vocab"]
    tokens: Int[Tensor, " words"]
    places: Int[Tensor, " words"] | None
    own: Bool[Tensor, "images captions time"]

    @property
    def mask(self) -> Bool[Tensor, " words"]:
        """Which of the words are captions' own tokens."""
        return self.own.flatten() if self.places is None else self.own.new_ones(len(self.tokens))

    def at_home(self, values: Float[Tensor, " words"]) -> Float[Tensor, "images captions time"]:
        """Put numbers of the words where the words stand; 0 where there is none."""
        if self.places is not None:
            values = values.new_zeros(self.own.numel()).index_copy(0, self.places, values)
        return values.view(self.own.shape)


def force(model: Model, features: Features, tokens: Int[Tensor, "images captions time"]) -> Forced:
    """Run the model over captions; each image is encoded once for all of its captions."""
    own = own_tokens(tokens)
    if tokens.device.type != "cpu":
        logits = model(features, tokens.flatten(0, 1))
        return Forced(logits.flatten(0, 1), tokens.flatten(), None, own)
    everywhere = torch.arange(tokens.numel()).view(tokens.shape)
    found, places = [], []
    for group, time in _groups(own):
        looked = Features(*(None if f is None else f[group] for f in features))
        part, mask = tokens[group, :, :time], own[group, :, :time]
        run = model.hidden if isinstance(model, Headed) else model
        found.append(run(looked, part.flatten(0, 1))[mask.flatten(0, 1)])
        places.append(everywhere[group, :, :time][mask])
    logits, at = torch.cat(found), torch.cat(places)
    if isinstance(model, Headed):
        logits = model.out(logits)
    return Forced(logits, tokens.flatten()[at], at, own)


def _groups(own: Bool[Tensor, "images captions time"]) -> Iterator[tuple[Int[Tensor, " some"], int]]:
    """Images whose captions are about as long, and how long the longest is."""
    longest = own.sum(-1).amax(-1)
    count = max(1, min(GROUPS, len(own) // FEWEST))
    for group in longest.argsort(stable=True).tensor_split(count):
        yield group.sort().values, int(longest[group].max())
