"""CIDEr and CIDEr-D on ids: what must hold whatever the captions, and equality with slow dictionaries."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caplore.metrics import cider as module
from caplore.metrics.cider import Cider, CiderD
from caplore.metrics.ngrams import DocumentFrequencies

FLOAT32 = 2e-6  # scores up to 10, sums of some eighty products
FLOAT64 = 1e-12

few = settings(deadline=None, max_examples=25)


def random_rows(*shape: int, time: int, vocab: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, vocab, (*shape, time), generator=rng)
    lengths = torch.randint(0, time + 1, shape, generator=rng)
    return tokens * (torch.arange(time) < lengths.unsqueeze(-1))


def some_references(seed: int = 1, images: int = 12, refs: int = 6) -> tuple[Tensor, Tensor]:
    there = torch.rand(images, refs, generator=torch.Generator().manual_seed(seed)) < 0.7
    there[:, 0] = True
    return random_rows(images, refs, time=14, vocab=30, seed=seed), there


def frequencies(references: Tensor, there: Tensor, count_eos: bool = False) -> DocumentFrequencies:
    return DocumentFrequencies.from_references(references, there, vocab=40, count_eos=count_eos)


def tokens_of(row: Tensor, count_eos: bool) -> list[int]:
    ids = [*row.tolist(), 0] if 0 not in row else row.tolist()
    end = ids.index(0)
    return ids[: end + 1] if count_eos and end < len(row) else ids[:end]


def slow_vector(
    row: list[int], n: int, df: Counter[tuple[int, ...]], images: int
) -> dict[tuple[int, ...], float]:
    counts = Counter(tuple(row[i : i + n]) for i in range(len(row) - n + 1))
    return {g: c * (math.log(images) - math.log(max(1, df[g]))) for g, c in counts.items()}


def slow_cider(
    row: list[int], refs: list[list[int]], df: Counter[tuple[int, ...]], images: int, clip: bool
) -> float:
    total = 0.0
    for ref in refs:
        for n in (1, 2, 3, 4):
            ours, theirs = slow_vector(row, n, df, images), slow_vector(ref, n, df, images)
            norm = math.hypot(*ours.values()) * math.hypot(*theirs.values())
            dot = sum((min(v, theirs.get(g, 0)) if clip else v) * theirs.get(g, 0) for g, v in ours.items())
            apart = max(0, len(row) - 1) - max(0, len(ref) - 1)
            total += (dot / norm if norm else 0.0) * (math.exp(-(apart**2) / 72) if clip else 1)
    return 10 * total / 4 / len(refs)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.float64, FLOAT64)])
@pytest.mark.parametrize("count_eos", [False, True])
@pytest.mark.parametrize("kind", [Cider, CiderD])
def test_equals_the_definition(
    kind: type[Cider] | type[CiderD], count_eos: bool, dtype: torch.dtype, tolerance: float
) -> None:
    references, there = some_references()
    captions = random_rows(12, 3, time=11, vocab=36, seed=3)  # some words are in no reference
    captions[:, 0] = references[:, 0, :11]
    scorer = kind(frequencies(references, there, count_eos), dtype=dtype)
    got = scorer.score(captions, scorer.prepare(references, there)).double()

    rows = [
        [tokens_of(r, count_eos) for r, real in zip(*pair, strict=True) if real]
        for pair in zip(references, there, strict=True)
    ]
    df: Counter[tuple[int, ...]] = Counter()
    for refs in rows:
        df.update({tuple(r[i : i + n]) for r in refs for n in (1, 2, 3, 4) for i in range(len(r) - n + 1)})
    wanted = [
        [slow_cider(tokens_of(c, count_eos), refs, df, 12, kind is CiderD) for c in some]
        for some, refs in zip(captions, rows, strict=True)
    ]
    assert (got - torch.tensor(wanted, dtype=torch.double)).abs().max() < tolerance
    assert got.max() > 1


def test_a_caption_equal_to_its_only_reference_scores_ten() -> None:
    references = random_rows(5, 1, time=12, vocab=30, seed=4)
    references[:, :, :5] = torch.arange(1, 6) + torch.arange(5).view(5, 1, 1)  # five words at least
    scorer = CiderD(frequencies(references, torch.ones(5, 1, dtype=torch.bool)), dtype=torch.float64)
    prepared = scorer.prepare(references, torch.ones(5, 1, dtype=torch.bool))
    assert (scorer.score(references, prepared) - 10).abs().max() < FLOAT64
    shorter = references.clone()
    shorter[:, :, 4:] = 0
    assert (scorer.score(shorter, prepared) < 10 - 1e-6).all()


@few
@given(st.permutations(range(6)), st.integers(0, 6))
def test_order_of_references_padding_and_rows_that_are_not_there_do_not_matter(
    order: list[int], more: int
) -> None:
    references, there = some_references(seed=7)
    captions = random_rows(12, 2, time=14, vocab=30, seed=8)
    scorer = CiderD(frequencies(references, there), dtype=torch.float64)
    wanted = scorer.score(captions, scorer.prepare(references, there))
    noise = random_rows(12, 2, time=14, vocab=30, seed=9)
    rows = torch.cat([references[:, order], noise], 1)
    present = torch.cat([there[:, order], torch.zeros(12, 2, dtype=torch.bool)], 1)
    longer = torch.nn.functional.pad(rows, (0, more))
    got = scorer.score(torch.nn.functional.pad(captions, (0, more)), scorer.prepare(longer, present))
    assert (got - wanted).abs().max() < FLOAT64


def test_what_stands_after_the_first_end_does_not_matter() -> None:
    references, there = some_references(seed=5)
    captions = random_rows(12, 3, time=10, vocab=30, seed=6)
    captions[:, :, 4] = 0
    cleaned = captions.clone()
    cleaned[:, :, 4:] = 0
    scorer = CiderD(frequencies(references, there, count_eos=True))
    prepared = scorer.prepare(references, there)
    assert torch.equal(scorer.score(captions, prepared), scorer.score(cleaned, prepared))


def test_scores_in_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    references, there = some_references()
    captions = random_rows(12, 3, time=10, vocab=30, seed=6)
    scorer = CiderD(frequencies(references, there), dtype=torch.float64)
    wanted = scorer.score(captions, scorer.prepare(references, there))
    monkeypatch.setattr(module, "_ELEMENTS", 3 * 4 * 14 * 14 * 6)
    assert torch.equal(scorer.score(captions, scorer.prepare(references, there)), wanted)


def test_the_score_is_the_mean_similarity_to_the_references_there_are() -> None:
    references, there = some_references()
    captions = random_rows(12, 3, time=10, vocab=30, seed=6)
    scorer = CiderD(frequencies(references, there), dtype=torch.float64)
    prepared = scorer.prepare(references, there)
    similarity = scorer.similarity(captions, prepared)
    assert not similarity[~there.unsqueeze(1).expand_as(similarity)].any()
    mean = similarity.sum(-1) / there.sum(-1, keepdim=True)
    assert (scorer.score(captions, prepared) - mean).abs().max() < FLOAT64


@pytest.mark.parametrize("kind", [Cider, CiderD])
def test_nothing_to_say_or_to_compare_with_is_zero_and_never_nan(kind: type[Cider] | type[CiderD]) -> None:
    references = torch.tensor([[[1, 2, 3], [0, 0, 0]], [[4, 5, 0], [0, 0, 0]], [[1, 2, 4], [1, 0, 0]]])
    there = torch.tensor([[True, True], [False, False], [True, True]])
    captions = torch.tensor([[[0, 0, 0], [9, 9, 9]], [[1, 2, 3], [4, 5, 0]], [[8, 0, 0], [1, 2, 4]]])
    scorer = kind(frequencies(references, there))
    score = scorer.score(captions, scorer.prepare(references, there))
    assert score.isfinite().all()
    assert score[0].tolist() == [0, 0]
    assert score[1].tolist() == [0, 0]  # no reference
    assert score[2, 0] == 0
    assert score[2, 1] > 0


def test_one_image_has_no_rare_words_and_scores_zero() -> None:
    references = torch.tensor([[[1, 2, 3, 4, 0]]])
    there = torch.ones(1, 1, dtype=torch.bool)
    scorer = CiderD(frequencies(references, there))
    assert scorer.score(references, scorer.prepare(references, there)).tolist() == [[0.0]]


def test_the_signature_says_what_made_the_number() -> None:
    references, there = some_references()
    with_end = CiderD(frequencies(references, there, count_eos=True))
    without = CiderD(frequencies(references, there, count_eos=False))
    assert "|eos:yes|" in with_end.signature
    assert "|eos:no|" in without.signature
    assert "|images:12|" in without.signature
    assert f"|df:{without.df.digest}|" in without.signature
    assert (
        len(
            {
                with_end.signature,
                without.signature,
                CiderD(without.df, sigma=5.0).signature,
                Cider(without.df).signature,
            }
        )
        == 4
    )
