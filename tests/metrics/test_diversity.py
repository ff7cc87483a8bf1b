"""Set metrics: counted by hand, against slow dictionaries, and at their two ends: all the same, nothing shared."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caplore.metrics import diversity
from caplore.metrics.bootstrap import Statistics

CLOSE = 1e-12
few = settings(deadline=None, max_examples=30)
sets = st.lists(st.lists(st.integers(1, 3), max_size=5), min_size=1, max_size=4)


def padded(captions: list[list[int]], rows: int = 4, time: int = 5) -> tuple[Tensor, Tensor]:
    """A set as rows, and which of the rows there are."""
    tokens = [(c + [0] * time)[:time] for c in captions] + [[1] * time] * (rows - len(captions))
    return torch.tensor([tokens]), torch.tensor([[i < len(captions) for i in range(rows)]])


@few
@given(sets)
def test_div_n_is_distinct_ngrams_over_words(captions: list[list[int]]) -> None:
    got = diversity.div_n(*padded(captions))[0]
    words = sum(map(len, captions))
    for n in (1, 2, 3, 4):
        distinct = {tuple(c[i : i + n]) for c in captions for i in range(len(c) - n + 1)}
        assert got[n - 1].item() == pytest.approx(len(distinct) / words if words else 0)


def test_div_2_of_two_equal_captions_by_hand() -> None:
    tokens, there = padded([[1, 2, 3], [1, 2, 3]])
    assert diversity.div_n(tokens, there)[0, :2].tolist() == pytest.approx([3 / 6, 2 / 6])


@few
@given(sets)
def test_distinct_captions_is_the_size_of_a_python_set(captions: list[list[int]]) -> None:
    assert diversity.distinct_captions(*padded(captions)).item() == len(set(map(tuple, captions)))


def test_mbleu_of_equal_captions_is_one_and_of_disjoint_ones_nothing() -> None:
    same, _ = padded([[1, 2, 3, 1, 2]] * 4)
    apart = torch.tensor([[[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15]]])
    for tokens, wanted in ((same, 1.0), (apart, 0.0)):
        rows = diversity.mbleu_statistics(tokens).double().flatten(1).numpy()
        assert Statistics(rows, "mbleu_4").value == pytest.approx(wanted, abs=1e-6)


def test_mbleu_does_not_see_captions_that_are_not_there_or_their_slots() -> None:
    tokens, _ = padded([[1, 2, 3, 1, 2], [1, 2, 3, 3, 3]])
    without = diversity.mbleu_statistics(tokens[:, :2]).double().flatten(1).numpy()
    with_rows = (
        diversity.mbleu_statistics(tokens, torch.tensor([[True, True, False, False]]))
        .double()
        .flatten(1)
        .numpy()
    )
    assert Statistics(with_rows, "mbleu_2").value == Statistics(without, "mbleu_2").value > 0.1
    alone = diversity.mbleu_statistics(tokens, torch.tensor([[True, False, False, False]]))
    assert not alone.any()
    assert Statistics(alone.double().flatten(1).numpy(), "mbleu_4").value == 0


def kernels() -> tuple[Tensor, Tensor]:
    """Of four captions: all the same, and nothing shared."""
    return torch.ones(1, 4, 4, dtype=torch.double), torch.eye(4, dtype=torch.double).unsqueeze(0)


def test_kernel_scores_at_their_ends() -> None:
    same, apart = kernels()
    assert diversity.self_cider(same).item() == pytest.approx(0, abs=1e-7)
    assert diversity.self_cider(apart).item() == pytest.approx(1)
    assert diversity.vendi_score(same).item() == pytest.approx(1)
    assert diversity.vendi_score(apart).item() == pytest.approx(4)
    assert diversity.log_det(apart, jitter=0.0).item() == pytest.approx(0, abs=CLOSE)
    assert diversity.log_det(same) < diversity.log_det(apart)


def test_self_cider_of_two_captions_by_hand() -> None:
    kernel = torch.tensor([[[1, 0.6], [0.6, 1]]], dtype=torch.double)  # eigenvalues 1.6 and 0.4
    wanted = -math.log(math.sqrt(1.6) / (math.sqrt(1.6) + math.sqrt(0.4))) / math.log(2)
    assert diversity.self_cider(kernel).item() == pytest.approx(wanted, abs=CLOSE)
    shares = (0.8, 0.2)
    assert diversity.vendi_score(kernel).item() == pytest.approx(
        math.exp(-sum(s * math.log(s) for s in shares))
    )
    assert diversity.log_det(kernel, jitter=0.0).item() == pytest.approx(math.log(1 - 0.36))


@pytest.mark.parametrize("score", [diversity.self_cider, diversity.vendi_score, diversity.log_det])
def test_captions_that_are_not_there_change_no_kernel_score(score) -> None:
    rng = torch.Generator().manual_seed(2)
    vectors = torch.nn.functional.normalize(torch.rand(3, 4, 6, generator=rng, dtype=torch.double), dim=-1)
    kernel = vectors @ vectors.transpose(1, 2)
    there = torch.tensor([[True, True, False, True]] * 3)
    kept = kernel[:, [0, 1, 3]][:, :, [0, 1, 3]]
    assert torch.allclose(score(kernel, there), score(kept))
    assert torch.allclose(score(kernel, torch.ones_like(there)), score(kernel))
    assert not torch.allclose(score(kernel), score(kept))


@pytest.mark.parametrize("score", [diversity.self_cider, diversity.vendi_score, diversity.log_det])
def test_nothing_is_nan(score) -> None:
    kernel = torch.zeros(2, 3, 3)
    nobody = torch.zeros(2, 3, dtype=torch.bool)
    one = torch.tensor([[True, False, False]] * 2)
    for there in (None, nobody, one):
        assert score(kernel, there).isfinite().all()
        assert score(kernel + torch.eye(3), there).isfinite().all()
    assert diversity.self_cider(torch.eye(3).unsqueeze(0), one[:1]).tolist() == [0]


def test_kernels_are_differentiable_for_what_wants_to_learn_from_them() -> None:
    vectors = torch.rand(2, 3, 5, dtype=torch.double, requires_grad=True)
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    diversity.log_det(unit @ unit.transpose(1, 2)).sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.isfinite().all()


def test_unit_diagonal_makes_everything_like_itself() -> None:
    kernel = torch.tensor([[[0.5, 0.2, 0.0], [0.2, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    scaled = diversity.unit_diagonal(kernel)
    assert scaled.diagonal(dim1=1, dim2=2).tolist() == [pytest.approx([1, 1, 1])]
    assert scaled[0, 0, 1].item() == pytest.approx(0.2 / math.sqrt(0.5))
    there = torch.tensor([[True, True, False]])
    assert diversity.unit_diagonal(kernel, there)[0, 2].tolist() == [0, 0, 0]
