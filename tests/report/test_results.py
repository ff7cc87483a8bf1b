"""Results as typed values: what is refused and how it is said, what is one group, how a group is summed up."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.errors import InputError
from caplore.report.results import (
    NOT_ASKED,
    Result,
    Score,
    group,
    objective_label,
    parse_result,
    read_result,
    require_comparable,
)

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def results(result_of: Make) -> list[Result]:
    """XE with one seed, SLL with three, in an order that is not the tables'."""
    made = [("sll", 2), ("xe", 0), ("sll", 0), ("sll", 1)]
    return [parse_result(result_of(objective, seed), f"{objective}{seed}") for objective, seed in made]


def test_a_result_is_read_as_written(tmp_path: Path, result_of: Make) -> None:
    value = result_of("sll_sle", 1)
    (tmp_path / "test.json").write_text(json.dumps(value))
    found = read_result(tmp_path / "test.json")
    assert (found.objective, found.seed, found.dataset.name, found.inputs) == ("sll_sle", 1, "scenes", 500)
    written = value["decoders"]["beam"]["scores"]["cider_d"]
    assert found.score("beam", "cider_d") == Score(written["value"], written["signature"])
    assert found.score("beam", "meteor").value is None
    assert "caplore setup meteor" in found.score("beam", "meteor").note
    assert found.score("rs", "nonsense") == Score(None, note=NOT_ASKED)
    assert found.exact is not None
    assert found.exact.peak is not None
    assert found.examples[0].sets["rs"][0].correct in (True, False)


def test_an_encoder_may_come_with_all_that_is_known_about_it(result_of: Make) -> None:
    value = result_of()
    value["run"]["encoder"] = {"name": "efficientnet-lite2", "weights": "ab12"}
    assert parse_result(value, "x").encoder == "efficientnet-lite2"


def _set(path: tuple[str, ...], new: Any) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        for key in path[:-1]:
            value = value[key]
        value[path[-1]] = new

    return change


BROKEN = [
    (_set(("format",), "caplore-evaluation-9"), "is not a result of the format"),
    (_set(("run",), {}), "has no 'name'"),
    (_set(("run", "seed"), "zero"), "'seed' is 'zero', not int"),
    (_set(("inputs",), True), "'inputs' is True, not int"),
    (_set(("decoders", "rs"), []), "decoders.rs has no 'settings'"),
    (_set(("decoders", "beam", "scores", "cider_d"), 1.2), "decoders.beam.scores.cider_d is not a score"),
    (
        _set(("decoders", "beam", "scores", "cider_d", "value"), float("nan")),
        "not a number that can be",
    ),
    (_set(("exact", "peak", "mass"), [0.1]), "two lists of numbers of one length"),
    (_set(("exact", "peak"), {"ranks": [], "mass": []}), "two lists of numbers of one length"),
    (_set(("exact", "peak"), {"ranks": [0, 2], "mass": [0.1, 0.2]}), "do not go up from 1"),
    (
        _set(("examples",), [{"id": "a", "sets": {"rs": [{"logprob": 1}]}}]),
        r"examples\[0\].sets.rs has no 'caption'",
    ),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_a_broken_field_is_named_with_its_file(result_of: Make, change: Any, message: str) -> None:
    value = copy.deepcopy(result_of())
    change(value)
    with pytest.raises(InputError, match=message) as caught:
        parse_result(value, "runs/a/results/test.json")
    assert "runs/a/results/test.json" in caught.value.what


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_whatever_stands_in_a_field_there_is_no_traceback(result_of: Make, data: st.DataObject) -> None:
    """Any field replaced by any JSON is a result or an InputError, never another exception."""
    value = copy.deepcopy(result_of())
    value["examples"] = value["examples"][:1]
    place: Any = value
    while isinstance(place, (dict, list)) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
            place[key] = data.draw(ANY_JSON)
            break
        place = place[key]
    try:
        parse_result(value, "x.json")
    except InputError as error:
        assert "x.json" in str(error)  # noqa: PT017


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
