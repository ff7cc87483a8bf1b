"""Run folders: found, refused with a command that helps, their logs as curves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caplore.errors import InputError
from caplore.files import write_json, write_jsonl
from caplore.report.groups import group
from caplore.report.runs import load, read_log

Make = Callable[..., dict[str, Any]]
Write = Callable[..., Path]


def test_a_folder_of_runs_stands_for_all_of_them_and_none_counts_twice(demo: Path) -> None:
    assert len(load([demo], "test")) == 12
    assert len(load([demo, demo / "xe-0", demo / "sll-1" / ".." / "xe-0"], "test")) == 12


def test_a_run_without_results_says_which_command_makes_them(
    demo: Path, tmp_path: Path, result_of: Make, run_of: Write
) -> None:
    run_of(tmp_path / "a", result_of("xe"))
    bare = run_of(tmp_path / "b", result_of("sll"))
    (bare / "results" / "test.json").unlink()
    with pytest.raises(InputError) as caught:
        load([tmp_path], "test")
    assert caught.value.what == f"1 of 2 runs have no results for split 'test': {bare}"
    assert caught.value.fix == f"caplore evaluate {bare} --split test"


def test_a_split_that_all_runs_have_is_offered(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    value = result_of("xe") | {"split": "val"}
    run_of(tmp_path / "a", value)
    with pytest.raises(InputError, match="or report a split they all have: --split val"):
        load([tmp_path], "test")
    assert load([tmp_path], "val")[0].result.split == "val"


def test_a_result_about_another_split_than_its_name_is_refused(
    tmp_path: Path, result_of: Make, run_of: Write
) -> None:
    folder = run_of(tmp_path / "a", result_of("xe"))
    write_json(folder / "results" / "val.json", result_of("xe"))
    with pytest.raises(InputError, match="says it is about split 'test'"):
        load([folder], "val")


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "no run folder"), ("empty", "is not a run folder"), ("file", "is not a run")],
)
def test_what_is_not_a_run_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=message):
        load([tmp_path / name], "test")


def test_mixed_data_sets_are_refused(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    run_of(tmp_path / "a", result_of("xe"))
    run_of(tmp_path / "b", result_of("sll", dataset="coco"))
    with pytest.raises(InputError, match="different data sets"):
        load([tmp_path], "test")


def test_settings_beside_seed_and_places_make_a_group_of_their_own(
    tmp_path: Path, result_of: Make, run_of: Write
) -> None:
    for alpha in (0.5, 0.75):
        for seed in (0, 1):
            config = {
                "sequence": {"objective": {"alpha": alpha, "name": "sll_sle"}, "lr": 1e-4},
                "start": f"xe-{seed}",
            }
            run_of(tmp_path / f"{alpha}-{seed}", result_of("sll_sle", seed), **config)
    groups = group([run.result for run in load([tmp_path], "test")])
    assert [(g.detail, len(g.results)) for g in groups] == [("alpha 0.5", 2), ("alpha 0.75", 2)]


def test_the_data_folder_is_the_one_evaluation_or_training_was_given(
    tmp_path: Path, result_of: Make, run_of: Write
) -> None:
    value = result_of("xe")
    assert load([run_of(tmp_path / "a", value, data=Path("d/scenes"))], "test")[0].data == "d/scenes"
    value["run"]["dataset"]["path"] = "e/scenes"
    assert load([run_of(tmp_path / "b", value, data=Path("d/scenes"))], "test")[0].data == "e/scenes"


def test_a_log_becomes_curves_by_phase_with_steps_from_the_phases_start(tmp_path: Path) -> None:
    lines = [
        {"event": "validation", "phase": "xe", "step": 0, "cider_d": 0.1},
        {"phase": "xe", "step": 10, "loss": 3.0, "gradient": 1.0},
        {"event": "validation", "phase": "sequence", "step": 10, "cider_d": {"value": 0.5, "signature": "s"}},
        {"phase": "sequence", "step": 30, "loss": 0.1, "reward": 0.6, "length": None},
        {"phase": "sequence", "step": 50, "loss": float("inf"), "reward": 0.7},
        {"event": "stopped", "phase": "sequence", "step": 50, "why": "entropy ran away"},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(
            f"{line}\n".replace("'", '"')
            .replace("None", "null")
            .replace("inf}", "Infinity}")
            .replace("inf,", "Infinity,")
            for line in lines
        )
    )
    log = read_log(path)
    assert [phase.sequence for phase in log.phases] == [False, True]
    assert log.phases[0].curves == {"loss": ((10.0, 3.0),), "validation": ((0.0, 0.1),)}
    assert log.phases[1].curves == {
        "loss": ((20.0, 0.1),),  # what is not finite cannot be drawn
        "reward": ((20.0, 0.6), (40.0, 0.7)),
        "validation": ((0.0, 0.5),),
    }
    assert log.stopped == "entropy ran away"


def test_a_broken_log_line_is_named(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    folder = run_of(tmp_path / "a", result_of("xe"))
    with (folder / "log.jsonl").open("a") as out:
        out.write('{"phase": "xe", "st\n')
    with pytest.raises(InputError, match=r"log .*log.jsonl, line \d+ is not valid JSON"):
        load([folder], "test")


def test_a_run_without_a_log_has_no_curves(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    folder = run_of(tmp_path / "a", result_of("xe"))
    (folder / "log.jsonl").unlink()
    assert load([folder], "test")[0].log.phases == ()
    write_jsonl(folder / "log.jsonl", [])
    assert load([folder], "test")[0].log.phases == ()
