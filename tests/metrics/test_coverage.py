"""Recall of the references by a set, by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.metrics import coverage

# two captions, three references
SIMILARITY = torch.tensor([[[0.9, 0.1, 0.0], [0.5, 0.3, 0.0]]])


def test_by_hand() -> None:
    recall, precision = coverage.recall(SIMILARITY), coverage.precision(SIMILARITY)
    assert recall.item() == pytest.approx((0.9 + 0.3 + 0.0) / 3)
    assert precision.item() == pytest.approx((0.9 + 0.5) / 2)
    assert coverage.f1(precision, recall).item() == pytest.approx(2 * 0.7 * 0.4 / 1.1)


def test_what_is_not_there_does_not_count() -> None:
    sampled, there = torch.tensor([[False, True]]), torch.tensor([[False, True, True]])
    assert coverage.recall(SIMILARITY, sampled, there).item() == pytest.approx(0.15)
    assert coverage.precision(SIMILARITY, sampled, there).item() == pytest.approx(0.3)
    nobody = torch.zeros(1, 2, dtype=torch.bool)
    assert coverage.recall(SIMILARITY, nobody, there).item() == 0
    assert coverage.precision(SIMILARITY, nobody, there).item() == 0
    assert coverage.f1(torch.zeros(1), torch.zeros(1)).item() == 0


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000))
def test_another_caption_never_lowers_recall_and_a_double_changes_nothing(seed: int) -> None:
    similarity = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(seed))
    assert (coverage.recall(similarity) >= coverage.recall(similarity[:, :3])).all()
    double = torch.cat([similarity, similarity[:, :1]], 1)
    assert torch.equal(coverage.recall(double), coverage.recall(similarity))
