"""Counting by the torch engine of the reward, where there is no compiled twin: captions as padded rows, part by part.

A part holds inputs of similar length, as many as fit. Axes: inputs, rows (captions of an input), time.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from caplore.errors import InputError
from caplore.metrics import bleu, cider, diversity
from caplore.metrics.corpus import Ragged
from caplore.metrics.counts import Counts, Pairs, empty_counts
from caplore.metrics.formulas import ORDERS, SCALE, SIGMA
from caplore.metrics.ngrams import MOST_WORDS, DocumentFrequencies, Ngrams, RowCounts, ngrams
from caplore.metrics.rouge import longest_common_subsequence

_ELEMENTS = 2**22  # numbers in one intermediate tensor of a part; a cache's worth is fastest


class Rows(NamedTuple):
    """The captions of some inputs as rows of ids."""

    tokens: Int[Tensor, "inputs rows time"]
    there: Bool[Tensor, "inputs rows"]
    place: Int[Tensor, "inputs rows"]  # the place among all captions; anything where not there


class Padded:
    """The engine: `caplore.metrics.counts.Engine`."""

    def frequencies(self, references: Ragged) -> DocumentFrequencies:
        def chunks() -> Iterator[tuple[Tensor, Tensor]]:
            return ((rows.tokens, rows.there) for _, (rows,) in parts(references, words=0))

        with _one_thread():
            return DocumentFrequencies.from_chunks(chunks, vocab=_words(references) + 1, count_eos=False)

    def count(
        self, said: Ragged, refs: Ragged, names: Collection[str], table: DocumentFrequencies | None
    ) -> Counts:
        made, words = empty_counts(said, refs, names), _words(said, refs)
        pairs, set_pairs = Pairs(said, refs), Pairs(said, said)
        with _one_thread():
            for inputs, rows in parts(said, refs, words=words):
                _put(_Part(renumbered(rows, words), rows, table), inputs.numpy(), pairs, set_pairs, made)
        return made

    def common(self, said: Ragged, refs: Ragged) -> NDArray[np.int32]:
        pairs = Pairs(said, refs)
        made = np.zeros(len(pairs), dtype=np.int32)
        with _one_thread():
            for inputs, (captions, references) in parts(said, refs, words=0):
                lengths = [(rows.tokens != 0).sum(-1).clamp(min=1) for rows in (captions, references)]
                found = longest_common_subsequence(captions.tokens, lengths[0], references.tokens, lengths[1])
                made[_places_of_pairs(pairs, inputs.numpy())] = found[_met(captions, references)].numpy()
        return made


@contextmanager
def _one_thread() -> Iterator[None]:
    """The tensors of a part are small: a second thread gains little, and where cores are shared it is waited for."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _words(*sides: Ragged) -> int:
    """The largest id."""
    return max([int(side.words.max()) for side in sides if len(side.words)], default=0)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some inputs; what counting needs of them is made when it is first asked for, and once."""

    rows: Sequence[Rows]
    """Captions and references."""
    true_rows: Sequence[Rows]
    """The same in the ids of the document frequencies, where those above are renumbered."""
    table: DocumentFrequencies | None

    @cached_property
    def grams(self) -> Ngrams:
        return ngrams(self.rows[0].tokens, count_eos=False, there=self.rows[0].there)

    @cached_property
    def ref_grams(self) -> Ngrams:
        return ngrams(self.rows[1].tokens, count_eos=False, there=self.rows[1].there)

    @cached_property
    def bleu_references(self) -> bleu.References:
        counts = RowCounts.of(self.ref_grams.keys)
        return bleu.References(counts, self.ref_grams.lengths, self.rows[1].there)

    @cached_property
    def terms(self) -> cider.Terms:
        return self._weighed(self.grams, self.true_rows[0])

    @cached_property
    def cider_references(self) -> cider.References:
        terms = self._weighed(self.ref_grams, self.true_rows[1])
        return cider.prepare_terms(terms, self.rows[1].there, self.bleu_references.counts)

    @property
    def others(self) -> cider.References:
        """The captions of the set as references of each other."""
        return cider.prepare_terms(self.terms, self.rows[0].there)

    def _weighed(self, grams: Ngrams, true: Rows) -> cider.Terms:
        assert self.table is not None, "what is WEIGHED is counted with frequencies"
        return cider.terms(grams, self.table.of(true.tokens, grams.lengths), self.table.images, torch.double)


_COUNTED: dict[str, Callable[[_Part], Tensor]] = {
    "bleu": lambda part: bleu.statistics(part.grams, part.bleu_references),
    "bleu_each": lambda part: bleu.single_statistics(part.grams, part.bleu_references),
    "bleu_others": lambda part: diversity.mbleu_statistics(part.rows[0].tokens, part.rows[0].there),
    "ngrams": lambda part: diversity.distinct_ngrams(part.grams),
    "captions": lambda part: diversity.distinct_captions(part.rows[0].tokens, part.rows[0].there),
    "cider_d": lambda part: cider.compare(part.terms, part.cider_references, SIGMA) / SCALE,
    "cider": lambda part: cider.compare(part.terms, part.cider_references, None) / SCALE,
    "cider_others": lambda part: cider.compare(part.terms, part.others, None) / SCALE,
}


def _put(part: _Part, inputs: NDArray[np.int64], pairs: Pairs, set_pairs: Pairs, made: Counts) -> None:
    """Write what the part gives for each name where these inputs have their place."""
    captions, references = part.rows
    of_captions = captions.place[captions.there].numpy(), captions.there
    of_inputs = inputs, torch.ones(len(inputs), dtype=torch.bool)
    of_pairs = _places_of_pairs(pairs, inputs), _met(captions, references)
    of_set = _places_of_pairs(set_pairs, inputs), _met(captions, captions)
    where = {"bleu": of_captions, "bleu_others": of_captions, "ngrams": of_inputs, "captions": of_inputs}
    where["cider_others"] = of_set
    for name, whole in made.items():
        places, there = where.get(name, of_pairs)
        whole[places] = _COUNTED[name](part)[there].numpy()


def _met(captions: Rows, others: Rows) -> Bool[Tensor, "inputs rows others"]:
    """Which pairs there are."""
    return captions.there.unsqueeze(2) & others.there.unsqueeze(1)


def _places_of_pairs(pairs: Pairs, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pairs of these inputs, input after input."""
    sizes = pairs.of_input[inputs]
    begins = (pairs.of_input.cumsum() - pairs.of_input)[inputs]
    return np.arange(sizes.sum()) + np.repeat(begins - (sizes.cumsum() - sizes), sizes)


def padded(captions: Ragged, inputs: Int[Tensor, " some"]) -> Rows:
    """The captions of these inputs as rows."""
    all_words, begins, firsts = map(torch.from_numpy, (captions.words, captions.captions, captions.inputs))
    sizes = firsts.diff()[inputs]
    row = torch.arange(max(1, int(sizes.max())))
    there = row < sizes.unsqueeze(1)
    index = firsts[inputs].unsqueeze(1) + row * there
    index = index.clamp(max=max(0, len(begins) - 2))
    lengths = begins.diff()[index] * there
    step = torch.arange(max(1, int(lengths.max())))
    own = step < lengths.unsqueeze(2)
    tokens = all_words[(begins[index].unsqueeze(2) + step)[own]]
    rows = torch.zeros(own.shape, dtype=torch.long).masked_scatter_(own, tokens.long())
    return Rows(rows, there, index)


def parts(*groups: Ragged, words: int) -> Iterator[tuple[Int[Tensor, " some"], list[Rows]]]:
    """Inputs of similar length together, as many at a time as fit: which, and their captions of each group.

    A lexicon of too many `words` for exact n-gram keys makes parts that have fewer.
    """
    longest = torch.stack([_longest(group) for group in groups]).amax(0)
    sizes = torch.stack([torch.from_numpy(group.sizes) for group in groups])
    length = torch.stack([torch.from_numpy(np.diff(group.captions[group.inputs])) for group in groups]).sum(0)
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
        yield some, [padded(group, some) for group in groups]
        begin += size


def _longest(captions: Ragged) -> Int[Tensor, " inputs"]:
    """The longest caption of each input."""
    most = torch.zeros(len(captions.sizes), dtype=torch.long)
    lengths, owner = torch.from_numpy(captions.lengths), torch.from_numpy(captions.owner)
    return most.scatter_reduce_(0, owner, lengths, "amax")


def _cost(sizes: Int[Tensor, "groups some"], longest: int) -> int:
    """Numbers in the largest tensor of an input of the largest shape among these."""
    rows, most = int(sizes.sum(0).max()), int(sizes.max())
    return max(1, rows * ORDERS * longest * max(most, longest))


def renumbered(groups: Sequence[Rows], words: int) -> Sequence[Rows]:
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
