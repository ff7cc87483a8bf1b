"""Groups over seeds: who belongs together, how a group is summed up and named, what cannot be compared."""

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest

from caplore.errors import InputError
from caplore.report.groups import group, objective_label, require_comparable
from caplore.report.results import Result, parse_result

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def results(result_of: Make) -> list[Result]:
    """XE with one seed, SLL with three, in an order that is not the tables'."""
    made = [("sll", 2), ("xe", 0), ("sll", 0), ("sll", 1)]
    return [parse_result(result_of(objective, seed), f"{objective}{seed}") for objective, seed in made]


def test_runs_that_differ_by_seed_are_one_group(results: list[Result]) -> None:
    groups = group(results)
    assert [(g.label, len(g.results)) for g in groups] == [("XE", 1), ("SLL", 3)]
    assert [r.seed for r in groups[1].results] == [0, 1, 2]


def test_a_summary_is_the_mean_and_the_sample_deviation(results: list[Result]) -> None:
    xe, sll = group(results)
    values = [r.decoders["rs"].scores["div_2"].value for r in results if r.objective == "sll"]
    found = sll.summary("rs", "div_2")
    assert found.mean == pytest.approx(fmean(v for v in values if v is not None))
    assert found.spread == pytest.approx(stdev(v for v in values if v is not None))
    assert found.seeds == 3
    assert xe.summary("rs", "div_2").spread is None  # one seed has no spread, not a spread of 0
    assert xe.summary("beam", "spice").notes == ("SPICE is not set up: caplore setup spice",)


def test_the_order_of_results_does_not_matter_within_a_model(results: list[Result]) -> None:
    assert group(results) == group(results[::-1])


def test_a_copy_of_a_run_is_not_a_second_seed(results: list[Result]) -> None:
    """Counting it would make the spread smaller than it is; both stand, each under its name."""
    copied = replace(results[0], name="copy")
    assert [(g.detail, len(g.results)) for g in group([results[0], copied])] == [("sll-2", 1), ("copy", 1)]


def test_groups_of_one_objective_are_told_apart_by_what_differs(results: list[Result]) -> None:
    base = results[0]

    def details(*others: Result) -> list[str]:
        return [g.detail for g in group([base, *others])]

    assert details() == [""]
    assert details(replace(base, model="updown")) == ["fc", "updown"]
    assert details(replace(base, recipe="mine")) == ["scenes-sll", "mine"]
    sweep = [
        replace(base, knobs=(("sequence.objective.alpha", a), ("xe.epochs", "9")), seed=s)
        for a in ("0.5", "0.75")
        for s in (0, 1)
    ]
    found = group(sweep)
    assert [(g.detail, len(g.results)) for g in found] == [("alpha 0.5", 2), ("alpha 0.75", 2)]


def test_objectives_are_named_as_in_the_paper_and_own_ones_readably() -> None:
    assert [objective_label(name) for name in ("xe", "sll_me", "my_own")] == ["XE", "SLL-ME", "MY-OWN"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("split", "val", "different splits .*test: .*; val: "),
        ("inputs", 100, "different numbers of inputs .*500 inputs: .*; 100 inputs: "),
        ("dataset", "other", "different data sets .*scenes .*; other "),
    ],
)
def test_what_cannot_be_compared_is_refused(
    results: list[Result], field: str, value: Any, message: str
) -> None:
    if field == "dataset":
        value = replace(results[0].dataset, name=value)
    with pytest.raises(InputError, match=message) as caught:
        require_comparable([*results, replace(results[0], **{field: value})])
    assert caught.value.fix


def test_no_results_is_an_error_too() -> None:
    with pytest.raises(InputError, match="no results"):
        require_comparable([])
