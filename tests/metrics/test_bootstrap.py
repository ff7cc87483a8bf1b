"""Intervals and tests from stored numbers: against what statistics says they should be."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from caplore.metrics import bootstrap as module
from caplore.metrics.bleu import bleu
from caplore.metrics.bootstrap import (
    Statistics,
    bootstrap,
    bootstrap_all,
    bootstrap_difference,
    randomization_test,
)
from caplore.metrics.formulas import STATISTICS


def normal(inputs: int, mean: float = 0.0, seed: int = 0) -> NDArray[np.float64]:
    return mean + np.random.default_rng(seed + 10_000).standard_normal((inputs, 1))


def whole_numbers(inputs: int) -> NDArray[np.float64]:
    return np.random.default_rng(1).integers(1, 9, (inputs, STATISTICS)).astype(np.float64)


def test_the_score_is_the_aggregate_of_the_sums() -> None:
    rows = np.array([[1.0, 4.0], [2.0, 1.0], [6.0, 1.0]])
    assert Statistics(rows, "mean").value == pytest.approx(3)
    assert Statistics(rows, "ratio").value == pytest.approx(9 / 6)
    numbers = whole_numbers(7)
    on_device = bleu(torch.from_numpy(numbers).sum(0))
    for n in (1, 2, 3, 4):
        assert Statistics(numbers, f"bleu_{n}").value == pytest.approx(on_device[n - 1].item())


def test_the_interval_of_a_mean_is_its_standard_error_to_both_sides() -> None:
    rows = normal(400, mean=5)
    interval = bootstrap(Statistics(rows, "mean"), draws=4000)
    error = 1.96 * rows.std(ddof=1) / math.sqrt(400)
    assert interval.low == pytest.approx(rows.mean() - error, abs=0.1 * error)
    assert interval.high == pytest.approx(rows.mean() + error, abs=0.1 * error)
    narrower = bootstrap(Statistics(rows, "mean"), draws=4000, level=0.5)
    assert interval.low < narrower.low < narrower.high < interval.high


def test_the_interval_holds_the_true_mean_about_as_often_as_it_says() -> None:
    held = 0
    for seed in range(200):
        interval = bootstrap(Statistics(normal(60, seed=seed), "mean"), draws=400, seed=seed)
        held += interval.low <= 0 <= interval.high
    assert 0.88 <= held / 200 <= 0.99  # 0.95 is promised; percentiles of 60 inputs give a little less


def test_the_same_seed_gives_the_same_interval_in_one_part_or_many(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = Statistics(normal(50), "mean")
    whole = bootstrap(statistics, draws=300)
    assert whole == bootstrap(statistics, draws=300)
    assert whole != bootstrap(statistics, draws=300, seed=1)
    monkeypatch.setattr(module, "_ELEMENTS", 50 * 7)
    assert bootstrap(statistics, draws=300) == whole


def test_intervals_of_many_scores_are_those_of_each() -> None:
    numbers = whole_numbers(40)
    scores = {f"bleu_{n}": Statistics(numbers, f"bleu_{n}") for n in (1, 2)} | {
        "x": Statistics(normal(40), "mean")
    }
    assert bootstrap_all(scores, draws=50) == {n: bootstrap(one, draws=50) for n, one in scores.items()}
    assert bootstrap_all({}) == {}


def test_a_paired_interval_is_narrower_than_the_systems_are_wide() -> None:
    base = normal(300)
    better = base + 0.1 + 0.05 * normal(300, seed=1)
    difference = bootstrap_difference(Statistics(better, "mean"), Statistics(base, "mean"))
    assert 0.08 < difference.low < difference.high < 0.12


def test_a_system_does_not_differ_from_itself_and_does_from_a_better_one() -> None:
    ours = Statistics(normal(200), "mean")
    assert randomization_test(ours, ours, draws=200) == 1
    better = Statistics(ours.rows + 1, "mean")
    assert randomization_test(better, ours, draws=999) == pytest.approx(1 / 1000)


def test_p_values_of_equal_systems_are_spread_evenly() -> None:
    below = 0
    for seed in range(200):
        a, b = Statistics(normal(40, seed=seed), "mean"), Statistics(normal(40, seed=1000 + seed), "mean")
        below += randomization_test(a, b, draws=200, seed=seed) < 0.25
    assert 0.15 <= below / 200 <= 0.35


def test_statistics_of_other_inputs_or_scores_are_refused() -> None:
    rows = np.ones((3, STATISTICS))
    for other in (Statistics(rows[:2], "bleu_1"), Statistics(rows, "bleu_2")):
        with pytest.raises(ValueError, match="same score on the same inputs"):
            randomization_test(Statistics(rows, "bleu_1"), other)
        with pytest.raises(ValueError, match="same score on the same inputs"):
            bootstrap_difference(Statistics(rows, "bleu_1"), other)
