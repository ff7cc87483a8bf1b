"""`caplore data scenes` as a user types it."""

from pathlib import Path

import pytest

from caplore.cli.main import main

SIZES = ["--train", "3", "--val", "1", "--test", "1", "--workers", "1"]


def test_it_says_what_it_wrote_and_what_to_type_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "world")
    assert main(["data", "scenes", "--to", where, *SIZES]) == 0
    said = capsys.readouterr().out
    assert f"{where}: 5 pictures (3 train, 1 val, 1 test), 25 captions, " in said
    assert f"next: caplore features {where} --encoder " in said
    assert main(["data", "scenes", "--to", where, *SIZES]) == 0
    assert "there already" in capsys.readouterr().out


def test_clips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "scenes", "--to", str(tmp_path / "world"), "--clips", *SIZES]) == 0
    assert "5 clips (3 train" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "0"], "--train is 0"),
        (["--test", "-3"], "--test is -3"),
        (["--workers", "0"], "--workers is 0"),
        (["--replace"], "not empty and is not a made world"),
        ([], "not empty and is not a made world"),
    ],
)
def test_a_mistake_is_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["data", "scenes", "--to", str(tmp_path), *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "fix:" in said
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "arguments", [[], ["--to", "x", "--colour", "red"], ["--to", "x", "--train", "many"]]
)
def test_a_wrong_option_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["data", "scenes", *arguments])
    assert stopped.value.code == 2
    assert (arguments[2] if arguments else "--to") in capsys.readouterr().err


def test_data_alone_and_with_a_wrong_sub_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data"]) == 2
    assert main(["data", "--help"]) == 0
    assert "scenes" in capsys.readouterr().out
    assert main(["data", "scene"]) == 2
    assert "no sub-command 'scene'" in capsys.readouterr().err
