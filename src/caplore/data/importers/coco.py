"""COCO in its two usual forms: the official annotation JSON, and Karpathy's split JSON (also Flickr8k and Flickr30k).

    official   captions_train2014.json  {"images": [{id, file_name}], "annotations": [{image_id, caption}]}
    Karpathy   dataset_coco.json        {"images": [{filename, filepath?, split, sentences: [{raw}]}]}

In Karpathy's split, `restval` (30,504 images of COCO's validation set) is trained on, as everybody does.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caplore.data.importers.source import Finding, Item, Source, known_split, records_of, text_of, texts_of
from caplore.errors import InputError
from caplore.files import read_json


def read_coco(path: Path, media: Path | None = None, *, name: str = "coco") -> Source:
    """A JSON file, or a folder that holds some; `media` is the folder of the pictures (default: beside the JSON).

    Karpathy's files come three in one archive: `name` says whose is meant.
    """
    files = [path] if path.is_file() else _annotation_files(path, name)
    beside = path if path.is_dir() else path.parent
    # COCO's own archives unpack to annotations/, train2017/, val2017/ side by side.
    folder = media or (beside.absolute().parent if beside.absolute().name == "annotations" else beside)
    source = Source(name=name, media="image", items=[], media_folder=folder)
    for file in files:
        content = read_json(file, "annotations")
        if not isinstance(content, dict) or not isinstance(content.get("images"), list):
            raise InputError(
                f"{file} is not a COCO annotation file: it has no list of images",
                fix="captions are in captions_train2014.json and its like, or in Karpathy's dataset_coco.json",
            )
        if "annotations" in content:
            source.items += _official(file, content, source.findings, folder)
        else:
            source.name = str(content.get("dataset", name))
            source.items += _karpathy(file, content, source.findings)
    return source


def _annotation_files(folder: Path, name: str) -> list[Path]:
    """Karpathy's file where there is one (it has every caption already), else all official caption files."""
    karpathy = folder / f"dataset_{name}.json"
    if karpathy.is_file():
        return [karpathy]
    official = sorted({*folder.glob("captions_*.json"), *folder.glob("annotations/captions_*.json")})
    if not official:
        raise InputError(
            f"{folder} has no COCO captions "
            f"(looked for {karpathy.name}, captions_*.json, annotations/captions_*.json)",
            fix="give the folder or the JSON file itself",
        )
    return official


def _official(path: Path, content: dict[str, Any], findings: list[Finding], media: Path) -> Iterator[Item]:
    """One split per file, named by the file; pictures lie in the folder named like it (train2014/), or right there."""
    name = path.stem.removeprefix("captions_")
    split = next((s for s in ("train", "val", "test") if name.startswith(s)), "train")
    prefix = f"{name}/" if (media / name).is_dir() else ""
    captions: dict[str, list[str]] = defaultdict(list)
    annotations = records_of(content, "annotations", path)
    if annotations and not any(isinstance(row, dict) and "caption" in row for row in annotations):
        raise InputError(
            f"{path}: none of its {len(annotations)} annotations has a caption",
            fix="captions are in captions_train2014.json and its like; instances and person_keypoints are boxes",
        )
    for number, row in enumerate(annotations):
        try:
            image, caption = text_of(row["image_id"]), text_of(row["caption"])
        except (KeyError, TypeError):
            findings.append(Finding("malformed", f"{path.name} annotations[{number}]", str(row)[:100]))
            continue
        captions[image].append(caption)
    for number, row in enumerate(content["images"]):
        where = f"{path.name} images[{number}]"
        try:
            name = text_of(row["id"])
            item = Item(name, split, prefix + row["file_name"], captions.pop(name, []), where)
        except (KeyError, TypeError):
            findings.append(Finding("malformed", where, str(row)[:100]))
            continue
        yield item
    for image, orphans in captions.items():
        findings.append(Finding("caption-of-nothing", image, f"{path.name}: {orphans[0]}"))


def _karpathy(path: Path, content: dict[str, Any], findings: list[Finding]) -> Iterator[Item]:
    for number, row in enumerate(content["images"]):
        where = f"{path.name} images[{number}]"
        try:
            folder = row.get("filepath", "")
            file = f"{folder}/{row['filename']}" if folder else row["filename"]
            name = text_of(row.get("cocoid", Path(row["filename"]).stem))
            captions = texts_of([sentence["raw"] for sentence in row["sentences"]])
            item = Item(name, known_split(row["split"]), file, captions, where)
        except (KeyError, TypeError, AttributeError):
            findings.append(Finding("malformed", where, str(row)[:100]))
            continue
        yield item
