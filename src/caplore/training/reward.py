"""Delta: how right a sampled caption is, from token ids, on the device."""

from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.metrics.cider import CiderD, References
from caplore.metrics.ngrams import DocumentFrequencies
from caplore.training.examples import Examples


class Reward(Protocol):
    """Any score of captions against what is known of their inputs."""

    @property
    def signature(self) -> str: ...

    def score(
        self, captions: Int[Tensor, "images samples time"], index: Int[Tensor, " images"]
    ) -> Float[Tensor, "images samples"]:
        """The score of each caption of the inputs `index`."""
        ...

    def to_references(
        self, captions: Int[Tensor, "images samples time"], index: Int[Tensor, " images"]
    ) -> Float[Tensor, "images samples refs"]:
        """The score against each single reference; -inf for one that is not there."""
        ...

    def among(self, captions: Int[Tensor, "images samples time"]) -> Float[Tensor, "images samples samples"]:
        """How alike the captions of a set are, 0 .. 1, symmetric, 1 with itself."""
        ...


class CiderReward:
    """CIDEr-D, 0..10, with the end of sentence counted as a word and document frequencies of the training split.

    Without the end in the count, sequence-level learning learns to stop in the middle ("... on a").
    """

    def __init__(self, examples: Examples, *, vocab: int) -> None:
        df = DocumentFrequencies.from_references(
            examples.references, examples.there, vocab=vocab, count_eos=True
        )
        self.metric = CiderD(df)
        self.references = self.metric.prepare(examples.references, examples.there)

    @property
    def signature(self) -> str:
        return self.metric.signature

    def score(
        self, captions: Int[Tensor, "images samples time"], index: Int[Tensor, " images"]
    ) -> Float[Tensor, "images samples"]:
        return self.metric.score(captions, select(self.references, index))

    def to_references(
        self, captions: Int[Tensor, "images samples time"], index: Int[Tensor, " images"]
    ) -> Float[Tensor, "images samples refs"]:
        chosen = select(self.references, index)
        return self.metric.similarity(captions, chosen).masked_fill(chosen.share[:, None] == 0, -torch.inf)

    def among(self, captions: Int[Tensor, "images samples time"]) -> Float[Tensor, "images samples samples"]:
        there = torch.ones(captions.shape[:2], dtype=torch.bool, device=captions.device)
        kernel = self.metric.similarity(captions, self.metric.prepare(captions, there)) / 10
        kernel = (kernel + kernel.transpose(1, 2)) / 2
        same = torch.eye(captions.shape[1], dtype=torch.bool, device=captions.device)
        return kernel.masked_fill(same, 1.0)


def select(references: References, index: Int[Tensor, " images"]) -> References:
    """The references of some images."""
    chosen: References = _map(references, index)
    return chosen


def _map(part: Any, index: Tensor) -> Any:
    if isinstance(part, Tensor):
        return torch.index_select(part, 0, index)
    return type(part)(*(_map(p, index) for p in part))
