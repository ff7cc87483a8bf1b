"""Delta: how right a sampled caption is, from token ids, on the device."""

from typing import Any, Protocol, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.metrics.cider import CiderD, References
from caplore.metrics.ngrams import DocumentFrequencies
from caplore.training.examples import Examples

Tree = TypeVar("Tree", bound=Any)


class Reward(Protocol):
    """Any score of captions against what is known of their inputs."""

    @property
    def signature(self) -> str: ...

    def score(
        self, captions: Int[Tensor, "images samples time"], index: Int[Tensor, " images"]
    ) -> Float[Tensor, "images samples"]:
        """The score of each caption of the inputs `index`."""
        ...


class CiderReward:
    """CIDEr-D, 0..10, with the end of sentence counted as a word and document frequencies of the training split.

    Without the end in the count, sequence-level learning learns to stop in the middle ("... on a").
    """

    def __init__(self, examples: Examples, *, vocab: int) -> None:
        df = DocumentFrequencies.from_references(
            examples.references, examples.there, vocab=vocab, count_eos=True
        )
        self._metric = CiderD(df)
        self._references = self._metric.prepare(examples.references, examples.there)

    @property
    def signature(self) -> str:
        return self._metric.signature

    def score(
        self, captions: Int[Tensor, "images samples time"], index: Int[Tensor, " images"]
    ) -> Float[Tensor, "images samples"]:
        return self._metric.score(captions, select(self._references, index))


def select(references: References, index: Int[Tensor, " images"]) -> References:
    """The references of some images."""
    return _map(references, index)


def _map(part: Tree, index: Tensor) -> Tree:
    if isinstance(part, Tensor):
        return torch.index_select(part, 0, index)
    return type(part)(*(_map(p, index) for p in part))
