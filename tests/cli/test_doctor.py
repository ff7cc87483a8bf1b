"""caplore doctor and caplore setup: what is there was tried, what is not has a command."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from caplore.cli import doctor
from caplore.cli.doctor import Check, Finding, checks, examine, page
from caplore.cli.main import main
from caplore.errors import InputError, MissingError
from caplore.native import INTERFACE, native


def test_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path))
    monkeypatch.setattr(
        doctor, "checks", lambda slow: [c for c in checks(slow=slow) if c.name not in ("packages",)]
    )
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "caplore setup spice" in out, "an empty cache has no SPICE, and the command that adds it is said"
    assert str(tmp_path) in out
    assert "broken" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_what_was_not_compiled_is_missing_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = next(check for check in checks(slow=False) if check.name == "compiled")
    monkeypatch.setenv("CAPLORE_NATIVE", "0")
    assert examine(compiled).fix == "unset CAPLORE_NATIVE"
    monkeypatch.delenv("CAPLORE_NATIVE")
    monkeypatch.setattr("caplore.native.MODULES", ("caplore.text._nothing",))
    found = examine(compiled)
    assert found.state == "missing"
    assert "not built from these sources: caplore.text._nothing" in found.detail


def test_a_module_built_from_other_sources_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("old")
    monkeypatch.setitem(sys.modules, "caplore.text._old", old)
    assert native("caplore.text._old") is None
    old.INTERFACE = INTERFACE  # type: ignore[attr-defined]
    assert native("caplore.text._old") is old


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path / "file" / "cache"))
    found = examine(next(check for check in checks(slow=False) if check.name == "cache"))
    assert found.state == "missing"
    assert str(tmp_path / "file" / "cache") in found.detail


def works() -> str:
    return "x " * 90


def missing() -> str:
    raise MissingError("it is not installed", fix="pip install " + "long-name " * 12)


def broken() -> str:
    raise RuntimeError("first line\nsecond line")


def refused() -> str:
    raise InputError("a file is wrong", fix="mend it")


def test_every_outcome_is_a_finding() -> None:
    found = [examine(Check(f.__name__, f)) for f in (works, missing, broken, refused)]
    assert [f.state for f in found] == ["works", "missing", "broken", "broken"]
    assert found[2].detail == "RuntimeError: first line"
    lines = page(found)
    assert max(map(len, lines)) <= 80
    assert max(map(len, page(found, 50))) <= 50
    assert [line for line in lines if line and not line.startswith(" ")][1:] == [
        "works (each was tried)",
        "missing (add what you want to use)",
        "broken",
    ]


@pytest.mark.parametrize(("needed", "code"), [(True, 2), (False, 0)])
def test_only_what_every_command_needs_fails(
    needed: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "checks", lambda slow: [Check("it", broken, needed=needed)])
    assert main(["doctor"]) == code


def test_old_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.metadata.requires", lambda name: ["a>=2.6,<2.14", "b>=1", "c>=1; extra == 'video'"]
    )
    versions = {"a": "2.13.0+cpu", "b": "0.9.9"}
    monkeypatch.setattr("importlib.metadata.version", versions.__getitem__)
    found = examine(Check("packages", doctor._packages))
    assert (found.state, found.detail) == ("missing", "b is 0.9.9, older than 1")


def test_setup_takes_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path / "cache"))
    assert main(["setup", "spice", "--from", str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["setup", "java", "--from", str(tmp_path / "nowhere")]) == 2
    with pytest.raises(SystemExit) as caught:
        main(["setup", "everything"])
    assert caught.value.code == 2


def test_a_finding_without_detail() -> None:
    assert page([Finding("it", "works", "")])[-1].strip() == "it"
