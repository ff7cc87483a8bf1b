"""METEOR by the jar: its protocol with a stand-in for Java; the real program against caplore's METEOR."""

import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from caplore.errors import CaploreError, MissingError
from caplore.metrics import meteor_java
from caplore.metrics.java import Java
from caplore.metrics.meteor import COLUMNS, Meteor, is_set_up, score
from caplore.metrics.meteor_java import meteor_by_jar

STAND_IN = """\
    #!{python}
    # Answers SCORE by counts (words, words of the first reference, ...) and EVAL by one number each and their sum.
    import sys
    for line in sys.stdin:
        kind, *fields = line.rstrip("\\n").split(" ||| ")
        if "boom" in line:
            sys.exit("java.lang.OutOfMemoryError: Java heap space")
        if kind == "SCORE":
            assert not any("|||" in field for field in fields)
            said, true = fields[-1].split(), fields[0].split()
            whole = said == true
            exact = len(said) if whole else 0
            row = [len(said), len(true), 0, 0, exact, exact] + [0] * 14 + [1 if whole else 0, exact, exact]
            print(*map(float, row), flush=True)
        else:
            for field in fields:
                print(float(field.split()[0]) / 10)
            print(sum(float(field.split()[0]) for field in fields) / 10, flush=True)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text(textwrap.dedent(STAND_IN).format(python=sys.executable))
    java.chmod(0o755)
    (tmp_path / "meteor-1.5.jar").touch()
    monkeypatch.setattr(meteor_java, "program_jar", lambda: tmp_path / "meteor-1.5.jar")
    monkeypatch.setattr(meteor_java, "find_java", lambda: Java(java, 17, "17", "PATH"))


def test_counts_and_scores_in_order(program: None) -> None:
    captions = [f"a cat {'on ' * (i % 7)}".split() for i in range(3000)]
    found = meteor_by_jar(captions, [[caption, ["x"]] for caption in captions])
    assert found.counts.shape == (3000, len(COLUMNS))
    assert found.counts[:, 0].tolist() == [len(caption) for caption in captions]
    assert set(found.counts[:, 20].tolist()) == {0}, (
        "the one chunk of a caption that is its reference is none"
    )
    np.testing.assert_allclose(found.scores, [len(caption) / 10 for caption in captions])
    assert found.corpus == pytest.approx(found.scores.sum())


def test_what_would_break_the_protocol_is_taken_out(program: None) -> None:
    found = meteor_by_jar([["a", "|||", "b"]], [[["a|||b"]]])
    assert found.counts[0, :2].tolist() == [2, 1]


def test_a_program_that_stops_is_said_with_its_reason(program: None) -> None:
    with pytest.raises(CaploreError, match=r"stopped before it had answered: java\.lang\.OutOfMemoryError"):
        meteor_by_jar([["a"], ["boom"]], [[["a"]], [["a"]]])


def test_a_jar_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path))
    with pytest.raises(MissingError, match="caplore setup meteor"):
        meteor_by_jar([["a"]], [[["a"]]])


@pytest.mark.java
def test_the_real_program_and_ours() -> None:
    if not is_set_up():
        pytest.skip("METEOR is not set up: caplore setup meteor")
    said = [
        ["two", "dogs", "running", "on", "the", "fields"],
        ["a", "cat"],
        [],
        ["a", "red", "bus", "parked", "near", "a", "kerb"],
    ]
    true = [
        [["two", "dogs", "run", "in", "the", "field"], ["dogs"]],
        [["a", "cat"]],
        [["x"]],
        [["a", "big", "bus"]],
    ]
    theirs, ours = meteor_by_jar(said, true), Meteor.load().statistics_many(said, true)
    np.testing.assert_array_equal(theirs.counts, ours)
    np.testing.assert_allclose(theirs.scores, score(ours), atol=1e-12)
    assert theirs.corpus == pytest.approx(float(score(ours.sum(0))), abs=1e-12)
