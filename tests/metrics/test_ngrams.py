"""The engine against dictionaries: keys, counts, document frequencies."""

from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.metrics import ngrams as engine
from caplore.metrics.ngrams import (
    MOST_WORDS,
    ORDERS,
    DocumentFrequencies,
    RowCounts,
    Tally,
    caption_lengths,
    ngrams,
    occurrences,
)

few = settings(deadline=None, max_examples=40)
captions = st.lists(st.lists(st.sampled_from([1, 2, 3, 4, 65_533]), max_size=9), min_size=1, max_size=5)


def padded(rows: list[list[int]], time: int) -> torch.Tensor:
    return torch.tensor([(row + [0] * time)[:time] for row in rows])


def slow_ngrams(row: list[int]) -> list[tuple[int, ...]]:
    return [tuple(row[i : i + n]) for n in range(1, ORDERS + 1) for i in range(len(row) - n + 1)]


def owned(row: list[int], time: int, count_eos: bool) -> list[int]:
    """The tokens that belong to a caption in a row of that length."""
    return [*row, 0][:time] if count_eos else row[:time]


@pytest.mark.parametrize(("count_eos", "lengths"), [(False, [2, 0, 3, 1]), (True, [3, 1, 3, 2])])
def test_length_counts_the_end_where_there_is_one(count_eos: bool, lengths: list[int]) -> None:
    tokens = torch.tensor(
        [[5, 6, 0], [0, 0, 0], [5, 6, 7], [5, 0, 9]]
    )  # the last has leftovers after its end
    assert caption_lengths(tokens, count_eos).tolist() == lengths


@few
@given(captions, st.booleans())
def test_two_ngrams_have_the_same_key_exactly_when_they_are_the_same(
    rows: list[list[int]], eos: bool
) -> None:
    time = 9
    keys = ngrams(padded(rows, time), count_eos=eos).keys
    seen: dict[int, tuple[int, ...]] = {}
    for row, of_row in zip(rows, keys, strict=True):
        own = owned(row, time, eos)
        for n, i in product(range(1, ORDERS + 1), range(time)):
            key = int(of_row[n - 1, i])
            assert (key != 0) == (i + n <= len(own))
            if key:
                assert seen.setdefault(key, tuple(own[i : i + n])) == tuple(own[i : i + n])
    assert len(set(seen.values())) == len(seen)


def test_keys_of_the_largest_ids_do_not_wrap_into_each_other() -> None:
    top = MOST_WORDS - 1
    rows = [list(ids) for ids in product([1, 2, top - 1, top], repeat=4)]
    keys = ngrams(padded(rows, 4), count_eos=False).keys[:, 3, 0]
    assert len(keys.unique()) == len(rows)
    assert (keys != 0).all()


@few
@given(st.lists(st.lists(st.integers(0, 6), min_size=7, max_size=7), min_size=1, max_size=4))
def test_occurrences_by_comparing_and_by_sorting_are_the_counts(rows: list[list[int]]) -> None:
    keys = torch.tensor(rows)
    wanted = [[Counter(row)[k] if k else 0 for k in row] for row in rows]
    assert occurrences(keys).tolist() == wanted
    long = torch.cat([keys, torch.zeros(len(rows), engine._COMPARED, dtype=torch.long)], 1)
    assert occurrences(long)[:, :7].tolist() == wanted


@few
@given(captions, captions)
def test_row_counts_are_those_of_a_dictionary(rows: list[list[int]], asked: list[list[int]]) -> None:
    counts = RowCounts.of(ngrams(padded(rows, 9), count_eos=False).keys.unsqueeze(0))
    found = counts.at(ngrams(padded(asked, 8), count_eos=False).keys.unsqueeze(0))[0]
    tables = [Counter(slow_ngrams(row)) for row in rows]
    for row, of_row in zip(asked, found, strict=True):
        for n in range(1, ORDERS + 1):
            for i in range(len(row[:8]) - n + 1):
                assert of_row[n - 1, i].tolist() == [table[tuple(row[i : i + n])] for table in tables]


@few
@given(captions, captions)
def test_a_compact_table_counts_the_same(rows: list[list[int]], others: list[list[int]]) -> None:
    asked = ngrams(padded(rows + others, 9), count_eos=False).keys
    five = [padded((some * 5)[:5], 9).unsqueeze(0) for some in (rows, others)]
    tables = [RowCounts.of(ngrams(tokens, count_eos=False).keys) for tokens in five]
    joined = RowCounts.join([table.compact() for table in tables])
    real = (asked != 0).unsqueeze(-1)
    for table, found in zip(tables, joined.at(asked.expand(2, *asked.shape)), strict=True):
        assert torch.equal(found * real, table.at(asked.unsqueeze(0))[0] * real)
    widest = max(
        len({gram for row in (some * 5)[:5] for gram in slow_ngrams(row)}) for some in (rows, others)
    )
    assert joined.keys.shape[1] == max(1, widest)


def test_the_largest_key_is_found_among_what_fills_the_table_up() -> None:
    row = torch.tensor([[[2**15 - 2, MOST_WORDS - 1, MOST_WORDS - 1, MOST_WORDS - 1]], [[1, 2, 0, 0]]])
    keys = ngrams(row, count_eos=False).keys
    assert keys.max() == engine.LAST_KEY
    table = RowCounts.of(keys).compact()
    assert table.at(keys[:, 0, 3, 0].unsqueeze(1))[:, 0, 0].tolist() == [1, 0]
    assert table.at(torch.full((2, 1), engine.LAST_KEY))[:, 0, 0].tolist() == [1, 0]


def test_counts_above_255_do_not_overflow() -> None:
    row = torch.ones(1, 1, 300, dtype=torch.long)
    keys = ngrams(row, count_eos=False).keys
    assert RowCounts.of(keys).at(keys)[0, 0, 0, 0].tolist() == [300]


def random_references(words: list[int], images: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(len(words))
    choice = torch.randint(len(words), (images, 3, 6), generator=rng)
    lengths = torch.randint(0, 7, (images, 3, 1), generator=rng)
    refs = torch.tensor(words)[choice] * (torch.arange(6) < lengths)
    there = torch.rand(images, 3, generator=rng) < 0.8
    return refs, there


def slow_frequencies(refs: torch.Tensor, there: torch.Tensor, eos: bool) -> Counter[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for image, real in zip(refs.tolist(), there.tolist(), strict=True):
        rows = [[t for t in row if t] for row, is_there in zip(image, real, strict=True) if is_there]
        counts.update({gram for row in rows for gram in slow_ngrams(owned(row, 6, eos))})
    return counts


@pytest.mark.parametrize("eos", [True, False])
@pytest.mark.parametrize(
    "words", [[1, 2, 3, 7], [1, 2, 3, MOST_WORDS - 2], [1, 70_000, 65_536, 131_072, 199_999]]
)
def test_document_frequencies_are_those_of_a_dictionary(words: list[int], eos: bool) -> None:
    refs, there = random_references(words)
    df = DocumentFrequencies.from_references(refs, there, vocab=max(words) + 1, count_eos=eos)
    wanted = slow_frequencies(refs, there, eos)
    asked = torch.tensor([list(ids) for ids in product([*words, 5], repeat=4)])  # 5 is in no reference
    found = df.of(asked, torch.full((len(asked),), 4))
    for row, of_row in zip(asked.tolist(), found.tolist(), strict=True):
        for n, i in product(range(1, ORDERS + 1), range(4)):
            assert of_row[n - 1][i] == (wanted[tuple(row[i : i + n])] if i + n <= 4 else 0)
    assert (df.pairs is not None) == (max(words) >= MOST_WORDS)
    assert int((df.table_counts > 0).sum()) == len(wanted)
    assert int(df.table_counts.sum()) == wanted.total()


def test_words_beyond_the_corpus_are_unknown_and_not_mistaken_for_others() -> None:
    refs = torch.tensor([[[1, 2, 3, 4]]])
    df = DocumentFrequencies.from_references(refs, vocab=5, count_eos=False)
    like_one_two = (1 + 1) * 2**16 + 2  # one word whose digits would be those of the pair (1, 2)
    beyond = torch.tensor([[1, like_one_two, 3, 4], [like_one_two, 1, 2, 99]])
    found = df.of(beyond, torch.tensor([4, 4]))
    assert found[:, 0].tolist() == [[1, 0, 1, 1], [0, 1, 1, 0]]
    assert found[:, 1].tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]
    assert not found[:, 2:].any()


def test_frequencies_counted_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    refs, there = random_references([1, 2, 3, 7], images=40)
    whole = DocumentFrequencies.from_references(refs, there, vocab=8)
    monkeypatch.setattr(engine, "_ELEMENTS", 200)  # some two images at a time
    parts = DocumentFrequencies.from_references(refs, there, vocab=8)
    assert parts.digest == whole.digest
    assert parts.images == 40


def test_digest_names_the_counts_and_nothing_else() -> None:
    refs, there = random_references([1, 2, 3, 7])
    df = DocumentFrequencies.from_references(refs, there, vocab=8)
    turned = DocumentFrequencies.from_references(refs.flip(0, 1), there.flip(0, 1), vocab=8)
    assert df.digest == turned.digest == df.to("cpu").digest
    others = {
        DocumentFrequencies.from_references(refs, there, vocab=8, count_eos=False).digest,
        DocumentFrequencies.from_references(refs[:-1], there[:-1], vocab=8).digest,
        DocumentFrequencies.from_references(refs, vocab=8).digest,
    }
    assert len({df.digest} | others) == 4


def test_no_references_at_all_is_an_empty_table() -> None:
    df = DocumentFrequencies.from_references(torch.zeros(0, 2, 5, dtype=torch.long), vocab=9)
    assert df.images == 0
    assert df.lookup(torch.tensor([0, 1, 123456789])).tolist() == [0, 0, 0]


def test_every_key_of_a_large_table_is_found() -> None:
    keys = torch.randint(-(2**62), 2**62, (200_000,), generator=torch.Generator().manual_seed(3)).unique()
    counts = torch.arange(1, len(keys) + 1, dtype=torch.int32)
    table_keys, table_counts, seed = engine._place(keys, counts)
    df = DocumentFrequencies(table_keys, table_counts, None, seed, 1, True, 9)
    assert torch.equal(df.lookup(keys), counts)
    assert not df.lookup(keys + 1)[~torch.isin(keys + 1, keys)].any()


def test_a_tally_merges_what_comes_in_parts() -> None:
    tally = Tally()
    for part in ([3, 1, 3], [], [1, 2], [3]):
        tally.add(torch.tensor(part, dtype=torch.long))
        tally.total()
    keys, counts = tally.total()
    assert keys.tolist() == [1, 2, 3]
    assert counts.tolist() == [2, 1, 3]
