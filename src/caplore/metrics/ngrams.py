"""The n-gram engine: exact keys, counts within and between captions, document frequencies.

A caption is a row of ids, `w1 .. wn 0 0 0` (caplore.text.vocabulary). An n-gram of up to four words is one
int64: sixteen bits a word, id + 1, so different n-grams have different keys whatever their order, and 0 means
"no n-gram here". That is exact for ids below 65,535; text with more words is renumbered part by part
(`caplore.metrics.padded`), and document frequencies of such text rank its pairs of words first.

Nothing in here that scoring uses waits for the device or has a shape that depends on data, so it can stand in
a CUDA graph. Axes: images, rows (captions of an image: samples or refs), orders (n = 1 .. 4), time (where an
n-gram starts).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor
from torch.nn.functional import pad

from caplore.files import digest_of
from caplore.metrics.formulas import ORDERS
from caplore.text.vocabulary import EOS

BITS = 16  # per word; 4 x 16 = 64
MOST_WORDS = 2**BITS - 1  # ids must be below this: digit 0 is "no word"

LAST_KEY = 2**63 - 1  # fills sorted tables up; behind a key that is the same, so that is found first

_COMPARED = 64  # rows up to this long are counted by comparing all positions, longer ones by sorting
_SLOTS_PER_KEY = 2.5  # two-choice hashing finds a place for every key while this is well above 2
_LOW31 = 2**31 - 1
_ELEMENTS = 2**24  # at most about this many numbers in one intermediate tensor

Captions = tuple[Int[Tensor, "images refs time"], Bool[Tensor, "images refs"]]


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
    keys = _packed_keys(_digits(tokens, lengths))
    return Ngrams(keys, occurrences(keys), lengths)


def _digits(tokens: Tensor, lengths: Tensor) -> Int[Tensor, "*rows time"]:
    """id + 1 of the caption's own tokens, 0 of what follows."""
    start = torch.arange(tokens.shape[-1], device=tokens.device)
    return (tokens.long() + 1) * (start < lengths.unsqueeze(-1))


def _packed_keys(digits: Int[Tensor, "*rows time"]) -> Int[Tensor, "*rows orders time"]:
    keys = [digits]
    for _ in range(1, ORDERS):
        digits = _later(digits, 1)
        keys.append(((keys[-1] << BITS) + digits) * (digits != 0))
    return torch.stack(keys, -2)


def _later(values: Int[Tensor, "*rows time"], steps: int) -> Int[Tensor, "*rows time"]:
    """What stands `steps` further on; 0 beyond the end."""
    return pad(values[..., steps:], (0, min(steps, values.shape[-1])))


def occurrences(keys: Int[Tensor, "*rows time"]) -> Int[Tensor, "*rows time"]:
    """How often each position's key stands in its row; 0 for the key 0."""
    if keys.shape[-1] <= _COMPARED:
        places = keys.reshape(-1, keys.shape[-1]).T.contiguous()  # rows innermost: long loops, half the time
        same = (places.unsqueeze(0) == places.unsqueeze(1)).byte()
        counts = same.sum(0, dtype=torch.uint8).T.reshape(keys.shape).long()
    else:
        found, order = keys.sort(-1)
        starts = run_starts(found)
        in_run = torch.zeros_like(found).scatter_add(-1, starts, torch.ones_like(found))
        counts = torch.zeros_like(keys).scatter(-1, order, in_run.gather(-1, starts))
    return counts * (keys != 0)


def run_starts(found: Int[Tensor, "*rows time"]) -> Int[Tensor, "*rows time"]:
    """Of each place in sorted rows, the place where its run of equal values begins."""
    place = torch.arange(found.shape[-1], device=found.device)
    return (place * is_first(found)).cummax(-1).values


def is_first(found: Int[Tensor, "*rows time"]) -> Bool[Tensor, "*rows time"]:
    """Whether a place in sorted rows is the first of its run of equal values."""
    first = torch.ones_like(found, dtype=torch.bool)
    first[..., 1:] = found[..., 1:] != found[..., :-1]
    return first


class RowCounts(NamedTuple):
    """How often any n-gram stands in each row of an image, ready to be asked."""

    keys: Int[Tensor, "images table"]  # sorted; a key that occurs k times stands k times
    counts: Integer[
        Tensor, "images table rows"
    ]  # right at the first place of each key, which is the one found

    @classmethod
    def of(cls, keys: Int[Tensor, "images rows orders time"]) -> "RowCounts":
        images, rows, orders, time = keys.shape
        found, order = keys.reshape(images, -1).sort(-1)
        row = order // (orders * time)
        dtype = torch.uint8 if time < 256 else torch.int32  # small: this is the largest tensor of all
        counts = torch.zeros(images, found.shape[1] * rows, dtype=dtype, device=keys.device)
        counts.scatter_add_(1, run_starts(found) * rows + row, torch.ones_like(row, dtype=dtype))
        return cls(found, counts.view(images, -1, rows))

    def compact(self) -> "RowCounts":
        """The same with each key once: for references that are kept, as a third of the table is enough.

        Waits for the device, to see how wide the table must be.
        """
        once = is_first(self.keys) & (self.keys != 0)
        width = max(1, int(once.sum(-1).max()))
        order = (~once).byte().sort(dim=-1, stable=True).indices[:, :width]
        kept = once.gather(1, order)
        keys = self.keys.gather(1, order).masked_fill(~kept, LAST_KEY)
        rows = self.counts.shape[2]
        counts = self.counts.gather(1, order.unsqueeze(-1).expand(-1, -1, rows)) * kept.unsqueeze(-1)
        return RowCounts(keys, counts)

    @classmethod
    def join(cls, parts: Sequence["RowCounts"]) -> "RowCounts":
        """Tables of other images one below the other, as wide as the widest."""
        width = max(part.keys.shape[1] for part in parts)
        images, rows = sum(len(part.keys) for part in parts), parts[0].counts.shape[2]
        keys = parts[0].keys.new_full((images, width), LAST_KEY)
        counts = parts[0].counts.new_zeros((images, width, rows))
        begin = 0
        for part in parts:
            end, columns = begin + len(part.keys), part.keys.shape[1]
            keys[begin:end, :columns], counts[begin:end, :columns] = part
            begin = end
        return cls(keys, counts)

    def at(self, keys: Int[Tensor, "images ..."]) -> Integer[Tensor, "images ... rows"]:
        """The count of each key in each row; anything at all where the key is 0."""
        images, table, rows = self.counts.shape
        asked = keys.reshape(images, -1).contiguous()
        place = torch.searchsorted(self.keys, asked).clamp_(max=table - 1)
        hit = self.keys.gather(1, place) == asked
        place += torch.arange(images, device=keys.device).unsqueeze(1) * table
        found = self.counts.reshape(images * table, rows).index_select(0, place.reshape(-1))
        return (found * hit.reshape(-1, 1)).view(*keys.shape, rows)


@dataclass(frozen=True, eq=False)
class DocumentFrequencies:
    """In the references of how many images an n-gram stands, for every n-gram of a corpus.

    A static hash table with two places per key (cuckoo hashing), so a lookup is at most two reads whatever the
    size; a search in sorted keys misses the cache at every step and takes four times as long (docs/metrics.md).
    """

    table_keys: Int[Tensor, " slots"]
    table_counts: Int[Tensor, " slots"]
    pairs: Int[Tensor, " pairs"] | None  # sorted, where there are too many words for packed keys
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
        """Count on the device of `refs`; `there` marks real references among rows of padding."""
        real = torch.ones(refs.shape[:2], dtype=torch.bool, device=refs.device) if there is None else there
        size = max(1, _ELEMENTS // max(1, refs.shape[1] * refs.shape[2] * ORDERS))

        def chunks() -> Iterator[Captions]:
            return zip(refs.split(size), real.split(size), strict=True)

        return cls.from_chunks(chunks, vocab=vocab, count_eos=count_eos)

    @classmethod
    def from_chunks(
        cls, chunks: Callable[[], Iterable[Captions]], *, vocab: int, count_eos: bool
    ) -> "DocumentFrequencies":
        """The same for references that come in parts; `chunks` is called twice if the vocabulary is large."""
        pairs = None if vocab < MOST_WORDS else _all_pairs(chunks(), count_eos)
        images, tally = 0, Tally()
        for refs, there in chunks():
            images += len(refs)
            digits = _digits(refs, caption_lengths(refs, count_eos) * there)
            keys = (_packed_keys(digits) if pairs is None else _ranked_keys(digits, pairs)).flatten(1)
            found = keys.sort(-1).values
            tally.add(found[is_first(found) & (found != 0)])  # an n-gram counts once per image
        table_keys, table_counts, seed = _place(*tally.total())
        return cls(table_keys, table_counts, pairs, seed, images, count_eos, vocab)

    def lookup(self, keys: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """The number of images of each key; 0 for a key that is not there, and for the key 0."""
        asked = keys.reshape(-1)
        first, second = _slots(asked, self.seed, len(self.table_keys))
        slot = torch.where(self.table_keys.index_select(0, first) == asked, first, second)
        hit = self.table_keys.index_select(0, slot) == asked
        return (self.table_counts.index_select(0, slot) * hit).view(keys.shape)

    def of(
        self, tokens: Int[Tensor, "*rows time"], lengths: Int[Tensor, "*rows"]
    ) -> Int[Tensor, "*rows orders time"]:
        """The frequencies of all n-grams of captions, which may have ids of words that the corpus has not."""
        digits = _digits(tokens.clamp(max=self.vocab), lengths)
        return self.lookup(_packed_keys(digits) if self.pairs is None else _ranked_keys(digits, self.pairs))

    def to(self, device: torch.device | str) -> "DocumentFrequencies":
        return replace(
            self,
            table_keys=self.table_keys.to(device),
            table_counts=self.table_counts.to(device),
            pairs=None if self.pairs is None else self.pairs.to(device),
        )

    @property
    def bytes(self) -> int:
        tensors = [self.table_keys, self.table_counts] + ([] if self.pairs is None else [self.pairs])
        return sum(t.numel() * t.element_size() for t in tensors)

    @cached_property
    def digest(self) -> str:
        """A name for exactly these counts, whatever the device and the places in the table."""
        used = self.table_counts > 0
        keys, order = self.table_keys[used].sort()
        counts = self.table_counts[used][order]
        parts = [keys, counts] + ([] if self.pairs is None else [self.pairs])
        return digest_of(f"{self.images} {self.count_eos}", *(t.cpu().numpy().tobytes() for t in parts))


class Tally:
    """Counts of keys that come in parts. Parts are merged when they outgrow what is merged: bounded memory."""

    def __init__(self) -> None:
        self._parts: list[tuple[Tensor, Tensor]] = []
        self._merged = 0
        self._waiting = 0

    def add(self, keys: Int[Tensor, " any"]) -> None:
        self._parts.append(_runs(keys.sort().values, None))
        self._waiting += len(self._parts[-1][0])
        if self._waiting > max(self._merged, 2**22):
            self.total()

    def total(self) -> tuple[Int[Tensor, " keys"], Int[Tensor, " keys"]]:
        """The distinct keys in order, and how often each was added."""
        if not self._parts:
            return torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.int32)
        if len(self._parts) > 1:
            keys, order = torch.cat([k for k, _ in self._parts]).sort()
            counts = torch.cat([c for _, c in self._parts])[order]
            self._parts = [_runs(keys, counts)]
        self._merged, self._waiting = len(self._parts[0][0]), 0
        return self._parts[0]


def _runs(keys: Int[Tensor, " any"], counts: Int[Tensor, " any"] | None) -> tuple[Tensor, Tensor]:
    """Of sorted keys: each once, with its counts summed (each counting one where none are given)."""
    starts = is_first(keys).nonzero().squeeze(1)
    ends = torch.cat([starts[1:], starts.new_tensor([len(keys)])[: len(starts)]])
    if counts is None:
        return keys[starts], (ends - starts).int()
    sums = pad(counts.cumsum(0), (1, 0))
    return keys[starts], (sums[ends] - sums[starts]).int()


def _all_pairs(chunks: Iterable[Captions], count_eos: bool) -> Int[Tensor, " pairs"]:
    """Every pair of words that stands in the references, sorted."""
    tally = Tally()
    for refs, there in chunks:
        pairs = _pair_keys(_digits(refs, caption_lengths(refs, count_eos) * there))
        tally.add(pairs[pairs != 0])
    return tally.total()[0]


def _pair_keys(digits: Int[Tensor, "*rows time"]) -> Int[Tensor, "*rows time"]:
    second = _later(digits, 1)
    return ((digits << 31) + second) * (second != 0)


def _ranked_keys(
    digits: Int[Tensor, "*rows time"], pairs: Int[Tensor, " pairs"]
) -> Int[Tensor, "*rows orders time"]:
    """Exact keys for any number of words below 2^31: a triple is (rank of its first pair, word), four words are
    (rank, rank). An n-gram with a pair that `pairs` does not have is in no reference and gets the key 0.
    """
    pair = _pair_keys(digits)
    place = torch.searchsorted(pairs, pair).clamp_(max=max(0, len(pairs) - 1))
    known = (pairs[place] == pair) & (pair != 0) if len(pairs) else torch.zeros_like(pair, dtype=torch.bool)
    rank = (place + 1) * known
    third, last = _later(digits, 2), _later(rank, 2)
    triple = ((rank << 31) + third + (1 << 62)) * (known & (third != 0))
    four = -((rank << 31) + last) * (known & (last != 0))
    return torch.stack([digits, pair, triple, four], -2)


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
        owner = _settle(keys, seed, slots)
        if owner is not None:
            used = owner >= 0
            table_keys, table_counts = keys.new_zeros(slots), counts.new_zeros(slots)
            table_keys[used], table_counts[used] = keys[owner[used]], counts[owner[used]]
            return table_keys, table_counts, seed
    raise AssertionError("no seed places all keys: the two places of a key are not independent")


def _settle(keys: Tensor, seed: int, slots: int) -> Int[Tensor, " slots"] | None:
    """Which key has which slot, -1 for none; or None where the keys go round in circles."""
    places = torch.stack(_slots(keys, seed, slots))
    owner = torch.full((slots,), -1, dtype=torch.int32, device=keys.device)
    at = torch.zeros(len(keys), dtype=torch.uint8, device=keys.device)
    moving = torch.arange(len(keys), dtype=torch.int32, device=keys.device)
    for _ in range(1000):
        if not len(moving):
            return owner
        slot = places[at[moving].long(), moving.long()]
        before = owner[slot]
        owner[slot] = moving  # of several that want a slot, one gets it
        won = owner[slot] == moving
        moving = torch.cat([moving[~won], before[won & (before >= 0)]])
        at[moving.long()] ^= 1
    return None
