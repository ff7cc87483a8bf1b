"""The drop-in for COCOEvalCap: its attributes, its names, its numbers."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from caplore.errors import InputError
from caplore.evaluation.scoring import Progress
from caplore.integrations.coco import COCO, COCOEvalCap
from caplore.metrics.spice import Spice

ANNOTATIONS = {
    "images": [{"id": 7}, {"id": 42}, {"id": 99}],
    "annotations": [
        {"id": 1, "image_id": 42, "caption": "a cat sits on a mat"},
        {"id": 2, "image_id": 42, "caption": "the cat is on a mat"},
        {"id": 3, "image_id": 7, "caption": "two dogs run"},
        {"id": 4, "image_id": 99, "caption": "a red bus"},
    ],
}
RESULTS = [{"image_id": 42, "caption": "a cat on a mat"}, {"image_id": 7, "caption": "dogs"}]
FAST = ("bleu", "rouge_l", "cider_d")


@pytest.fixture
def coco(tmp_path: Path) -> COCO:
    (tmp_path / "annotations.json").write_text(json.dumps(ANNOTATIONS))
    return COCO(tmp_path / "annotations.json")


def test_a_script_for_pycocoevalcap_runs(
    coco: COCO, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    evaluation = COCOEvalCap(coco, coco.loadRes(str(tmp_path / "results.json")), metrics=FAST)
    assert evaluation.params == {"image_id": [7, 42, 99]}
    evaluation.params["image_id"] = evaluation.cocoRes.getImgIds()
    evaluation.evaluate()
    assert list(evaluation.eval) == ["Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4", "ROUGE_L", "CIDEr"]
    assert set(evaluation.imgToEval) == {42, 7}
    assert evaluation.imgToEval[42]["image_id"] == 42
    assert evaluation.imgToEval[42]["ROUGE_L"] > evaluation.imgToEval[7]["ROUGE_L"]
    assert evaluation.evalImgs == list(evaluation.imgToEval.values())
    mean = sum(row["CIDEr"] for row in evaluation.evalImgs) / 2
    assert evaluation.eval["CIDEr"] == pytest.approx(mean)
    assert f"ROUGE_L: {evaluation.eval['ROUGE_L']:0.3f}" in capsys.readouterr().out


def test_what_is_not_set_up_is_nan_and_said(
    coco: COCO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAPLORE_CACHE", str(tmp_path))
    evaluation = COCOEvalCap(coco, coco.loadRes([*RESULTS, {"image_id": 99, "caption": "a bus"}]))
    evaluation.evaluate()
    assert math.isnan(evaluation.eval["SPICE"])
    assert "SPICE: not computed: " in capsys.readouterr().out
    assert evaluation.eval["Bleu_1"] > 0


def test_spice_tells_how_far_it_is(
    coco: COCO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class StandIn:
        def counts(self, pairs: list, progress: Progress) -> np.ndarray:
            progress(1, len(pairs))
            return np.ones((len(pairs), 7, 3), dtype=np.int32)

    monkeypatch.setattr(Spice, "installed", classmethod(lambda cls, **options: StandIn()))
    evaluation = COCOEvalCap(coco, coco.loadRes(RESULTS), metrics=["spice"])
    evaluation.params["image_id"] = evaluation.cocoRes.getImgIds()
    evaluation.evaluate()
    assert "SPICE: 1 of 2 captions" in capsys.readouterr().out
    assert evaluation.imgToEval[42]["SPICE"]["All"]["f"] == pytest.approx(0.5)


def test_images_without_a_caption_are_an_error_that_says_what_to_do(coco: COCO) -> None:
    with pytest.raises(InputError, match=r"1 of 3 images have no caption \(first: 99\)"):
        COCOEvalCap(coco, coco.loadRes(RESULTS)).evaluate()
    twice = coco.loadRes([*RESULTS, RESULTS[0]])
    evaluation = COCOEvalCap(coco, twice)
    evaluation.params["image_id"] = [42, 7]
    with pytest.raises(InputError, match=r"several captions \(first: 42\)"):
        evaluation.evaluate()


def test_results_for_other_images_are_refused(coco: COCO, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1 of 1 images are not in the annotations \(first: 5\)"):
        coco.loadRes([{"image_id": 5, "caption": "x"}])
    with pytest.raises(InputError, match="is not a caption annotation"):
        coco.loadRes([{"image_id": 42}])
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(InputError, match="no list 'annotations'"):
        COCO(tmp_path / "x.json")


def test_pycocotools_objects_do_as_well(coco: COCO, tmp_path: Path) -> None:
    theirs = pytest.importorskip("pycocotools.coco").COCO(str(tmp_path / "annotations.json"))
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    one = COCOEvalCap(theirs, theirs.loadRes(str(tmp_path / "results.json")), metrics=FAST)
    other = COCOEvalCap(coco, coco.loadRes(RESULTS), metrics=FAST)
    for evaluation in (one, other):
        evaluation.params["image_id"] = [42, 7]
        evaluation.evaluate()
    assert one.eval == other.eval
    assert one.imgToEval == other.imgToEval


@pytest.mark.java
def test_the_same_numbers_as_pycocoevalcap(shared: Path, tmp_path: Path) -> None:
    """40 COCO pictures, one caption of each against the others: every score of every image."""
    pytest.importorskip("pycocoevalcap.eval")
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    value = json.loads((shared / "data/coco-mini/captions_val2017.json").read_text())
    first: dict[int, dict] = {}
    for row in value["annotations"]:
        first.setdefault(row["image_id"], row)
    value["annotations"] = [row for row in value["annotations"] if first[row["image_id"]] is not row]
    (tmp_path / "refs.json").write_text(json.dumps(value))
    coco = COCO(tmp_path / "refs.json")
    said = coco.loadRes([{"image_id": i, "caption": row["caption"]} for i, row in first.items()])
    evaluation = COCOEvalCap(coco, said, metrics=FAST)
    evaluation.evaluate()
    ids = coco.getImgIds()
    gts = PTBTokenizer().tokenize({i: coco.imgToAnns[i] for i in ids})
    res = PTBTokenizer().tokenize({i: said.imgToAnns[i] for i in ids})
    for scorer, names in (
        (Bleu(4), [f"Bleu_{n}" for n in (1, 2, 3, 4)]),
        (Rouge(), ["ROUGE_L"]),
        (Cider(), ["CIDEr"]),
    ):
        value, values = scorer.compute_score(gts, res)
        corpus, each = (value, values) if isinstance(value, list) else ([value], [values])
        for name, whole, of_images in zip(names, corpus, each, strict=True):
            assert evaluation.eval[name] == pytest.approx(whole, abs=1e-6), name
            ours = [evaluation.imgToEval[i][name] for i in gts]
            assert ours == pytest.approx(list(of_images), abs=1e-6), name
