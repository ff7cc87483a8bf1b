"""`caplore report` as a user types it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caplore.cli.main import main

Make = Callable[..., dict[str, Any]]
Write = Callable[..., Path]
SRC = Path(__file__).parents[2] / "src"


def caplore(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "caplore", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def test_it_writes_a_page_and_says_where(demo: Path, tmp_path: Path) -> None:
    done = caplore("report", demo, "-o", "out/page.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("out/page.html: 12 runs, ")
    text = (tmp_path / "out" / "page.html").read_text()
    assert text.startswith("<!doctype html>")
    assert f"caplore report {demo} -o out/page.html" in text


def test_torch_is_not_needed_to_report(demo: Path, tmp_path: Path) -> None:
    script = f"""
import sys
from caplore.cli.main import main
code = main(["report", {str(demo)!r}, "-o", "page.html"])
assert "torch" not in sys.modules
sys.exit(code)
"""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_run_that_was_not_evaluated(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    run_of(tmp_path / "sle", result_of("sll_sle"))
    (tmp_path / "sle" / "results" / "test.json").unlink()
    done = caplore("report", "sle", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "error: 1 of 1 runs have no results for split 'test': sle\n  fix: caplore evaluate sle --split test\n"
    )
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no run folder nowhere"),
        (["sle", "--split", "dev"], "no results for split 'dev'"),
        (["sle", "--examples", "-1"], "--examples is -1"),
        (["sle", "--data", "nowhere"], "--data nowhere is not a folder"),
        (["sle", "-o", "."], ". is a folder"),
        (["sle", "coco"], "different data sets"),
        (["sle", "--splt", "test"], "splt"),
        ([], "name at least one run folder"),
    ],
)
def test_mistakes_exit_2_without_a_traceback(
    tmp_path: Path,
    result_of: Make,
    run_of: Write,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    run_of(tmp_path / "sle", result_of("sll_sle"))
    run_of(tmp_path / "coco", result_of("sll_sle", dataset="coco"))
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["report", *arguments])
    except SystemExit as exit:  # how tyro ends on an unknown option
        code = int(exit.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
