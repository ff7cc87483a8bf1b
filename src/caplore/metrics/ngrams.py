"""The n-gram engine: exact keys, counts within and between captions, document frequencies.

A caption is a row of ids, `w1 .. wn 0 0 0` (caplore.text.vocabulary). An n-gram of up to four words is one
int64: sixteen bits a word, id + 1, so different n-grams have different keys whatever their order, and 0 means
"no n-gram here". That is exact for ids below 65,535; text with more words is renumbered part by part.

Nothing in here that scoring uses waits for the device or has a shape that depends on data, so it can stand in
a CUDA graph. Axes: images, rows (captions of an image: samples or refs), orders (n = 1 .. 4), time (where an
n-gram starts).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from caplore.files import digest_of
from caplore.text.vocabulary import EOS

ORDERS = 4
BITS = 16  # per word; 4 x 16 = 64
MOST_WORDS = 2**BITS - 1  # ids must be below this: digit 0 is "no word"

_COMPARED = 64  # rows up to this long are counted by comparing all positions, longer ones by sorting
_SLOTS_PER_KEY = 2.5  # two-choice hashing finds a place for every key while this is well above 2
_LOW31 = 2**31 - 1


def caption_lengths(tokens: Int[Tensor, "*rows time"], count_eos: bool) -> Int[Tensor, "*rows"]:
    """Words before the first end; with `count_eos` the end counts as one more where there is one."""
    words = (tokens != EOS).cumprod(-1).sum(-1)
    return words + (words < tokens.shape[-1]) if count_eos else words


class Ngrams(NamedTuple):
    """Every n-gram of some captions: order n at start t stands at [..., n - 1, t]."""

    keys: Int[Tensor, "*rows orders time"]  # 0 where there is no n-gram
    counts: Int[Tensor, "*rows orders time"]  # how often this n-gram stands in its row; 0 where there is none
    lengths: Int[Tensor, "*rows"]


def ngrams(
    tokens: Int[Tensor, "*rows time"], *, count_eos: bool, there: Bool[Tensor, "*rows"] | None = None
) -> Ngrams:
    """Keys and counts of all n-grams up to four words; a row that is not `there` has none."""
    lengths = caption_lengths(tokens, count_eos)
    if there is not None:
        lengths = lengths * there
    time = tokens.shape[-1]
    start = torch.arange(time, device=tokens.device)
    keys = _keys(tokens, start, lengths)
    return Ngrams(keys, occurrences(keys), lengths)


def _keys(tokens: Tensor, start: Tensor, lengths: Tensor) -> Int[Tensor, "*rows orders time"]:
    digits = (tokens.long() + 1) * (start < lengths.unsqueeze(-1))
    keys = [digits]
    for _ in range(1, ORDERS):
        digits = torch.nn.functional.pad(digits[..., 1:], (0, 1))
        keys.append(((keys[-1] << BITS) + digits) * (digits != 0))
    return torch.stack(keys, -2)


def occurrences(keys: Int[Tensor, "*rows time"]) -> Int[Tensor, "*rows time"]:
    """How often each position's key stands in its row; 0 for the key 0."""
    if keys.shape[-1] <= _COMPARED:
        counts = (keys.unsqueeze(-1) == keys.unsqueeze(-2)).sum(-1)
    else:
        found, order = keys.sort(-1)
        counts = torch.zeros_like(keys).scatter(-1, order, _run_lengths(found))
    return counts * (keys != 0)


def _run_starts(found: Int[Tensor, "*rows time"]) -> Int[Tensor, "*rows time"]:
    """Of each place in sorted rows, the place where its run of equal values begins."""
    place = torch.arange(found.shape[-1], device=found.device)
    begins = torch.ones_like(found, dtype=torch.bool)
    begins[..., 1:] = found[..., 1:] != found[..., :-1]
    return (place * begins).cummax(-1).values


def _run_lengths(found: Int[Tensor, "*rows time"]) -> Int[Tensor, "*rows time"]:
    starts = _run_starts(found)
    lengths = torch.zeros_like(found).scatter_add(-1, starts, torch.ones_like(found))
    return lengths.gather(-1, starts)


class RowCounts(NamedTuple):
    """How often any n-gram stands in each row of an image, ready to be asked."""

    keys: Int[Tensor, "images table"]  # sorted; a key that occurs k times stands k times
    counts: Int[Tensor, "images table rows"]  # right at the first place of each key, which is the one found

    @classmethod
    def of(cls, keys: Int[Tensor, "images rows orders time"]) -> "RowCounts":
        images, rows, orders, time = keys.shape
        found, order = keys.reshape(images, -1).sort(-1)
        row = order // (orders * time)
        dtype = torch.uint8 if time < 256 else torch.int32  # small: this is the largest tensor of all
        counts = torch.zeros(images, found.shape[1] * rows, dtype=dtype, device=keys.device)
        counts.scatter_add_(1, _run_starts(found) * rows + row, torch.ones_like(row, dtype=dtype))
        return cls(found, counts.view(images, -1, rows))

    def at(self, keys: Int[Tensor, "images asked"]) -> Int[Tensor, "images asked rows"]:
        """The count of each key in each row; anything at all where the key is 0."""
        place = torch.searchsorted(self.keys, keys).clamp_(max=self.keys.shape[1] - 1)
        hit = self.keys.gather(1, place) == keys
        images, table, rows = self.counts.shape
        base = torch.arange(images, device=keys.device).unsqueeze(1) * table
        flat = self.counts.reshape(images * table, rows).index_select(0, (place + base).reshape(-1))
        return flat.view(images, -1, rows) * hit.unsqueeze(-1)


@dataclass(frozen=True, eq=False)
class DocumentFrequencies:
    """In the references of how many images an n-gram stands, for every n-gram of a corpus.

    A static hash table with two places per key (cuckoo hashing), so a lookup is two reads whatever the size:
    on a CPU that is several times faster than a search in sorted keys, which misses the cache at every step.
    """

    table_keys: Int[Tensor, " slots"]
    table_counts: Int[Tensor, " slots"]
    seed: int
    images: int
    count_eos: bool
    vocab: int

    @classmethod
    def from_references(
        cls,
        refs: Int[Tensor, "images refs time"],
        there: Bool[Tensor, "images refs"] | None = None,
        *,
        vocab: int,
        count_eos: bool = True,
    ) -> "DocumentFrequencies":
        """Count on the device of `refs`. `there` marks real references; rows of padding are not captions."""
        if vocab > MOST_WORDS:
            raise ValueError(f"keys are exact for up to {MOST_WORDS} words, this vocabulary has {vocab}")
        if there is None:
            there = torch.ones(refs.shape[:2], dtype=torch.bool, device=refs.device)
        keys, counts = _count_images(refs, there, count_eos)
        table_keys, table_counts, seed = _place(keys, counts)
        return cls(table_keys, table_counts, seed, len(refs), count_eos, vocab)

    def lookup(self, keys: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """The number of images of each key; 0 for a key that is not there, and for the key 0."""
        flat = keys.reshape(-1)
        first, second = _slots(flat, self.seed, len(self.table_keys))
        found = _value_at(self, first, flat) + _value_at(self, second, flat) * (first != second)
        return found.view(keys.shape)

    def to(self, device: torch.device | str) -> "DocumentFrequencies":
        return DocumentFrequencies(
            self.table_keys.to(device),
            self.table_counts.to(device),
            self.seed,
            self.images,
            self.count_eos,
            self.vocab,
        )

    @cached_property
    def digest(self) -> str:
        """A name for exactly these counts, whatever the device and the places in the table."""
        used = self.table_counts > 0
        keys, order = self.table_keys[used].sort()
        counts = self.table_counts[used][order]
        parts = [t.cpu().numpy().tobytes() for t in (keys, counts)]
        return digest_of(f"{self.images} {self.count_eos}", *parts)


def _value_at(df: DocumentFrequencies, slots: Tensor, keys: Tensor) -> Tensor:
    return df.table_counts.index_select(0, slots) * (df.table_keys.index_select(0, slots) == keys)


def _count_images(refs: Tensor, there: Tensor, count_eos: bool) -> tuple[Tensor, Tensor]:
    """Sorted distinct keys and in how many images each stands; in chunks, to bound memory."""
    chunk = max(1, 2**22 // max(1, refs.shape[1] * refs.shape[2]))
    parts = []
    for begin in range(0, len(refs), chunk):
        some = slice(begin, begin + chunk)
        lengths = caption_lengths(refs[some], count_eos) * there[some]
        start = torch.arange(refs.shape[2], device=refs.device)
        keys = _keys(refs[some], start, lengths).flatten(1).sort(-1).values
        once = keys != 0
        once[:, 1:] &= keys[:, 1:] != keys[:, :-1]
        parts.append(keys[once].unique(return_counts=True))
    if not parts:
        none = torch.zeros(0, dtype=torch.long, device=refs.device)
        return none, none.int()
    keys, which = torch.cat([k for k, _ in parts]).unique(return_inverse=True)
    counts = torch.zeros_like(keys).index_add_(0, which, torch.cat([c for _, c in parts]))
    return keys, counts.int()


def _slots(keys: Tensor, seed: int, slots: int) -> tuple[Tensor, Tensor]:
    """Two places for each key, from the high and the low half of one multiplicative mix."""
    mixed = keys * (0x2545F4914F6CDD1D + 2 * seed)
    mixed = (mixed ^ (mixed >> 32)) * 0x369DEA0F31A53F85
    mixed = mixed ^ (mixed >> 29)
    first = (((mixed >> 33) & _LOW31) * slots) >> 31
    second = ((mixed & _LOW31) * slots) >> 31
    return first, second


def _place(keys: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, int]:
    """Cuckoo hashing, all keys at once: who is thrown out goes to its other place, until nobody moves."""
    slots = int(len(keys) * _SLOTS_PER_KEY) + 8
    for seed in range(100):
        both = torch.stack(_slots(keys, seed, slots))
        owner = torch.full((slots,), -1, dtype=torch.long, device=keys.device)
        moving = torch.arange(len(keys), device=keys.device)
        at = torch.zeros_like(moving)
        for _ in range(1000):
            if not len(moving):
                break
            slot = both[at[moving], moving]
            before = owner[slot]
            owner[slot] = moving
            won = owner[slot] == moving
            thrown_out = before[won]
            moving = torch.cat([moving[~won], thrown_out[thrown_out >= 0]])
            at[moving] ^= 1
        else:
            continue
        used = owner >= 0
        table_keys, table_counts = keys.new_zeros(slots), counts.new_zeros(slots)
        table_keys[used], table_counts[used] = keys[owner[used]], counts[owner[used]]
        return table_keys, table_counts, seed
    raise AssertionError("no seed places all keys: the two places of a key are not independent")
