"""MSVD and MSR-VTT: short clips with many sentences each.

MSVD      captions.json [{id, split, captions}], or AllVideoDescriptions.txt (clip <space> sentence), or the
          original video_corpus.csv (VideoID, Start, End, Language, Description: English is kept);
          splits from {train,val,test}_list.txt, else the usual first 1,200 / 100 / 670 of youtube_mapping.txt
MSR-VTT   train_val_videodatainfo.json, test_videodatainfo.json: {"videos": [...], "sentences": [...]}
"""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from caplore.data.importers.flickr import read_split_lists
from caplore.data.importers.source import (
    Finding,
    Item,
    Source,
    known_split,
    lines_of,
    media_folder_in,
    records_of,
    text_of,
    texts_of,
    the_file,
)
from caplore.errors import InputError
from caplore.files import read_json, read_text

MSVD_MEDIA = ("YouTubeClips", "videos", "clips", "media")
MSVD_USUAL = (("train", 1200), ("val", 100), ("test", 670))
MSRVTT_MEDIA = ("videos/all", "videos", "TrainValVideo", "media")


def read_msvd(folder: Path, media: Path | None = None) -> Source:
    path = the_file(
        folder, ("captions.json", "AllVideoDescriptions.txt", "*video_corpus*.csv"), "MSVD's captions"
    )
    source = Source("msvd", "clip", [], media or media_folder_in(folder, MSVD_MEDIA))
    if path.suffix == ".json":
        source.items = list(_listed(path, source.findings))
        return source
    captions: dict[str, list[str]] = {}
    for clip, caption in _described(path, source.findings) if path.suffix == ".txt" else _corpus(path):
        captions.setdefault(clip, []).append(caption)
    split_of = _msvd_splits(folder, source)
    source.items = [
        Item(clip, split_of.get(clip), f"{clip}.avi", said, path.name) for clip, said in captions.items()
    ]
    return source


def _listed(path: Path, findings: list[Finding]) -> Iterator[Item]:
    content = read_json(path, "captions")
    if not isinstance(content, list):
        raise InputError(f"{path} is not a list of clips")
    for number, row in enumerate(content):
        where = f"{path.name}[{number}]"
        try:
            name = text_of(row["id"])
            item = Item(name, known_split(row["split"]), f"{name}.avi", texts_of(row["captions"]), where)
        except (KeyError, TypeError):
            findings.append(Finding("malformed", where, str(row)[:100]))
            continue
        yield item


def _described(path: Path, findings: list[Finding]) -> Iterator[tuple[str, str]]:
    for number, line in lines_of(path, "descriptions"):
        if line.startswith("#"):
            continue
        clip, space, caption = line.strip().partition(" ")
        if space:
            yield clip, caption
        else:
            findings.append(Finding("malformed", f"{path.name}, line {number}", line[:100]))


def _corpus(path: Path) -> Iterator[tuple[str, str]]:
    for row in csv.DictReader(io.StringIO(read_text(path, "video corpus"))):
        try:
            if row["Language"] == "English" and row["Description"]:
                yield f"{row['VideoID']}_{row['Start']}_{row['End']}", row["Description"]
        except KeyError as error:
            raise InputError(f"{path} has no column {error.args[0]!r}") from None


def _msvd_splits(folder: Path, source: Source) -> dict[str, str]:
    """By the lists that are there, else by the usual counts in the order of youtube_mapping.txt (clip <space> vid1)."""
    names = {"train": "train_list.txt", "val": "val*_list.txt", "test": "test_list.txt"}
    lists = {split: sorted(folder.glob(pattern)) for split, pattern in names.items()}
    if any(lists.values()):
        return read_split_lists(lists, source)
    mapping = folder / "youtube_mapping.txt"
    if not mapping.is_file():
        return {}
    numbered = [line.split() for _, line in lines_of(mapping, "mapping")]
    in_order = sorted((int(vid.removeprefix("vid")), clip) for clip, vid in numbered)
    splits = (split for split, count in MSVD_USUAL for _ in range(count))
    return {clip: split for (_, clip), split in zip(in_order, splits, strict=False)}


def read_msrvtt(path: Path, media: Path | None = None) -> Source:
    files = (
        [path] if path.is_file() else sorted({*path.glob("*videodatainfo*.json"), *path.glob("MSRVTT*.json")})
    )
    if not files:
        raise InputError(f"{path} has no MSR-VTT captions (looked for *videodatainfo*.json, MSRVTT*.json)")
    folder = path if path.is_dir() else path.parent
    source = Source("msrvtt", "clip", [], media or media_folder_in(folder, MSRVTT_MEDIA))
    for file in files:
        content = read_json(file, "captions")
        if not isinstance(content, dict) or not {"videos", "sentences"} <= set(content):
            raise InputError(f"{file} is not an MSR-VTT file: it has no videos and sentences")
        source.items += _msrvtt_items(file, content, source.findings)
    return source


def _msrvtt_items(path: Path, content: dict[str, Any], findings: list[Finding]) -> Iterable[Item]:
    items: dict[str, Item] = {}
    for number, row in enumerate(records_of(content, "videos", path)):
        where = f"{path.name} videos[{number}]"
        try:
            name, split = text_of(row["video_id"]), known_split(row["split"])
        except (KeyError, TypeError):
            findings.append(Finding("malformed", where, str(row)[:100]))
            continue
        items[name] = Item(name, split, f"{name}.mp4", [], where)
    for number, row in enumerate(records_of(content, "sentences", path)):
        try:
            items[text_of(row["video_id"])].captions.append(text_of(row["caption"]))
        except TypeError:
            findings.append(Finding("malformed", f"{path.name} sentences[{number}]", str(row)[:100]))
        except KeyError:
            findings.append(Finding("caption-of-nothing", f"{path.name} sentences[{number}]", str(row)[:100]))
    return items.values()
