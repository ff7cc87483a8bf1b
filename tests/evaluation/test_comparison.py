"""Two results compared from what is kept beside them."""

import json
import random
from pathlib import Path

import pytest

from caplore.errors import InputError
from caplore.evaluation import score
from caplore.evaluation.comparison import Comparison, Difference, compare
from caplore.evaluation.statistics_io import statistics_path, write_statistics

WORDS = ["a", "the", "cat", "dog", "man", "red", "big", "runs", "sits", "on", "in", "mat", "field"]


def system(seed: int, wrong: float, inputs: int = 60) -> tuple[dict[str, str], dict[str, list[str]]]:
    """References that are the same for every seed, and captions of which a share is noise."""
    fixed, noise = random.Random(0), random.Random(seed)
    references = {str(i): [" ".join(fixed.choices(WORDS, k=7)) for _ in range(3)] for i in range(inputs)}
    said = {
        i: " ".join(noise.choices(WORDS, k=7)) if noise.random() < wrong else r[0]
        for i, r in references.items()
    }
    return said, references


def saved(path: Path, seed: int, wrong: float, **more: object) -> Path:
    score(*system(seed, wrong), **more).save(path)  # type: ignore[arg-type]
    return path


def of(comparison: Comparison, name: str) -> Difference:
    return next(d for d in comparison.differences if d.name == name)


def test_a_better_system_is_better_beyond_chance(tmp_path: Path) -> None:
    comparison = compare(
        saved(tmp_path / "a.json", 1, 0.1), saved(tmp_path / "b.json", 2, 0.7), draws=200, swaps=500
    )
    for name in ("bleu_4", "rouge_l", "cider_d"):
        found = of(comparison, name)
        assert found.difference is not None
        assert found.interval is not None
        assert found.p is not None
        assert found.difference == pytest.approx(found.first - found.second)  # type: ignore[operator]
        assert found.interval[0] > 0
        assert found.p < 0.01
    assert of(comparison, "vocabulary").interval is None
    json.dumps(comparison.to_json(), allow_nan=False)


def test_two_systems_alike_are_not_different(tmp_path: Path) -> None:
    comparison = compare(
        saved(tmp_path / "a.json", 1, 0.4), saved(tmp_path / "b.json", 2, 0.4), draws=200, swaps=500
    )
    found = of(comparison, "cider_d")
    assert found.interval is not None
    assert found.interval[0] < 0 < found.interval[1]
    assert found.p is not None
    assert found.p > 0.05


def test_a_system_against_itself(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.json", 1, 0.4)
    comparison = compare(path, path, draws=50, swaps=50)
    assert {d.difference for d in comparison.differences if d.name != "meteor"} == {0.0}
    assert of(comparison, "meteor").difference in (0.0, None)  # None where it is not set up
    assert of(comparison, "cider_d").p == 1.0


def test_swapping_the_two_turns_every_sign(tmp_path: Path) -> None:
    a, b = saved(tmp_path / "a.json", 1, 0.2), saved(tmp_path / "b.json", 2, 0.5)
    there, back = compare(a, b, draws=50, swaps=50), compare(b, a, draws=50, swaps=50)
    for one, other in zip(there.differences, back.differences, strict=True):
        if one.difference is None:  # METEOR, where it is not set up
            assert one.name == "meteor"
            assert other.difference is None
            continue
        assert one.difference == pytest.approx(-other.difference)  # type: ignore[operator]
        assert one.p == pytest.approx(other.p)


def test_inputs_of_one_only_are_left_out(tmp_path: Path) -> None:
    said, references = system(1, 0.3)
    fewer = dict(list(said.items())[10:][::-1])
    score(said, references, metrics=["rouge_l"]).save(tmp_path / "a.json")
    score(fewer, references, metrics=["rouge_l"]).save(tmp_path / "b.json")
    comparison = compare(tmp_path / "a.json", tmp_path / "b.json", draws=20, swaps=20)
    assert comparison.inputs == 50
    assert "on the 50 inputs both have (60 and 50)" in comparison.notes[0]
    assert of(comparison, "rouge_l").difference == 0.0, "the same captions, in another order"


def test_scores_made_differently_are_not_subtracted(tmp_path: Path) -> None:
    a = saved(tmp_path / "a.json", 1, 0.3)
    b = saved(tmp_path / "b.json", 1, 0.3, df={"1": ["a cat"], "2": ["a dog"]})
    found = of(compare(a, b, draws=20, swaps=20), "cider_d")
    assert found.difference is None
    assert found.note is not None
    assert found.note.startswith("made differently: df:references(60 images")
    assert of(compare(a, b, draws=20, swaps=20), "rouge_l").difference == 0.0


def evaluation(path: Path, seed: int, wrong: float) -> Path:
    """A result as `caplore evaluate` writes it."""
    result = score(*system(seed, wrong), metrics=["rouge_l", "cider_d"])
    decoders = {"beam": {"settings": {}, "scores": result.scores.to_json()}}
    path.write_text(json.dumps({"format": "caplore-evaluation-1", "decoders": decoders}))
    write_statistics(path, result.ids, {"beam": result.scores.statistics})
    return path


def test_results_of_evaluate(tmp_path: Path) -> None:
    a, b = evaluation(tmp_path / "a.json", 1, 0.1), evaluation(tmp_path / "b.json", 2, 0.6)
    assert of(compare(a, b, draws=20, swaps=200), "beam/cider_d").p < 0.05  # type: ignore[operator]
    with pytest.raises(InputError, match="no score in common"):
        compare(a, saved(tmp_path / "c.json", 1, 0.1))


def test_statistics_of_another_run_are_refused(tmp_path: Path) -> None:
    a, b = saved(tmp_path / "a.json", 1, 0.1), saved(tmp_path / "b.json", 2, 0.6)
    statistics_path(a).write_bytes(statistics_path(b).read_bytes())
    with pytest.raises(InputError, match="are of different runs"):
        compare(a, b)


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": "caplore-score-1"}', "no"])
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError):
        compare(tmp_path / "a.json", tmp_path / "a.json")
