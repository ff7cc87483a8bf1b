"""Captions as words, for many inputs at once: ids without padding, one array after the other.

A million captions are 40 MB of ids here and gigabytes as lists of words. Tokenised captions come as lines, which the
compiled twin cuts into ids; lists of words are taken as they are. Axes: inputs, captions (of all inputs, flat), words.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise

import numpy as np
from numpy.typing import NDArray

from caplore.native import native
from caplore.text.ptb import SIGNATURE as PTB
from caplore.text.ptb import tokenize_lines, words_of

Caption = str | Sequence[str]
Tokenizer = Callable[[Sequence[str]], list[list[str]]]


class Lexicon(dict[str, int]):
    """The id of each word: the next free one where it is new. 0 ends a caption."""

    def __missing__(self, word: str) -> int:
        self[word] = new = len(self) + 1
        return new


@dataclass(frozen=True, eq=False)
class Lines:
    """Captions of inputs as the tokeniser gives them: lines of words with one space between two."""

    lines: Sequence[str]
    inputs: NDArray[np.int64]  # where each input begins in `lines`, and the end

    @classmethod
    def of(cls, captions: Sequence[Sequence[str]]) -> "Lines":
        """Tokenise the captions of each input as coco-caption does."""
        return cls(tokenize_lines(list(chain.from_iterable(captions))), ends(map(len, captions)))


Captions = Sequence[Sequence[Caption]] | Lines
"""The captions of each input."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """Captions of inputs as ids, one after the other."""

    words: NDArray[np.int32]
    captions: NDArray[np.int64]  # where each begins in `words`, and the end
    inputs: NDArray[np.int64]  # where each begins in `captions`, and the end

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Words of each caption."""
        return np.diff(self.captions)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Captions of each input."""
        return np.diff(self.inputs)

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """Whose each caption is."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def last_words(self) -> NDArray[np.int64]:
        """The id of the last word of each caption, 0 of an empty one."""
        with_none = np.concatenate([np.zeros(1, dtype=np.int64), self.words])
        return with_none[self.captions[1:]] * (self.lengths > 0)

    def rows(self) -> Iterator[bytes]:
        """Each caption as bytes: equal where the words are equal."""
        raw, size = self.words.tobytes(), self.words.itemsize
        return (raw[size * begin : size * end] for begin, end in pairwise(self.captions.tolist()))


def ends(lengths: Iterable[int]) -> NDArray[np.int64]:
    """Where each of things with these lengths begins, one after the other, and the end."""
    return np.fromiter(accumulate(lengths, initial=0), dtype=np.int64)


def encode(captions: Captions, lexicon: Lexicon, tokenize: Tokenizer | None) -> Ragged:
    """Ids of the captions of each input; new words enter the lexicon.

    A caption that is a string is tokenised (as coco-caption does, unless `tokenize` says otherwise), one that is a
    list of words is taken as it is.
    """
    if isinstance(captions, Lines):
        return Ragged(*_ids_of_lines(captions.lines, lexicon), captions.inputs)
    flat, inputs = list(chain.from_iterable(captions)), ends(map(len, captions))
    texts = [caption for caption in flat if isinstance(caption, str)]
    if not texts:
        return Ragged(*_ids_of_words(flat, lexicon), inputs)
    if len(texts) < len(flat):
        raise ValueError("captions are all strings or all lists of words")
    if tokenize is not None:
        return Ragged(*_ids_of_words(tokenize(texts), lexicon), inputs)
    return Ragged(*_ids_of_lines(tokenize_lines(texts), lexicon), inputs)


def _ids_of_lines(lines: Sequence[str], lexicon: Lexicon) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The words of each line in ids, and where each line begins among them."""
    twin = native("caplore.metrics._counts")
    with suppress(UnicodeEncodeError):  # half a character (a lone surrogate) has no UTF-8
        if twin is not None:
            ids, begins, words = twin.encode(lines)
            ours = np.fromiter(map(lexicon.__getitem__, words), dtype=np.int32, count=len(words))
            return ours[np.frombuffer(ids, dtype=np.int32)], np.frombuffer(begins, dtype=np.int64)
    return _ids_of_words(list(map(words_of, lines)), lexicon)


def _ids_of_words(
    captions: Sequence[Sequence[str]], lexicon: Lexicon
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    begins = ends(map(len, captions))
    ids = map(lexicon.__getitem__, chain.from_iterable(captions))
    return np.fromiter(ids, dtype=np.int32, count=int(begins[-1])), begins


def split_at_white_space(sides: Sequence[Ragged], lexicon: Lexicon) -> list[Ragged]:
    """Words as coco-caption's BLEU and CIDEr read them, which split a line at any white space.

    The tokeniser keeps `25 1/2` together by a no-break space: two words to them, one to its ROUGE-L, which splits at
    spaces. Six of COCO's 616,767 captions have such a word; where there is none, the captions come back as they are.
    """
    several = {i: word.split() for word, i in lexicon.items() if len(word.split()) != 1}
    return [_split(side, several, lexicon) if several else side for side in sides]


def _split(captions: Ragged, several: dict[int, list[str]], lexicon: Lexicon) -> Ragged:
    words = captions.words
    is_several = np.zeros(len(lexicon) + 1, dtype=np.bool_)
    is_several[list(several)] = True
    places = np.flatnonzero(is_several[words])
    if not len(places):
        return captions
    split = [[lexicon[word] for word in several[i]] for i in words[places].tolist()]
    counts = np.ones(len(words), dtype=np.int64)
    counts[places] = [len(ids) for ids in split]
    begins = np.concatenate([np.zeros(1, dtype=np.int64), counts.cumsum()])
    new = np.repeat(words, counts)
    for begin, ids in zip(begins[places].tolist(), split, strict=True):
        new[begin : begin + len(ids)] = ids
    return Ragged(new, begins[captions.captions], captions.inputs)


def tokenizer_name(captions: Captions, tokenize: Tokenizer | None) -> str:
    """How the words of a score came about, for its signature."""
    if isinstance(captions, Lines):
        return PTB
    first = next(chain.from_iterable(captions), "")
    if not isinstance(first, str):
        return "given"
    return PTB if tokenize is None else getattr(tokenize, "__name__", type(tokenize).__name__)


def content_digest(captions: Ragged, lexicon: Lexicon) -> str:
    """A name for these captions of these inputs, whatever the order of either and the ids of the words."""
    hashes = np.zeros(len(lexicon) + 1, dtype=np.int64)
    for word, i in lexicon.items():
        raw = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
        hashes[i] = int.from_bytes(raw, signed=True)
    place = np.arange(len(captions.words)) - np.repeat(captions.captions[:-1], captions.lengths)
    by_word = _mixed(hashes[captions.words] * ((place * 2 + 1) * 0x1E3779B97F4A7C15))
    by_caption = _mixed(_sums(by_word, captions.captions))
    return f"{int(_mixed(_sums(by_caption, captions.inputs)).sum()) & (2**64 - 1):016x}"


def _mixed(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bits stirred; products of 64 bits wrap around."""
    values = (values ^ (values >> 29)) * 0x3F58476D1CE4E5B9 + 0x1234567
    return values ^ (values >> 32)


def _sums(values: NDArray[np.int64], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of each group, which may be empty."""
    return np.diff(np.concatenate([np.zeros(1, dtype=np.int64), values.cumsum()])[begins])
