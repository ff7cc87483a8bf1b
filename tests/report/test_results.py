"""Results as typed values: what is read, what is refused and how it is said."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.errors import InputError
from caplore.report.results import NOT_ASKED, Score, parse_result, read_result

Make = Callable[..., dict[str, Any]]


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
