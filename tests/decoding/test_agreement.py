import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.decoding import consensus, ranking

ROUNDING = {"rtol": 1e-12, "atol": 1e-12}  # float64, a handful of terms


def test_the_caption_that_the_others_are_like_comes_first() -> None:
    similarity = torch.tensor([[[1.0, 0.1, 0.2], [0.5, 1.0, 0.9], [0.2, 0.3, 1.0]]])
    score = consensus(similarity)
    torch.testing.assert_close(score, torch.tensor([[0.15, 0.7, 0.25]]))
    assert ranking(score).tolist() == [[1, 2, 0]]


@given(seed=st.integers(0, 10_000), samples=st.integers(2, 6), weighted=st.booleans())
@settings(max_examples=30, deadline=None)
def test_consensus_is_the_expectation_over_the_others(seed, samples, weighted) -> None:
    rng = torch.Generator().manual_seed(seed)
    similarity = torch.rand(3, samples, samples, generator=rng, dtype=torch.float64)
    weight = torch.rand(3, samples, generator=rng, dtype=torch.float64) if weighted else None
    score = consensus(similarity, weight)
    for i in range(3):
        for j in range(samples):
            others = [k for k in range(samples) if k != j]
            w = [1.0 if weight is None else float(weight[i, k]) for k in others]
            expected = sum(x * float(similarity[i, j, k]) for x, k in zip(w, others, strict=True)) / sum(w)
            assert score[i, j].item() == pytest.approx(expected, rel=1e-12)
    selves = similarity.diagonal(dim1=1, dim2=2)
    selves.fill_(1e6)
    torch.testing.assert_close(consensus(similarity, weight), score, **ROUNDING)


def test_a_single_caption_has_no_others_to_agree_with() -> None:
    assert consensus(torch.ones(2, 1, 1)).tolist() == [[0.0], [0.0]]


def test_ties_keep_their_order() -> None:
    assert ranking(torch.tensor([[1.0, 2.0, 1.0, 2.0]])).tolist() == [[1, 3, 0, 2]]
