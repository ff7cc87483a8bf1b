"""Exact figures against small distributions that can be written down, and against drawing."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.metrics import exact


def log(*p: float) -> torch.Tensor:
    return torch.tensor(p, dtype=torch.float64).log()


def test_by_hand() -> None:
    one_of_two = log(0.5, 0.25)
    assert exact.precision(one_of_two).item() == pytest.approx(0.75)
    assert exact.expected_recall(one_of_two, k=1).item() == pytest.approx(0.75)
    assert exact.expected_recall(one_of_two, k=2).item() == pytest.approx((0.75 + 0.4375) / 2)
    assert exact.mass_by_rank(one_of_two).tolist() == pytest.approx([2 / 3, 1.0])


@pytest.mark.parametrize("count", [1, 4, 1000])
def test_a_uniform_policy_is_as_wide_as_it_has_captions(count: int) -> None:
    logprob = torch.full((count,), -math.log(2 * count))  # half the mass is elsewhere
    assert exact.peak_width(logprob).item() == pytest.approx(count, rel=1e-6)
    assert exact.precision(logprob).item() == pytest.approx(0.5, rel=1e-6)


def test_edges() -> None:
    certain = log(1.0, 0.0)
    assert exact.expected_recall(certain, k=5).item() == pytest.approx(0.5)  # one of the two, however often
    assert exact.peak_width(certain).item() == pytest.approx(1.0)
    nothing = log(0.0, 0.0)
    assert [f(nothing).item() for f in (exact.precision, exact.peak_width)] == [0.0, 0.0]
    assert exact.expected_recall(nothing, k=5).item() == 0.0
    assert exact.mass_by_rank(nothing).tolist() == [0.0, 0.0]
    tiny = torch.full((10**5,), -25.0)  # (1 - p)^k in float64 would round to 1
    assert exact.expected_recall(tiny, k=20).item() == pytest.approx(10**5 * math.exp(-25.0), rel=1e-6)
    with pytest.raises(ValueError, match="k of at least 1"):
        exact.expected_recall(certain, k=0)


@given(seed=st.integers(0, 2**31), k=st.integers(1, 6))
@settings(max_examples=10, deadline=None)
def test_expected_recall_is_what_drawing_gives(seed: int, k: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    p = torch.rand(6, generator=rng, dtype=torch.float64)
    p = p / p.sum()
    correct = p[:4]  # the last two are wrong captions
    draws = torch.multinomial(p, 20_000 * k, replacement=True, generator=rng).view(20_000, k)
    covered = torch.stack([(draws == y).any(1) for y in range(4)]).double().sum(0) / min(k, 4)
    # 20,000 draws of something in [0, 1]: a standard error of at most .0036; five of them
    assert exact.expected_recall(correct.log(), k=k).item() == pytest.approx(covered.mean().item(), abs=0.018)


@settings(deadline=None)
@given(st.lists(st.floats(-30, -1), min_size=1, max_size=8), st.permutations(range(8)))
def test_the_order_of_captions_does_not_matter(values: list[float], order: list[int]) -> None:
    logprob = torch.tensor(values, dtype=torch.float64) - math.log(8)
    shuffled = logprob[[i for i in order if i < len(values)]]
    for figure in (exact.precision, exact.peak_width, lambda x: exact.expected_recall(x, k=3)):
        torch.testing.assert_close(figure(shuffled), figure(logprob))
    torch.testing.assert_close(exact.mass_by_rank(shuffled), exact.mass_by_rank(logprob))
