"""`text_scores` against the goldens of the reference implementations, and on what users bring."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caplore.errors import ConfigError, InputError
from caplore.metrics.bootstrap import bootstrap
from caplore.metrics.scores import Scores
from caplore.metrics.scoring import corpus_frequencies, text_scores
from caplore.native import native

GOLDEN = json.loads((Path(__file__).parent / "golden_metrics.json").read_text(encoding="utf-8"))
CLOSE = 1e-9  # float64 on both sides
SENTENCE = ("bleu", "rouge_l", "cider_d")


@pytest.fixture(autouse=True, params=["compiled", "torch"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything here holds whoever counts."""
    if request.param == "torch":
        monkeypatch.setenv("CAPLORE_NATIVE", "0")
    elif native("caplore.metrics._counts") is None:
        pytest.skip("caplore.metrics._counts was not built, or is switched off")
    return request.param


def words(captions: list[list[str]]) -> list[list[list[str]]]:
    return [[caption.split(" ") if caption else [] for caption in some] for some in captions]


@pytest.mark.parametrize("slot", [0, 1, 2])
@pytest.mark.parametrize("name", GOLDEN["cases"])
def test_captions_and_corpus_equal_the_reference_implementation(name: str, slot: int) -> None:
    case = GOLDEN["cases"][name]
    candidates = [[some[slot]] for some in case["candidates"]]
    scores = text_scores(words(candidates), words(case["references"]), metrics=SENTENCE)
    for metric, wanted in case["slots"][slot].items():
        assert scores.captions[metric].tolist() == pytest.approx(wanted["captions"], abs=CLOSE), metric
        assert scores.corpus[metric].value == pytest.approx(wanted["corpus"], abs=CLOSE), metric


@pytest.mark.parametrize("name", GOLDEN["cases"])
def test_sets_equal_the_reference_implementation(name: str) -> None:
    case = GOLDEN["cases"][name]
    scores = text_scores(words(case["candidates"]), words(case["references"]), metrics=(*SENTENCE, "mbleu"))
    for n in (1, 2, 3, 4):
        assert scores.corpus[f"mbleu_{n}"].value == pytest.approx(case["mbleu"][n - 1], abs=CLOSE)
    for metric in ("cider_d", "rouge_l", "bleu_4"):
        slots = [slot[metric]["captions"] for slot in case["slots"]]
        sets = list(zip(*slots, strict=True))
        assert scores.of(metric) == [pytest.approx(of_input, abs=CLOSE) for of_input in sets]
        mean = sum(map(sum, slots)) / len(sets) / 3
        best = sum(map(max, sets)) / len(sets)
        name_of_mean = metric if metric != "bleu_4" else "mean_bleu_4"
        assert scores.corpus[name_of_mean].value == pytest.approx(mean, abs=CLOSE)
        assert scores.corpus[f"oracle_{metric}"].value == pytest.approx(best, abs=CLOSE)


def test_the_published_scores_of_the_fixture(shared: Path) -> None:
    rows = json.loads((shared / "data" / "fixtures" / "fakecap.json").read_text())
    scores = text_scores([r["candidates"] for r in rows], [r["references"] for r in rows], metrics=SENTENCE)
    published = {"bleu_1": 0.5794, "bleu_2": 0.4044, "bleu_3": 0.2785, "bleu_4": 0.1908}
    for name, value in {**published, "rouge_l": 0.3963, "cider_d": 0.5998}.items():
        assert scores.corpus[name].value == pytest.approx(value, abs=5.1e-5), name


def ordinary() -> tuple[list[list[str]], list[list[str]]]:
    case = GOLDEN["cases"]["ordinary"]
    return case["candidates"], case["references"]


def values(scores: Scores) -> dict[str, float | None]:
    return {name: score.value for name, score in scores.corpus.items()}


def test_every_score_is_that_of_its_statistics_and_lies_in_its_interval() -> None:
    candidates, references = ordinary()
    scores = text_scores(candidates, references, training=references[0])
    assert {"div_1", "self_cider", "recall_cider_d", "f1_cider_d", "distinct", "length", "novel"} <= set(
        scores.corpus
    )
    for name, statistics in scores.statistics.items():
        interval = bootstrap(statistics, draws=200)
        assert statistics.value == scores.corpus[name].value
        assert interval.low - 0.05 <= statistics.value <= interval.high + 0.05
    assert set(scores.corpus) - set(scores.statistics) == {"vocabulary"}
    assert all("|caplore:" in score.signature for score in scores.corpus.values())
    assert len({score.signature for score in scores.corpus.values()}) == len(scores.corpus)


def test_inputs_in_another_order_and_in_small_parts_score_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates, references = ordinary()
    wanted = text_scores(candidates, references)
    monkeypatch.setattr("caplore.metrics.padded._ELEMENTS", 3 * 10**4)
    turned = text_scores(candidates[::-1], references[::-1])
    assert values(turned) == pytest.approx(values(wanted))
    assert {s.signature for s in turned.corpus.values()} == {s.signature for s in wanted.corpus.values()}
    assert turned.of("cider_d")[::-1] == [pytest.approx(v) for v in wanted.of("cider_d")]


def test_more_words_than_keys_can_hold_score_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the limit were 30 words: the captions are renumbered, the frequencies ranked by pairs."""
    candidates, references = ordinary()
    many = [[c + f" only{i}" for c in some] for i, some in enumerate(candidates)]
    wanted = text_scores(many, references)
    monkeypatch.setattr("caplore.metrics.padded.MOST_WORDS", 60)
    monkeypatch.setattr("caplore.metrics.ngrams.MOST_WORDS", 20)
    assert values(text_scores(many, references)) == pytest.approx(values(wanted))


def test_real_captions_with_a_hundred_thousand_words() -> None:
    """More words than sixteen bits can name, each image with words of its own."""
    rows = [[f"w{i * 7 + j} is near the w{i * 7 + j + 1} of" for j in range(5)] for i in range(10_000)]
    few = slice(0, 40)
    scores = text_scores(words([r[:1] for r in rows]), words([r[1:] for r in rows]), metrics=SENTENCE)
    alone = text_scores(
        words([r[:1] for r in rows[few]]), words([r[1:] for r in rows[few]]), metrics=["bleu", "rouge_l"]
    )
    assert scores.of("bleu_4")[few] == alone.of("bleu_4")
    assert scores.of("rouge_l")[few] == alone.of("rouge_l")
    assert scores.captions["cider_d"].std() < 1e-9  # all images are alike but for the names of their words
    assert scores.captions["cider_d"].min() > 0.1


def test_frequencies_of_a_corpus_make_one_image_mean_something() -> None:
    candidates, references = ordinary()
    alone = text_scores(candidates[:1], references[:1], metrics=["cider_d"])
    assert alone.corpus["cider_d"].value == 0
    assert "one image" in str(alone.corpus["cider_d"].note)
    df = corpus_frequencies(references, name="all")
    known = text_scores(candidates[:1], references[:1], metrics=["cider_d"], df=df)
    whole = text_scores(candidates, references, metrics=["cider_d"])
    assert known.of("cider_d")[0] == pytest.approx(whole.of("cider_d")[0])
    assert "|df:all(30 images, " in known.corpus["cider_d"].signature
    assert dict(df.lexicon) == dict(
        corpus_frequencies(references, name="all").lexicon
    )  # scoring left it alone


def test_a_corpus_score_of_sets_pools_their_captions_whatever_their_number() -> None:
    candidates, references = ordinary()
    ragged = [some[: 1 + i % 3] for i, some in enumerate(candidates)]
    sets = text_scores(ragged, references, metrics=["bleu", "rouge_l"])
    singles = [[caption] for some in ragged for caption in some]
    repeated = [refs for some, refs in zip(ragged, references, strict=True) for _ in some]
    pooled = text_scores(singles, repeated, metrics=["bleu", "rouge_l"])
    assert sets.captions["rouge_l"].tolist() == pooled.captions["rouge_l"].tolist()
    for n in (1, 2, 3, 4):
        assert sets.corpus[f"bleu_{n}"].value == pytest.approx(pooled.corpus[f"bleu_{n}"].value, abs=CLOSE)
    means = [sum(values) / len(values) for values in sets.of("rouge_l")]
    assert sets.corpus["rouge_l"].value == pytest.approx(
        sum(means) / len(means)
    )  # each input counts the same


def test_sets_by_hand() -> None:
    candidates = [["a dog runs", "a dog runs", "the"], ["a cat"]]
    references = [["a dog runs fast"], ["a cat", "two cats"]]
    metrics = ("div", "distinct", "length", "bad_endings", "vocabulary", "novel", "coverage")
    found = values(
        text_scores(
            words(candidates), words(references), metrics=metrics, training=[["a", "cat"]], covered="rouge_l"
        )
    )
    assert found["div_1"] == pytest.approx((4 / 7 + 2 / 2) / 2)
    assert found["div_2"] == pytest.approx((2 / 7 + 1 / 2) / 2)
    assert found["distinct"] == pytest.approx(3 / 4)
    assert found["length"] == pytest.approx(9 / 4)
    assert found["bad_endings"] == pytest.approx(1 / 4)
    assert found["vocabulary"] == 5
    assert found["novel"] == pytest.approx(3 / 4)
    dog = 2.44 * 1 * 0.75 / (0.75 + 1.44)
    assert found["recall_rouge_l"] == pytest.approx((dog + 1 / 2) / 2)
    assert found["precision_rouge_l"] == pytest.approx((2 * dog / 3 + 1) / 2)


@pytest.mark.parametrize("covered", ["cider_d", "bleu_4", "rouge_l"])
def test_a_set_that_says_all_references_covers_them(covered: Any) -> None:
    _, references = ordinary()
    found = values(text_scores(references, references, metrics=["coverage"], covered=covered))
    most = 10 if covered == "cider_d" else 1
    assert found[f"recall_{covered}"] == pytest.approx(most, rel=0.15)  # some captions have under four words
    half = values(text_scores([r[:2] for r in references], references, metrics=["coverage"], covered=covered))
    assert half[f"recall_{covered}"] < found[f"recall_{covered}"]


def test_self_cider_ranks_sets_by_how_varied_they_are() -> None:
    candidates, references = ordinary()
    same = [[some[0]] * 3 for some in candidates]
    varied = [[some[0] for some in candidates[i : i + 3]] for i in range(27)] + candidates[27:]
    found = [
        values(text_scores(c, references, metrics=["self_cider", "vendi"]))
        for c in (same, candidates, varied)
    ]
    assert found[0]["self_cider"] == pytest.approx(0, abs=1e-6)
    assert found[0]["vendi"] == pytest.approx(1)
    assert 0 < found[1]["self_cider"] < found[2]["self_cider"] <= 1
    assert 1 < found[1]["vendi"] < found[2]["vendi"] <= 3


def test_empty_captions_make_no_nan() -> None:
    scores = text_scores([["", ""], [""]], [["", "a b"], [""]], metrics=None)
    assert all(v is None or v == v for v in values(scores).values())  # nan is not itself
    assert scores.corpus["cider_d"].value == 0


def test_sets_of_one_have_no_set_scores_unless_asked_and_then_say_why() -> None:
    candidates, references = ordinary()
    single = [some[:1] for some in candidates]
    assert not {"div_1", "mbleu_4", "oracle_cider_d"} & set(text_scores(single, references).corpus)
    asked = text_scores(single, references, metrics=["mbleu"])
    assert asked.corpus["mbleu"].value is None
    assert "several captions" in str(asked.corpus["mbleu"].note)


def test_a_metric_from_elsewhere_joins() -> None:
    candidates, references = ordinary()
    scores = text_scores(candidates, references, metrics=["length"])
    scores.add("meteor", np.arange(90.0), "METEOR|v:1.5")
    assert scores.corpus["meteor"].value == pytest.approx(44.5)
    assert scores.corpus["oracle_meteor"].value == pytest.approx(45.5)
    assert scores.corpus["oracle_meteor"].signature == "best-of-3|METEOR|v:1.5"


@pytest.mark.parametrize(
    ("candidates", "references", "says"),
    [
        ([["a"]], [["a"], ["b"]], "captions of 1 inputs and references of 2"),
        ([], [], "not one caption"),
        ([["a"], []], [["a"], ["b"]], "1 of 2 inputs have no caption .first: number 2."),
        ([["a"], ["b"]], [[], ["b"]], "1 of 2 inputs have no reference .first: number 1."),
    ],
)
def test_what_is_missing_is_said(candidates: Any, references: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        text_scores(candidates, references)


def test_an_unknown_metric_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no metric 'blue'(.|\n)*bleu, rouge_l"):
        text_scores([["a"]], [["a"]], metrics=["blue"])
    with pytest.raises(ConfigError, match="training captions"):
        text_scores([["a"]], [["a"]], metrics=["novel"])
