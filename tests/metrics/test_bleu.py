"""BLEU on ids against dictionaries; distances between the captions of a set."""

import math
from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caplore.metrics.bleu import Bleu, bleu, bleu_distance, pairwise_bleu, prepare, statistics
from caplore.metrics.ngrams import ngrams

FLOAT32 = 1e-6
few = settings(deadline=None, max_examples=40)
words = st.lists(st.integers(1, 4), max_size=9)


def padded(captions: list[list[int]], time: int = 9) -> Tensor:
    return torch.tensor([[(c + [0] * time)[:time] for c in captions]])


def slow_bleu(caption: list[int], refs: list[list[int]]) -> list[float]:
    """coco-caption's sentence BLEU, from its definition."""
    product, scores = 1.0, []
    closest = min((abs(len(r) - len(caption)), len(r)) for r in refs)[1]
    ratio = (len(caption) + 1e-15) / (closest + 1e-9)
    for n in (1, 2, 3, 4):
        ours = Counter(tuple(caption[i : i + n]) for i in range(len(caption) - n + 1))
        theirs = [Counter(tuple(r[i : i + n]) for i in range(len(r) - n + 1)) for r in refs]
        matches = sum(min(count, max(t[g] for t in theirs)) for g, count in ours.items())
        product *= (matches + 1e-15) / (max(0, len(caption) - n + 1) + 1e-9)
        scores.append(product ** (1 / n) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1))
    return scores


@few
@given(words, st.lists(words, min_size=1, max_size=4))
def test_sentence_bleu_equals_the_definition(caption: list[int], refs: list[list[int]]) -> None:
    references = prepare(padded(refs), torch.ones(1, len(refs), dtype=torch.bool), count_eos=False)
    numbers = statistics(ngrams(padded([caption]), count_eos=False), references).double()
    wanted = torch.tensor(slow_bleu(caption, refs), dtype=torch.double)
    assert (bleu(numbers)[0, 0] - wanted).abs().max() < 1e-12
    metric = Bleu(order=3, count_eos=False)
    of_metric = metric.score(padded([caption]), metric.prepare(padded(refs), references.there))
    assert abs(of_metric.item() - wanted[2]) < FLOAT32


@few
@given(st.lists(words, min_size=1, max_size=4))
def test_pairwise_bleu_is_sentence_bleu_of_one_against_one(captions: list[list[int]]) -> None:
    got = pairwise_bleu(padded(captions), orders=(3, 4))[0]
    for j, first in enumerate(captions):
        for k, second in enumerate(captions):
            scores = slow_bleu(first, [second])
            assert abs(got[j, k].item() - (scores[2] + scores[3]) / 2) < FLOAT32


def test_references_that_are_not_there_do_not_count() -> None:
    refs, caption = padded([[1, 2, 3, 4], [4, 3, 2, 1, 1]]), padded([[4, 3, 2, 1, 1]])
    one = torch.tensor([[True, False]])
    metric = Bleu(count_eos=False)
    assert metric.score(caption, metric.prepare(refs, one)).item() < 0.1
    assert metric.similarity(caption, metric.prepare(refs, one))[0, 0, 1] == 0
    assert metric.score(caption, metric.prepare(refs, torch.tensor([[True, True]]))).item() > 0.99
    nobody = metric.score(caption, metric.prepare(refs, torch.tensor([[False, False]])))
    assert nobody.item() < FLOAT32
    assert nobody.isfinite().all()


def test_the_end_counts_as_a_word_when_asked() -> None:
    cut, whole = padded([[1, 2, 3, 4]], time=4), padded([[1, 2, 3, 4]], time=5)
    there = torch.ones(1, 1, dtype=torch.bool)
    for eos, same in ((True, False), (False, True)):
        metric = Bleu(count_eos=eos)
        assert (metric.score(cut, metric.prepare(whole, there)).item() > 0.99) == same


def test_distance_is_symmetric_and_zero_between_equal_captions() -> None:
    rng = torch.Generator().manual_seed(6)
    captions = torch.randint(1, 5, (6, 5, 12), generator=rng)
    captions[:, 2, 5:] = 0
    captions[:, 1] = captions[:, 0]
    distance = bleu_distance(captions)
    assert torch.equal(distance, distance.transpose(1, 2))
    assert distance[:, 0, 1].abs().max() < FLOAT32
    assert distance.min() > -FLOAT32
    assert distance.max() <= 1
    assert not torch.allclose(bleu_distance(captions, symmetric=False), distance)
