"""caplore score at the command line: the table, the files, exit 0 or 2 and never a traceback."""

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.cli.main import main
from caplore.cli.score import READING, page
from caplore.evaluation import score
from caplore.evaluation.scoring import Progress
from caplore.metrics.spice import Spice
from caplore.native import native

REFERENCES = "a cat sits on a mat\ntwo dogs run in the field\na red bus\n"


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    (tmp_path / "c.txt").write_text("a cat on a mat\ndogs run in a field\na bus\n")
    (tmp_path / "r0.txt").write_text(REFERENCES)
    (tmp_path / "r1.txt").write_text("the cat is on the mat\ndogs run\na big red bus\n")
    return ["score", f"{tmp_path}/c.txt", "--refs", f"{tmp_path}/r0.txt", f"{tmp_path}/r1.txt"]


def test_the_table(texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*texts, "--bootstrap", "20"]) == 0
    out = capsys.readouterr().out
    assert "candidates: 3 captions of 3 inputs" in out
    assert "references: 6 captions of 3 inputs" in out
    assert READING["cider_d"] in out
    assert "document frequencies of 3 images only" in out
    assert "95 % interval" in out
    assert "CIDEr-D | tok:" in out
    assert max(map(len, out.splitlines())) <= 80


SLOW_TO_IMPORT = {"torch", "jaxtyping", "typeguard", "rich", "asyncio", "unittest"}
IN_A_FRESH_PYTHON = """\
import sys
from caplore.cli.main import main
code = main(sys.argv[2:])
print(code, sorted(set(sys.argv[1].split()) & set(sys.modules)))
"""


def imported(arguments: list[str], native: str = "1") -> str:
    """What a command imports of the modules that take long: the last line it prints."""
    command = [sys.executable, "-c", IN_A_FRESH_PYTHON, " ".join(SLOW_TO_IMPORT), *arguments]
    environment = {**os.environ, "CAPLORE_NATIVE": native}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.skipif(native("caplore.metrics._counts") is None, reason="caplore.metrics._counts was not built")
def test_score_and_compare_need_no_torch(texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "sets.json").write_text(json.dumps({str(i): ["a cat", "two dogs"] for i in (1, 2, 3)}))
    said = ["score", f"{tmp_path}/sets.json", "--refs", f"{tmp_path}/r0.txt", "--json", f"{tmp_path}/o.json"]
    assert imported([*said, "--bootstrap", "10"]) == "0 []"
    assert imported(["compare", *[f"{tmp_path}/o.json"] * 2, "--draws", "9", "--swaps", "9"]) == "0 []"
    assert "'torch'" in imported(said, native="0"), "without the twin the torch engine counts"


def test_a_narrow_terminal(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert main([*texts, "--bootstrap", "20", "--json", f"{tmp_path}/o.json"]) == 0
    out = capsys.readouterr().out
    assert "    95 % interval " in out, "below the score, as there is no room beside it"
    assert max(map(len, out.replace(str(tmp_path), "x").splitlines())) <= 50
    assert main(["compare", *[f"{tmp_path}/o.json"] * 2, "--draws", "10", "--swaps", "10"]) == 0
    out = capsys.readouterr().out
    assert "    +0.0000 .. +0.0000, p 1.0000" in out
    assert max(map(len, out.replace(str(tmp_path), "x").splitlines())) <= 50


def test_the_table_is_there_when_the_file_cannot_be_written(
    texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    assert main([*texts, "--metrics", "rouge_l", "--json", f"{tmp_path}/o.json"]) == 0
    for path in (tmp_path / "c.txt" / "o.json", tmp_path / "a"):  # below a file; a folder
        assert main([*texts, "--metrics", "rouge_l", "--json", str(path)]) == 2
        out, err = capsys.readouterr()
        assert "rouge_l" in out
        assert f"{path} cannot be written" in err
        assert main(["compare", *[f"{tmp_path}/o.json"] * 2, "--json", str(path)]) == 2
        assert f"{path} cannot be written" in capsys.readouterr().err


def test_sets_of_captions(tmp_path: Path, texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c1.txt").write_text("a mat\ndogs run in a field\na red bus\n")
    assert main([*texts[:2], f"{tmp_path}/c1.txt", *texts[2:]]) == 0
    out = capsys.readouterr().out
    assert "candidates: 6 captions of 3 inputs" in out
    assert "lower is more varied" in out
    assert "oracle_bleu_4" in out
    assert out.count("best-of-2") == 1, "the signatures of all best captions are one line"
    assert max(map(len, out.splitlines())) <= 80


def test_json_and_its_statistics(
    texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*texts, "--metrics", "BLEU,rouge-l", "--json", f"{tmp_path}/o.json"]) == 0
    value = json.loads((tmp_path / "o.json").read_text())
    assert set(value["scores"]) == {"bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l"}
    assert (
        main(["compare", f"{tmp_path}/o.json", f"{tmp_path}/o.json", "--draws", "10", "--swaps", "10"]) == 0
    )
    out = capsys.readouterr().out
    assert "rouge_l" in out
    assert max(map(len, out.splitlines())) <= 80


def test_spice_that_fails_is_a_line_of_the_table(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(cls: type[Spice], **options: object) -> Spice:
        from caplore.errors import MissingError

        raise MissingError("SPICE is not set up", fix="caplore setup spice")

    monkeypatch.setattr(Spice, "installed", classmethod(refuse))
    assert main([*texts, "--metrics", "spice,rouge_l"]) == 0
    out = capsys.readouterr().out
    assert "not computed: SPICE is not set up: caplore setup spice" in out
    assert "rouge_l" in out


def test_spice_has_a_bar_on_a_terminal(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class StandIn:
        def counts(self, pairs: list, progress: Progress) -> np.ndarray:
            progress(0, len(pairs))
            progress(len(pairs), len(pairs))
            return np.ones((len(pairs), 7, 3), dtype=np.int32)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(Spice, "installed", classmethod(lambda cls, **options: StandIn()))
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    assert main([*texts, "--metrics", "spice"]) == 0
    assert "SPICE" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--metrics", "blue"], "did you mean bleu?"),
        (["--bootstrap", "-1"], "--bootstrap is -1"),
        (["--spice-threads", "0"], "--spice-threads is 0"),
        (["--df", "nowhere.json"], "not found: nowhere.json"),
    ],
)
def test_mistakes_are_said_and_end_with_2(
    texts: list[str], arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*texts, *arguments]) == 2
    assert says in capsys.readouterr().err


def test_no_candidates_is_said(texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", *texts[2:]]) == 2
    assert "no file of captions was named" in capsys.readouterr().err


def test_long_names_do_not_widen_the_table() -> None:
    odd = {f"id {'x' * 200} {i}": "a cat" for i in range(3)}
    result = score({**odd, "lone" * 60: "a\nb"}, {name: ["a cat", "the dog"] for name in odd}, bootstrap=10)
    assert max(map(len, page(result))) <= 80


SHAPES = [
    b'[{"image_id": 1, "caption": "a cat"}, {"image_id": 2, "caption": "a dog"}]',
    b'{"id": 1, "captions": ["a cat", "a dog"], "references": ["x"]}\n{"id": 2, "captions": ["b"]}\n',
    b"id,caption\n1,a cat\n2,a dog\n",
    b"1#0\ta cat\n2#0\ta dog\n",
    b"a cat\na dog\n",
]


def run_on_random_bytes(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    names = []
    for side in ("c", "r"):
        data = bytearray(rng.choice(SHAPES) if rng.random() < 0.8 else rng.randbytes(rng.randrange(120)))
        for _ in range(rng.choice([0, 0, 1, 2, 5])):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        path = folder / f"{side}{rng.choice(['.json', '.jsonl', '.csv', '.txt'])}"
        path.write_bytes(data)
        names.append(str(path))
    assert main(["score", names[0], "--refs", names[1]]) in (0, 2)


@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=300)
def test_random_files_end_with_0_or_2(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    run_on_random_bytes(seed, tmp_path_factory.getbasetemp())


@pytest.mark.slow
def test_ten_thousand_random_files_end_with_0_or_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(10_000):
        run_on_random_bytes(seed, tmp_path)
        capsys.readouterr()


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full here")
def test_output_onto_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a cat\n")
    command = [sys.executable, "-m", "caplore", "score", tmp_path / "a.txt", "--refs", tmp_path / "a.txt"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*command, "--metrics", "bleu"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "error: the disk that the output goes to is full\n")
