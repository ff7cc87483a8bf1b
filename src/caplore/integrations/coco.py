"""Drop-in for pycocoevalcap and for the part of pycocotools it needs: an existing script changes its imports.

    from caplore.integrations.coco import COCO, COCOEvalCap     # was: pycocotools.coco, pycocoevalcap.eval

    coco = COCO("captions_val2014.json")
    evaluation = COCOEvalCap(coco, coco.loadRes("results.json"))
    evaluation.params["image_id"] = evaluation.cocoRes.getImgIds()
    evaluation.evaluate()
    evaluation.eval["CIDEr"], evaluation.imgToEval[42]["SPICE"]["All"]["f"]

pycocotools' own COCO objects do as well. The names and numbers are coco-caption's: what is called "CIDEr"
there is CIDEr-D. A score that could not be computed is printed with its reason and is nan, so that a script
that formats every score still runs; METEOR and SPICE are computed when they are set up (caplore doctor).
"""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from caplore.errors import InputError
from caplore.evaluation.scoring import Result, chosen_metrics, score
from caplore.files import read_json

NAMES = {
    **{f"Bleu_{n}": f"bleu_{n}" for n in (1, 2, 3, 4)},
    "METEOR": "meteor",
    "ROUGE_L": "rouge_l",
    "CIDEr": "cider_d",
    "SPICE": "spice",
}
METRICS = ("bleu", "meteor", "rouge_l", "cider_d", "spice")

Annotation = dict[str, Any]


class COCO:
    """Caption annotations: the calls of pycocotools' class of the same name that evaluation scripts make."""

    def __init__(self, annotation_file: str | Path | None = None) -> None:
        self.dataset: dict[str, Any] = {}
        self.anns: dict[Any, Annotation] = {}
        self.imgs: dict[Any, dict[str, Any]] = {}
        self.imgToAnns: defaultdict[Any, list[Annotation]] = defaultdict(list)
        if annotation_file is not None:
            value = read_json(Path(annotation_file), "annotations")
            if not isinstance(value, dict) or not isinstance(value.get("annotations"), list):
                raise InputError(
                    f"{annotation_file} is not an annotation file of COCO: it has no list 'annotations'"
                )
            self.dataset = value
            self._index(str(annotation_file))

    def _index(self, name: str) -> None:
        try:
            for position, row in enumerate(self.dataset["annotations"], start=1):
                self.anns[row.get("id", position)] = row
                self.imgToAnns[row["image_id"]].append(row)
                row["caption"].strip()
            self.imgs = {row["id"]: row for row in self.dataset.get("images", [])}
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{name}: entry {len(self.anns)} is not a caption annotation ({error!r})",
                fix='each needs {"image_id": 42, "caption": "..."}',
            ) from None
        for image in self.imgToAnns:
            self.imgs.setdefault(image, {"id": image})

    def getImgIds(self) -> list[Any]:
        return list(self.imgs)

    def loadRes(self, results: str | Path | Sequence[Annotation]) -> "COCO":
        """Captions for images of this set, from a file or a list of {"image_id": ..., "caption": ...}."""
        name = str(results) if isinstance(results, str | Path) else "the results"
        rows = read_json(Path(results), "results") if isinstance(results, str | Path) else list(results)
        if not isinstance(rows, list):
            raise InputError(f"{name} is not a list of results")
        found = COCO()
        found.dataset = {"annotations": [dict(row) for row in rows if isinstance(row, dict)], "images": []}
        if len(found.dataset["annotations"]) < len(rows):
            raise InputError(f"{name} has entries that are not objects")
        for number, row in enumerate(found.dataset["annotations"], start=1):
            row["id"] = number
        found._index(name)
        unknown = [image for image in found.imgToAnns if image not in self.imgs]
        if unknown:
            raise InputError(
                f"{name}: {len(unknown):,} of {len(found.imgToAnns):,} images are not in the annotations "
                f"(first: {unknown[0]!r})",
                fix="load the annotations of the split that was captioned",
            )
        return found


def _tell(done: int, total: int) -> None:
    """SPICE takes minutes; it calls after each part of about one."""
    print(f"SPICE: {done:,} of {total:,} captions", flush=True)


class COCOEvalCap:
    """Every score of coco-caption for one caption per image. `result` has more: signatures, statistics, notes."""

    def __init__(self, coco: Any, cocoRes: Any, metrics: Collection[str] = METRICS) -> None:
        self.coco, self.cocoRes = coco, cocoRes
        self.params: dict[str, Any] = {"image_id": coco.getImgIds()}
        self.eval: dict[str, float] = {}
        self.imgToEval: dict[Any, dict[str, Any]] = {}
        self.evalImgs: list[dict[str, Any]] = []
        self.result: Result | None = None
        self._metrics = chosen_metrics(metrics) or frozenset(METRICS)

    def evaluate(self) -> None:
        """Score `params["image_id"]`; fills eval, imgToEval and evalImgs, and prints each score."""
        images = list(self.params["image_id"])
        said = {image: self._captions(self.cocoRes, image) for image in images}
        self._require_one_each(said)
        references = {str(image): self._captions(self.coco, image) for image in images}
        candidates = {str(image): texts for image, texts in said.items()}
        self.result = score(candidates, references, metrics=self._metrics, progress=_tell)
        for note in self.result.notes:
            print(f"note: {note}")
        of = {str(image): image for image in images}
        self.imgToEval = {of[name]: {"image_id": of[name]} for name in self.result.ids}
        for name, key in NAMES.items():
            if key in self.result.scores.corpus:
                self._fill(name, key, self.result)
        self.evalImgs = list(self.imgToEval.values())

    @staticmethod
    def _captions(coco: Any, image: Any) -> list[str]:
        return [row["caption"] for row in coco.imgToAnns.get(image, [])]

    @staticmethod
    def _require_one_each(said: dict[Any, list[str]]) -> None:
        missing = [image for image, captions in said.items() if not captions]
        if missing:
            raise InputError(
                f"{len(missing):,} of {len(said):,} images have no caption (first: {missing[0]!r})",
                fix='evaluation.params["image_id"] = cocoRes.getImgIds() scores those that have one',
            )
        several = [image for image, captions in said.items() if len(captions) > 1]
        if several:
            raise InputError(
                f"{len(several):,} of {len(said):,} images have several captions (first: {several[0]!r})",
                fix="caplore.evaluation.score scores sets of captions",
            )

    def _fill(self, name: str, key: str, result: Result) -> None:
        found = result.scores.corpus[key]
        self.eval[name] = math.nan if found.value is None else found.value
        if found.value is None:
            print(f"{name}: not computed: {found.note}")
            return
        print(f"{name}: {found.value:0.3f}")
        values = result.scores.captions[key].tolist()
        for i, row in enumerate(self.imgToEval.values()):
            row[name] = values[i] if result.spice is None or key != "spice" else result.spice.of(i)
