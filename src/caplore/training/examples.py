"""A split of a data set as tensors on the device: features, references as ids, which references there are.

Reference words the model cannot say keep ids of their own (above the model's vocabulary): in a reward
or a validation score they match nothing, instead of matching an unknown-word token the model could
learn to emit. Cross-entropy sees them as UNK.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from caplore.data.dataset import Dataset
from caplore.errors import InputError
from caplore.features.store import FeatureStore, open_store
from caplore.models.protocol import Features
from caplore.text.ptb import tokenize_many
from caplore.text.vocabulary import UNK, Vocabulary, pack
from caplore.training.streaming import Batch, Streamed

NUMBERS = 2**24  # of features, looked at together
TokenLists = list[list[list[str]]]  # per input, per caption, words


@dataclass(frozen=True)
class Examples:
    """Inputs of one split; everything but the ids lives on the device, and the features only where they fit."""

    ids: tuple[str, ...]
    features: Features | Streamed
    references: Int[Tensor, "inputs refs time"]
    there: Bool[Tensor, "inputs refs"]

    def __len__(self) -> int:
        return len(self.ids)

    @contextmanager
    def along(self, order: Iterable[Int[Tensor, " images"]]) -> Iterator[Iterator[Batch]]:
        """These batches one after another, none larger than the first: which inputs, how to get their features."""
        if isinstance(self.features, Streamed):
            with self.features.along(order) as batches:
                yield batches
        else:
            yield ((index, partial(self.features_of, index)) for index in order)

    @property
    def is_resident(self) -> bool:
        return not isinstance(self.features, Streamed)

    @property
    def parts(self) -> tuple[Int[Tensor, " some"], ...]:
        """All inputs, in parts whose features take a few dozen MB: for who must look at all of them."""
        if isinstance(self.features, Streamed):
            numbers = self.features.reader.store.bytes_of(1) // 2
        else:
            numbers = sum(f[0].numel() for f in self.features if f is not None)
        return torch.arange(len(self)).split(max(1, NUMBERS // numbers))

    def features_of(self, index: Int[Tensor, " images"]) -> Features:
        """Features that are resident."""
        assert not isinstance(self.features, Streamed), "features that are streamed come in an order"
        index = index.to(self.references.device)
        return Features(*(None if f is None else f.index_select(0, index).float() for f in self.features))

    @property
    def mean_length(self) -> float:
        """Words per reference."""
        words = (self.references != 0).cumprod(-1).sum(-1)[self.there]
        return float(words.float().mean())


def tokenised(dataset: Dataset, split: str) -> TokenLists:
    """Every caption of a split as words."""
    inputs = dataset.split(split)
    flat = iter(tokenize_many([caption for item in inputs for caption in item.captions]))
    return [[next(flat) for _ in item.captions] for item in inputs]


def extended(vocabulary: Vocabulary, *splits: TokenLists) -> Vocabulary:
    """The model's vocabulary and, after it, every other word of these captions."""
    seen = {word for split in splits for captions in split for words in captions for word in words}
    return Vocabulary(vocabulary.words + tuple(sorted(seen - set(vocabulary.words))))


def load_examples(
    dataset: Dataset,
    split: str,
    tokens: TokenLists,
    words: Vocabulary,
    *,
    store: FeatureStore,
    max_words: int,
    device: torch.device,
    resident: bool = True,
) -> Examples:
    """The inputs of a split that have captions and features; `words` is the extended vocabulary."""
    known = set(store.ids)
    kept = [(item, t) for item, t in zip(dataset.split(split), tokens, strict=True) if t and item.id in known]
    if not kept:
        raise InputError(
            f"split {split!r} of {dataset.path} has no input with captions and features in {store.path}",
            fix=f"caplore features {dataset.path}",
        )
    ids = tuple(item.id for item, _ in kept)
    most = max(len(t) for _, t in kept)
    references = torch.zeros(len(kept), most, max_words, dtype=torch.long)
    there = torch.zeros(len(kept), most, dtype=torch.bool)
    for row, (_, captions) in enumerate(kept):
        references[row, : len(captions)] = pack([words.encode(c) for c in captions], max_words)
        there[row, : len(captions)] = True
    features: Features | Streamed = Streamed(store.reader(ids), device)
    if resident:
        found = store.load(ids)
        features = Features(*(found[k].to(device) if k in found else None for k in ("pooled", "regions")))
    return Examples(ids, features, references.to(device), there.to(device))


def as_said(references: Int[Tensor, "*rows time"], vocab: int) -> Int[Tensor, "*rows time"]:
    """References as the model could say them: words beyond its vocabulary become UNK."""
    return torch.where(references < vocab, references, UNK)


def choose_store(dataset: Dataset, encoder: str) -> FeatureStore:
    """The named feature store, or the only one there is."""
    names = dataset.encoders
    if not encoder and len(names) == 1:
        encoder = names[0]
    if encoder not in names:
        what = "no features yet" if not names else f"features by {', '.join(names)}"
        asked = f", not by {encoder!r}" if encoder else "; name one"
        raise InputError(
            f"{dataset.path} has {what}{asked}",
            fix=f"caplore features {dataset.path} --encoder NAME" if not names else "--encoder " + names[0],
        )
    return open_store(dataset.store_path(encoder))


def choose_references(
    references: Int[Tensor, "images refs time"],
    there: Bool[Tensor, "images refs"],
    count: int,
    *,
    noise: Float[Tensor, "images refs"],
) -> Int[Tensor, "images count time"]:
    """`count` references of each image: all in the order of their noise, again and again if there are fewer."""
    order = noise.masked_fill(~there, 2.0).argsort(1)  # those there come first, shuffled
    turn = torch.arange(count, device=there.device)[None, :] % there.sum(1, keepdim=True)
    chosen = order.gather(1, turn)
    return references.gather(1, chosen[..., None].expand(-1, -1, references.shape[-1]))


def check_features(store: FeatureStore, shapes: dict[str, Sequence[int]]) -> None:
    """Refuse features of other sizes than the ones a model was trained on."""
    here = {kind: list(shape) for kind, shape in store.shapes.items()}
    wanted = {kind: list(shape) for kind, shape in shapes.items()}
    if here != wanted:
        raise InputError(
            f"{store.path} has features of shape {here}; the model was trained on {wanted}",
            fix="encode the data set with the encoder named in the run's run.json",
        )
