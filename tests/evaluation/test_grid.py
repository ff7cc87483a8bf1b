"""A grid of runs: which knob goes to which run, and what is done already."""

import json
from pathlib import Path
from typing import Any

import pytest

from caplore.errors import ConfigError
from caplore.evaluation import grid
from caplore.evaluation.grid import Cell, cells, knobs_of
from caplore.training.recipes import RECIPES

PAPER = ("xe", "sll", "sll_me", "sll_sle")


def plan(*knobs: str, **more: Any) -> dict[str, Cell]:
    made = cells("scenes", Path("runs"), models=["fc"], objectives=PAPER, seeds=[0], knobs=knobs, **more)
    return {cell.kind[1]: cell for cell in made}


def test_a_knob_goes_to_the_runs_that_have_it() -> None:
    found = plan(
        "--xe.epochs", "2", "--sequence.epochs", "1", "--sequence.objective.alpha", "0.5", "--no-fast"
    )
    assert found["xe"].knobs[4:] == ("--xe.epochs", "2", "--no-fast")
    assert found["sll"].knobs[4:] == ("--xe.epochs", "2", "--sequence.epochs", "1", "--no-fast")
    alpha = ("--sequence.objective.alpha", "0.5")
    assert found["sll_sle"].knobs[-3:-1] == alpha
    assert alpha[0] not in (*found["sll"].knobs, *found["sll_me"].knobs)


@pytest.mark.parametrize(
    "knob", ["--sequence.objective.alhpa", "--hidden", "--xe.sequence", "--xe.epochs.more=1"]
)
def test_a_knob_that_no_run_has_is_refused_before_anything_is_trained(knob: str) -> None:
    with pytest.raises(ConfigError, match=knob):
        plan(knob, "1")


def test_knobs_are_taken_as_they_may_be_written() -> None:
    recipe = RECIPES["scenes-sle"][1]
    given = ("--seed=3", "--sequence.no-dropout", "--sequence.xe-weight", "-1", "--clip", "5")
    assert knobs_of(recipe, given) == given
    assert knobs_of(RECIPES["scenes-xe"][1], given) == ("--seed=3", "--clip", "5")


def done(folder: Path, **beam: float | None) -> None:
    """A run that was trained and evaluated, with these scores of its single captions."""
    (folder / "results").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"status": "done"}))
    scores = {name: {"value": value} for name, value in beam.items()}
    (folder / "results/test.json").write_text(json.dumps({"decoders": {"beam": {"scores": scores}}}))


@pytest.mark.parametrize(
    ("meteor_is_set_up", "spice", "there", "again"),
    [
        (False, False, {}, False),
        (False, False, {"meteor": None}, False),
        (True, False, {"meteor": None}, True),
        (True, False, {}, True),
        (True, False, {"meteor": 0.2}, False),
        (False, True, {"meteor": None}, True),
        (True, True, {"meteor": 0.2, "spice": None}, True),
        (True, True, {"meteor": 0.2, "spice": 0.1}, False),
    ],
)
def test_what_lacks_a_score_that_can_be_had_by_now_is_evaluated_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    meteor_is_set_up: bool,
    spice: bool,
    there: dict[str, float | None],
    again: bool,
) -> None:
    monkeypatch.setattr(grid, "is_set_up", lambda: meteor_is_set_up)
    done(tmp_path / "run", cider_d=1.0, **there)
    cell = Cell(tmp_path / "run", "scenes-xe", None, (), "test", spice=spice)
    expected = ["evaluate", str(tmp_path / "run"), "--split", "test", *(["--spice"] if spice else [])]
    assert list(cell.commands()) == ([expected] if again else [])
