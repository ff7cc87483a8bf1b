"""What the benchmarks are made with: a row that cannot be made says why, and costs no other."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The folder beside src, which is no part of the package."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent.parent))
    import bench

    return bench


def test_rows_before_the_one_that_fails_are_there_and_it_says_why(bench: ModuleType) -> None:
    def rows() -> Iterator[bench.Row]:
        yield bench.Row("first", 1.0)
        raise RuntimeError("no memory\nand a long story")

    made, failed = bench.attempted("all", rows())
    assert made == bench.Row("first", 1.0)
    assert (failed.what, failed.note) == ("all", "failed: RuntimeError: no memory")
    assert math.isnan(failed.ours)


def test_works_take_turns_and_the_first_turn_does_not_count(
    bench: ModuleType,
) -> None:
    now, seen = 0.0, []
    took = {"a": [1, 5, 3], "b": [1, 7, 9]}

    def work(name: str) -> None:
        nonlocal now
        now += took[name][seen.count(name)]
        seen.append(name)

    assert bench.in_turns([lambda: work("a"), lambda: work("b")], 2, lambda: now) == [3, 7]
    assert seen == ["a", "b", "a", "b", "a", "b"]


def test_what_was_measured_is_kept_where_a_later_run_measures_nothing(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench import __main__ as command

    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr(command, "machine", lambda: {"cores": 2})

    def run(*ours: float) -> bool:
        made = SimpleNamespace(rows=lambda: iter([bench.Row("a row", value) for value in ours]))
        monkeypatch.setitem(sys.modules, "bench.bench_made", made)
        return command.run("made")

    assert run(1.0, 2.0)
    kept = json.loads((tmp_path / "made.json").read_text())
    assert [row["ours"] for row in kept["rows"]] == [1.0, 2.0]
    assert not run(math.nan)
    assert json.loads((tmp_path / "made.json").read_text()) == kept
    assert not run(3.0, math.nan)
    assert [row["ours"] for row in json.loads((tmp_path / "made.json").read_text())["rows"]] == [3.0]
