"""`score`: the field's numbers, every form of input, and no metric that takes the others down with it."""

import json
import os
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.errors import CaploreError, ConfigError, InputError
from caplore.evaluation import score
from caplore.evaluation.comparison import read_result
from caplore.evaluation.scoring import COUNTED, METRICS, chosen_metrics
from caplore.evaluation.statistics_io import read_statistics, statistics_path, write_statistics
from caplore.metrics import scoring as by_engine
from caplore.metrics.java import TimeLimit
from caplore.metrics.meteor import COLUMNS as METEOR_COLUMNS
from caplore.metrics.meteor import Meteor, is_set_up
from caplore.metrics.meteor import score as meteor_score
from caplore.metrics.spice import KINDS, Spice

PUBLISHED = {  # of coco-caption's 1,000 demo images (shared/data/README.md), to four digits
    "bleu_1": 0.5794,
    "bleu_2": 0.4044,
    "bleu_3": 0.2785,
    "bleu_4": 0.1908,
    "rouge_l": 0.3963,
    "cider_d": 0.5998,
}
CANDIDATES = {"1": "a cat on a mat", "2": "two dogs run in a field", "3": "a bus"}
REFERENCES = {
    "1": ["a cat sits on a mat", "the cat is lying on a rug"],
    "2": ["two dogs running across a field", "dogs run through the grass"],
    "3": ["a red bus on the street"],
}
WORDS = st.text(alphabet="ab c", min_size=1, max_size=12)


def test_published_scores_of_the_demo(shared: Path) -> None:
    fixture = shared / "data/fixtures/fakecap.json"
    result = score(fixture, fixture, metrics=["bleu", "rouge_l", "cider_d"])
    for name, value in PUBLISHED.items():
        assert result[name] == pytest.approx(value, abs=5e-5), name


def test_files_and_python_values_score_the_same(tmp_path: Path) -> None:
    rows = [{"image_id": int(i), "caption": c} for i, c in CANDIDATES.items()]
    (tmp_path / "c.json").write_text(json.dumps(rows))
    (tmp_path / "r.csv").write_text(
        "id,caption\n" + "".join(f"{i},{r}\n" for i, rs in REFERENCES.items() for r in rs)
    )
    ours = score(CANDIDATES, REFERENCES)
    for other in (
        score(tmp_path / "c.json", str(tmp_path / "r.csv")),
        score(list(CANDIDATES.values()), list(REFERENCES.values())),
    ):
        assert {k: s.value for k, s in other.scores.corpus.items()} == {
            k: s.value for k, s in ours.scores.corpus.items()
        }


@given(
    st.dictionaries(
        st.integers(0, 99).map(str), st.lists(WORDS, min_size=1, max_size=3), min_size=2, max_size=5
    )
)
@settings(deadline=None, max_examples=20)
def test_order_of_inputs_and_references_does_not_matter(sets: dict[str, list[str]]) -> None:
    candidates = {name: captions[0] for name, captions in sets.items()}
    if not any(caption.strip() for caption in candidates.values()) or not any(
        text.strip() for texts in sets.values() for text in texts
    ):
        return
    try:
        ours = score(candidates, sets)
    except InputError:
        return  # every input lacks one side
    other_inputs = score(dict(reversed(candidates.items())), dict(reversed(sets.items())))
    other_references = score(candidates, {name: captions[::-1] for name, captions in sets.items()})
    for name, found in ours.scores.corpus.items():
        if found.value is None:  # METEOR, where it is not set up
            assert other_inputs[name] is other_references[name] is None, name
            continue
        assert other_inputs[name] == pytest.approx(found.value, rel=1e-9, abs=1e-12), name
        if name != "meteor":  # where it is set up: of references as good the first counts, as in the jar
            assert other_references[name] == pytest.approx(found.value, rel=1e-9, abs=1e-12), name


def test_sets_give_set_scores_and_single_captions_do_not() -> None:
    single = score(CANDIDATES, REFERENCES)
    assert "div_1" not in single.scores.corpus
    sets = score({i: [c, "a cat", c] for i, c in CANDIDATES.items()}, REFERENCES)
    assert {"div_1", "div_2", "mbleu_4", "self_cider", "recall_cider_d", "oracle_cider_d"} <= set(
        sets.scores.corpus
    )
    assert sets["oracle_rouge_l"] >= sets["rouge_l"]  # type: ignore[operator]
    assert sets.of("rouge_l")["1"][0] == pytest.approx(single.of("rouge_l")["1"][0])


def test_metrics_by_the_names_people_write() -> None:
    assert chosen_metrics(["BLEU-4", "ROUGE-L", "CIDEr-D", "recall"]) == {
        "bleu",
        "rouge_l",
        "cider_d",
        "coverage",
    }
    with pytest.raises(ConfigError, match=r"(?s)no metric 'cidr'.*did you mean cider\?"):
        chosen_metrics(["cidr"])
    with pytest.raises(ConfigError, match="no metric ''"):
        chosen_metrics([""])
    with pytest.raises(ConfigError, match="no metrics were named"):
        chosen_metrics([])


def test_the_list_of_metrics_is_the_engines() -> None:
    assert set(COUNTED) == {*by_engine.SENTENCE, *by_engine.SET, *by_engine.SAID}
    assert set(METRICS) == {*COUNTED, "meteor", "spice"}


def test_frequencies_of_another_corpus_and_training_captions() -> None:
    corpus = {str(i): ["a cat", "the dog runs"] for i in range(9)}
    result = score(
        CANDIDATES, REFERENCES, metrics=["cider_d", "novel"], df=corpus, training=["a bus", "a dog"]
    )
    assert "df:corpus(9 images" in result.scores.corpus["cider_d"].signature
    assert result["novel"] == pytest.approx(2 / 3), "'a bus' is a training caption"


def test_what_was_odd_is_in_the_result() -> None:
    result = score({**CANDIDATES, "9": "no one"}, REFERENCES)
    assert result.ids == ["1", "2", "3"]
    assert any(
        "1 of 4 ids of the candidates are not in the references (first: '9')" in n for n in result.notes
    )


class StandIn:
    """SPICE that answers at once, or fails as told."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def counts(self, pairs: list, progress: object = None) -> np.ndarray:
        if self.error is not None:
            raise self.error
        counts = np.zeros((len(pairs), len(KINDS), 3), dtype=np.int32)
        counts[:, 0] = 1
        counts[1:, 1] = (1, 0, 1)
        return counts


class StandInForMeteor:
    """Counts a caption's words as matched when a reference has them."""

    def statistics_lines(self, said: list[str], true: list[list[str]], go_on: object) -> np.ndarray:
        rows = np.zeros((len(said), len(METEOR_COLUMNS)), dtype=np.int32)
        for row, line, refs in zip(rows, said, true, strict=True):
            words, first = line.split(), refs[0].split()
            row[:2] = len(words), len(first)
            row[4] = row[5] = len(set(words) & set(first))
            row[20] = 1
        return rows


def test_meteor_of_the_corpus_is_that_of_the_sums(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Meteor, "load", classmethod(lambda cls: StandInForMeteor()))
    sets = {i: [c, "a cat"] for i, c in CANDIDATES.items()}
    result = score(sets, REFERENCES, metrics=["meteor"], bootstrap=20)
    each = [value for values in result.of("meteor").values() for value in values]
    assert len(each) == 6
    assert result["mean_meteor"] == pytest.approx(np.mean(each))
    rows = result.scores.statistics["meteor"].rows
    assert rows.shape == (3, len(METEOR_COLUMNS))
    assert result["meteor"] == pytest.approx(float(meteor_score(rows.sum(0))))
    assert result["meteor"] != pytest.approx(result["mean_meteor"])
    result.save(tmp_path / "a.json")
    assert read_result(tmp_path / "a.json").kept.scores["meteor"].value == result["meteor"]


@pytest.mark.parametrize("kind", ["python", "java"])
def test_meteor_that_is_not_set_up_names_the_command(
    kind: Literal["python", "java"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path))
    result = score(CANDIDATES, REFERENCES, meteor=kind)
    assert result["meteor"] is None
    assert "caplore setup meteor" in str(result.scores.corpus["meteor"].note)
    assert result["rouge_l"] is not None


def test_meteor_of_the_demo(shared: Path) -> None:
    if not is_set_up():
        pytest.skip("METEOR is not set up: caplore setup meteor")
    fixture = shared / "data/fixtures/fakecap.json"
    assert score(fixture, fixture, metrics=["meteor"])["meteor"] == pytest.approx(0.1953, abs=5e-5)


def spice_is(monkeypatch: pytest.MonkeyPatch, stand_in: StandIn) -> None:
    monkeypatch.setattr(Spice, "installed", classmethod(lambda cls, **options: stand_in))


def test_spice_and_its_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    spice_is(monkeypatch, StandIn())
    result = score(CANDIDATES, REFERENCES, metrics=["spice", "rouge_l"])
    assert result["spice"] == pytest.approx(0.5)
    assert result["spice_object"] == pytest.approx(2 / 3), "of the two captions whose references have objects"
    assert "spice_relation" not in result.scores.corpus, "no caption has a reference with relations"
    assert result.spice is not None
    of_object = result.spice.of(1)["Object"]
    assert {key: of_object[key] for key in ("tp", "fp", "fn", "pr", "re", "numImages")} == {
        "tp": 1.0, "fp": 0.0, "fn": 1.0, "pr": 1.0, "re": 0.5, "numImages": 1.0,
    }  # fmt: skip
    assert of_object["f"] == pytest.approx(2 / 3)
    assert np.isnan(result.spice.of(0)["Object"]["f"])


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (CaploreError("it broke", fix="mend it"), "it broke: mend it"),
        (TimeLimit("its time limit of 60 s was over after 1 of 3 captions"), "time limit of 60 s"),
        (KeyboardInterrupt(), "interrupted; the same command goes on"),
    ],
)
def test_spice_never_takes_the_other_scores_with_it(
    error: BaseException, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spice_is(monkeypatch, StandIn(error))
    result = score(CANDIDATES, REFERENCES, metrics=["spice", "rouge_l"])
    assert result["spice"] is None
    assert why in str(result.scores.corpus["spice"].note)
    assert result["rouge_l"] is not None
    json.dumps(result.to_json(), allow_nan=False)


def test_spice_that_is_not_set_up_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path))
    monkeypatch.setattr("caplore.metrics.spice.find_java", lambda: None)
    result = score(CANDIDATES, REFERENCES, metrics=["spice"])
    assert "caplore setup spice" in str(result.scores.corpus["spice"].note)


def test_a_saved_result_can_be_read_again_to_the_last_digit(tmp_path: Path) -> None:
    result = score({i: [c, "a cat"] for i, c in CANDIDATES.items()}, REFERENCES, bootstrap=50)
    result.save(tmp_path / "out.json")
    stored = read_result(tmp_path / "out.json")
    assert stored.kept.ids == result.ids
    assert set(stored.kept.scores) == set(result.scores.statistics)
    for name, statistics in stored.kept.scores.items():
        assert statistics.value == result[name], name
        low, high = stored.scores[name]["interval"]
        assert low <= high
    assert json.loads((tmp_path / "out.json").read_text())["format"] == "caplore-score-1"


def test_intervals_hold_the_score_and_shrink_with_more_inputs() -> None:
    def width(copies: int) -> float:
        candidates = {f"{i}-{k}": c for k in range(copies) for i, c in CANDIDATES.items()}
        references = {f"{i}-{k}": r for k in range(copies) for i, r in REFERENCES.items()}
        result = score(candidates, references, metrics=["rouge_l"], bootstrap=200)
        low, high = result.intervals["rouge_l"]
        assert low <= result["rouge_l"] <= high  # type: ignore[operator]
        return high - low

    assert width(20) < 0.5 * width(2)


def test_statistics_of_several_ways_of_decoding(tmp_path: Path) -> None:
    result = score(CANDIDATES, REFERENCES)
    write_statistics(tmp_path / "test.json", result.ids, {"beam": result.scores.statistics, "rs": {}})
    kept = read_statistics(tmp_path / "test.json")
    assert kept.scores["beam/bleu_4"].value == result["bleu_4"]
    with pytest.raises(ValueError, match="rows"):
        write_statistics(tmp_path / "test.json", ["1"], {"beam": result.scores.statistics})


@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_damaged_statistics_are_said(damage: str, tmp_path: Path) -> None:
    score(CANDIDATES, REFERENCES).save(tmp_path / "a.json")
    path = statistics_path(tmp_path / "a.json")
    if damage == "gone":
        path.unlink()
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    if damage == "other":
        path.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    with pytest.raises(InputError):
        read_statistics(tmp_path / "a.json")


def test_a_pipe_is_not_replaced_by_a_result(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe is no file"):
        score(CANDIDATES, REFERENCES, metrics=["bleu"]).save(tmp_path / "pipe")
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]
