"""Captions as words, for many inputs at once: ids without padding, cut into parts that fit in memory.

A million captions are 40 MB of ids here and gigabytes as lists of words, so words become ids in batches and rows are
padded part by part. Axes: inputs, rows (captions of an input), time; captions is all rows of all inputs, flat.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from caplore.errors import InputError
from caplore.metrics.ngrams import MOST_WORDS, ORDERS, DocumentFrequencies
from caplore.text.ptb import SIGNATURE as PTB
from caplore.text.ptb import tokenize_many

Caption = str | Sequence[str]
Tokenizer = Callable[[Sequence[str]], list[list[str]]]

_BATCH = 10_000  # captions that are lists of words at one time
_ELEMENTS = 2**22  # numbers in one intermediate tensor of a part; a cache's worth is fastest


class Lexicon(dict[str, int]):
    """The id of each word: the next free one where it is new. 0 ends a caption."""

    def __missing__(self, word: str) -> int:
        self[word] = new = len(self) + 1
        return new


class Padded(NamedTuple):
    """The captions of some inputs as rows of ids."""

    tokens: Int[Tensor, "inputs rows time"]
    there: Bool[Tensor, "inputs rows"]
    place: Int[Tensor, "inputs rows"]  # the place among all captions; anything where not there


@dataclass(frozen=True, eq=False)
class Ragged:
    """Captions of inputs as ids, one after the other."""

    words: Int[Tensor, " words"]
    captions: Int[Tensor, " captions_plus_1"]  # where each begins in `words`, and the end
    inputs: Int[Tensor, " inputs_plus_1"]  # where each begins in `captions`, and the end

    @property
    def lengths(self) -> Int[Tensor, " captions"]:
        return self.captions.diff()

    @property
    def sizes(self) -> Int[Tensor, " inputs"]:
        """Captions of each input."""
        return self.inputs.diff()

    def longest(self) -> Int[Tensor, " inputs"]:
        """The longest caption of each input."""
        most = torch.zeros(len(self.inputs) - 1, dtype=torch.long)
        return most.scatter_reduce_(0, self.owner(), self.lengths, "amax")

    def owner(self) -> Int[Tensor, " captions"]:
        """Whose each caption is."""
        return torch.repeat_interleave(torch.arange(len(self.inputs) - 1), self.sizes)

    def last_words(self) -> Int[Tensor, " captions"]:
        """The id of the last word of each caption, 0 of an empty one."""
        last = self.words[(self.captions[1:] - 1).clamp(min=0)] if len(self.words) else self.captions[1:]
        return last * (self.lengths > 0)

    def padded(self, inputs: Int[Tensor, " some"]) -> Padded:
        sizes = self.sizes[inputs]
        row = torch.arange(max(1, int(sizes.max())))
        there = row < sizes.unsqueeze(1)
        index = self.inputs[inputs].unsqueeze(1) + row * there
        index = index.clamp(max=max(0, len(self.captions) - 2))
        lengths = self.lengths[index] * there
        step = torch.arange(max(1, int(lengths.max())))
        own = step < lengths.unsqueeze(2)
        tokens = self.words[(self.captions[index].unsqueeze(2) + step)[own]]
        rows = torch.zeros(own.shape, dtype=torch.long).masked_scatter_(own, tokens.long())
        return Padded(rows, there, index)

    def rows(self) -> Iterator[bytes]:
        """Each caption as bytes: equal where the words are equal."""
        words, ends = self.words.numpy(), self.captions.tolist()
        return (words[begin:end].tobytes() for begin, end in pairwise(ends))


def encode(captions: Sequence[Sequence[Caption]], lexicon: Lexicon, tokenize: Tokenizer | None) -> Ragged:
    """Ids of the captions of each input; new words enter the lexicon.

    A caption that is a string is tokenised (as coco-caption does, unless `tokenize` says otherwise), one that is a
    list of words is taken as it is.
    """
    flat = chain.from_iterable(captions)
    words = [np.zeros(0, dtype=np.int32)]
    lengths: list[int] = []
    batch = list(islice(flat, _BATCH + 1))
    while batch:
        following = batch[_BATCH:]  # the tokeniser reads one caption ahead
        tokens = _as_words(batch, tokenize)[:_BATCH]
        lengths.extend(map(len, tokens))
        ids = map(lexicon.__getitem__, chain.from_iterable(tokens))
        words.append(np.fromiter(ids, dtype=np.int32, count=sum(map(len, tokens))))
        batch = [*following, *islice(flat, _BATCH)] if following else []
    return Ragged(
        torch.from_numpy(np.concatenate(words)), _ends(lengths), _ends([len(group) for group in captions])
    )


def split_at_white_space(captions: Ragged, lexicon: Lexicon) -> Ragged:
    """Words as coco-caption's BLEU and CIDEr read them, which split a line at any white space.

    The tokeniser keeps `25 1/2` together by a no-break space: two words to them, one to its ROUGE-L, which splits at
    spaces. Six of COCO's 616,767 captions have such a word; where there is none, the captions come back as they are.
    """
    several = {lexicon[word]: word.split() for word in list(lexicon) if len(word.split()) != 1}
    words = captions.words.numpy()
    places = np.flatnonzero(np.isin(words, list(several)))
    if not len(places):
        return captions
    split = [[lexicon[word] for word in several[i]] for i in words[places].tolist()]
    counts = np.ones(len(words), dtype=np.int64)
    counts[places] = [len(ids) for ids in split]
    ends = np.concatenate([[0], counts.cumsum()])
    new = np.repeat(words, counts)
    for begin, ids in zip(ends[places].tolist(), split, strict=True):
        new[begin : begin + len(ids)] = ids
    return Ragged(torch.from_numpy(new), torch.from_numpy(ends)[captions.captions], captions.inputs)


def _as_words(captions: Sequence[Caption], tokenize: Tokenizer | None) -> list[Sequence[str]]:
    texts = [caption for caption in captions if isinstance(caption, str)]
    if not texts:
        return list(captions)
    if len(texts) < len(captions):
        raise ValueError("captions are all strings or all lists of words")
    return list((tokenize or tokenize_many)(texts))


def _ends(lengths: list[int]) -> Int[Tensor, " lengths_plus_1"]:
    return torch.tensor([0, *lengths], dtype=torch.long).cumsum(0)


def tokenizer_name(captions: Sequence[Sequence[Caption]], tokenize: Tokenizer | None) -> str:
    """How the words of a score came about, for its signature."""
    first = next(chain.from_iterable(captions), "")
    if not isinstance(first, str):
        return "given"
    return PTB if tokenize is None else getattr(tokenize, "__name__", type(tokenize).__name__)


def parts(*groups: Ragged, words: int) -> Iterator[tuple[Int[Tensor, " some"], list[Padded]]]:
    """Inputs of similar length together, as many at a time as fit: which, and their captions of each group.

    A lexicon of too many `words` for exact n-gram keys makes parts that have fewer.
    """
    longest = torch.stack([group.longest() for group in groups]).amax(0)
    sizes = torch.stack([group.sizes for group in groups])
    length = torch.stack([group.captions[group.inputs].diff() for group in groups]).sum(0)
    order = longest.argsort(stable=True)
    begin = 0
    while begin < len(order):
        size = len(order) - begin
        while size > 1:
            some = order[begin : begin + size]
            fits = _ELEMENTS // _cost(sizes[:, some], int(longest[some[-1]]))
            if words >= MOST_WORDS:
                fits = min(fits, int((length[some].cumsum(0) < MOST_WORDS).sum()))
            if size <= fits:
                break
            size = max(1, min(max(fits, size // 2), size - 1))
        some = order[begin : begin + size]
        yield some, [group.padded(some) for group in groups]
        begin += size


def _cost(sizes: Int[Tensor, "groups some"], longest: int) -> int:
    """Numbers in the largest tensor of an input of the largest shape among these."""
    rows, most = int(sizes.sum(0).max()), int(sizes.max())
    return max(1, rows * ORDERS * longest * max(most, longest))


def renumbered(groups: Sequence[Padded], words: int) -> Sequence[Padded]:
    """The same rows with ids small enough for exact n-gram keys, where the lexicon has too many."""
    if words < MOST_WORDS:
        return groups
    none = torch.zeros(1, dtype=torch.long)  # so that 0 is there, and stays 0
    known, new = torch.cat([none, *(group.tokens.flatten() for group in groups)]).unique(return_inverse=True)
    if len(known) >= MOST_WORDS:
        raise InputError(
            f"one input's captions have {len(known) - 1} different words, more than {MOST_WORDS - 2}"
        )
    ids = new[1:].split([group.tokens.numel() for group in groups])
    return [g._replace(tokens=i.view_as(g.tokens)) for g, i in zip(groups, ids, strict=True)]


@dataclass(frozen=True, eq=False)
class CorpusFrequencies:
    """Document frequencies of a corpus of words: for scoring other captions with those of a training set."""

    lexicon: Lexicon
    table: DocumentFrequencies
    name: str
    digest: str

    @classmethod
    def of(cls, references: Ragged, lexicon: Lexicon, name: str) -> "CorpusFrequencies":
        """`lexicon` has all words of the references."""

        def chunks() -> Iterator[tuple[Tensor, Tensor]]:
            return ((refs.tokens, refs.there) for _, (refs,) in parts(references, words=0))

        table = DocumentFrequencies.from_chunks(chunks, vocab=len(lexicon) + 1, count_eos=False)
        return cls(lexicon, table, name, content_digest(references, lexicon))

    @property
    def signature(self) -> str:
        return f"{self.name}({self.table.images} images, {self.digest})"


def content_digest(captions: Ragged, lexicon: Lexicon) -> str:
    """A name for these captions of these inputs, whatever the order of either and the ids of the words."""
    hashes = [0] * (len(lexicon) + 1)
    for word, i in lexicon.items():
        hashes[i] = int.from_bytes(
            hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), signed=True
        )
    place = torch.arange(len(captions.words)) - captions.captions[:-1].repeat_interleave(captions.lengths)
    spread = (place * 2 + 1) * 0x1E3779B97F4A7C15
    by_word = _mixed(torch.tensor(hashes)[captions.words.long()] * spread)
    by_caption = _mixed(_sums(by_word, captions.captions))
    return f"{int(_mixed(_sums(by_caption, captions.inputs)).sum()) & (2**64 - 1):016x}"


def _mixed(values: Int[Tensor, " any"]) -> Int[Tensor, " any"]:
    values = (values ^ (values >> 29)) * 0x3F58476D1CE4E5B9 + 0x1234567
    return values ^ (values >> 32)


def _sums(values: Int[Tensor, " any"], ends: Int[Tensor, " groups_plus_1"]) -> Int[Tensor, " groups"]:
    return torch.cat([values.new_zeros(1), values.cumsum(0)])[ends].diff()
