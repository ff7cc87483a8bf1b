"""The words a model can say, and captions as rows of ids.

Ids everywhere in caplore: 0 ends a caption and pads what follows, 1 begins one, 2 is any other word.
A caption row is `w1 w2 ... wn 0 0 0`: its own tokens are the words *and the first 0*.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from caplore.errors import InputError
from caplore.files import digest_of, read_json, write_json

EOS, BOS, UNK = 0, 1, 2
SPECIAL = ("<eos>", "<bos>", "<unk>")


@dataclass(frozen=True)
class Vocabulary:
    """Words in id order, the three special ones first."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[:3] != SPECIAL or len(set(self.words)) != len(self.words):
            raise ValueError("a vocabulary starts with <eos>, <bos>, <unk> and has no word twice")

    @classmethod
    def from_captions(cls, captions: Iterable[Sequence[str]], *, min_count: int = 1) -> "Vocabulary":
        """Every word seen at least `min_count` times, the most frequent first, ties by spelling."""
        counts = Counter(word for caption in captions for word in caption)
        kept = [w for w, c in counts.items() if c >= min_count and w not in SPECIAL]
        return cls(SPECIAL + tuple(sorted(kept, key=lambda w: (-counts[w], w))))

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        words = read_json(path, "vocabulary")
        try:
            return cls(tuple(words["words"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"vocabulary {path} is malformed ({error})") from None

    def save(self, path: Path) -> None:
        write_json(path, {"words": list(self.words)})

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def digest(self) -> str:
        return digest_of(*self.words)

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Ids of the words, without the end; words not in the vocabulary become UNK."""
        return [self._id_of.get(token, UNK) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words up to the first end."""
        words = []
        for i in ids:
            if i == EOS:
                break
            words.append(self.words[i])
        return words

    def text(self, ids: Iterable[int]) -> str:
        return " ".join(self.decode(ids))


def pack(captions: Sequence[Sequence[int]], time: int) -> Int[Tensor, "captions time"]:
    """Rows of ids, cut to `time` tokens; a caption that fits keeps at least one EOS, a cut one has none."""
    rows = torch.zeros(len(captions), time, dtype=torch.long)
    for row, ids in zip(rows, captions, strict=True):
        cut = ids[:time]
        row[: len(cut)] = torch.tensor(cut, dtype=torch.long)
    return rows
