"""Your own pictures or clips: a folder, or a CSV, TSV or JSONL file that names them.

    folder   captions.csv / .tsv / .jsonl in it; else a text file beside each picture (dog.jpg, dog.txt: a caption
             per line). Sub-folders called train, val and test are the splits, if there are any.
    csv/tsv  a header line, then a row per caption (or per picture); columns: file, caption, and if you like id, split
    jsonl    {"file": "dog.jpg", "captions": ["a dog", ...]} per line; "caption" and "id", "split" as well

Without splits of your own, each input's split follows from a hash of its id: the same every time, on every
machine, and unchanged by inputs that are added later.
"""

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from caplore.data.dataset import Media
from caplore.data.importers.source import SPLITS, Finding, Item, Source, text_of, texts_of
from caplore.errors import ConfigError, InputError
from caplore.files import read_jsonl, read_text

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".jp2", ".avif")
CLIPS = (
    ".gif",
    ".mp4",
    ".webm",
    ".avi",
    ".mkv",
    ".mov",
    ".m4v",
    ".mpg",
    ".mpeg",
    ".ts",
    ".flv",
    ".wmv",
    ".ogv",
)
NAMES = {  # what a column or key may be called
    "file": (
        "file",
        "image",
        "video",
        "filename",
        "file_name",
        "path",
        "image_path",
        "picture",
        "clip",
        "gif",
    ),
    "caption": ("caption", "captions", "text", "sentence", "description", "title"),
    "id": ("id", "image_id", "video_id", "key"),
    "split": ("split", "set", "subset", "partition"),
}
TABLES = ("captions.jsonl", "captions.csv", "captions.tsv", "metadata.jsonl", "metadata.csv")


def read_own(path: Path, media: Path | None = None) -> Source:
    """A folder or a table, told apart by what it is; files are relative to `media`, or to where the table lies."""
    if path.is_dir():
        table = next((path / name for name in TABLES if (path / name).is_file()), None)
        return read_table(table, media or path) if table else _sidecars(path)
    return read_table(path, media or path.parent)


def read_table(path: Path, media: Path) -> Source:
    rows = _jsonl(path) if path.suffix.lower() in (".jsonl", ".json", ".ndjson") else _csv(path)
    source = Source(path.parent.name or path.stem, "image", [], media)
    items: dict[str, Item] = {}
    for number, row in rows:
        where = f"{path.name}, line {number}"
        try:
            file, captions, split = (
                _text(row.get("file")),
                _captions(row.get("caption")),
                _text(row.get("split")),
            )
            name = _text(row.get("id")) or _id_of(file)
            if not name:
                raise TypeError(f"neither a file nor an id: {str(dict(row))[:80]}")
        except (TypeError, ValueError) as error:  # ValueError: a path without a name, like "."
            source.findings.append(Finding("malformed", where, str(error)))
            continue
        item = items.setdefault(name, Item(name, SPLITS.get(split, split) or None, file or None, [], where))
        if file and item.file and file != item.file:
            source.findings.append(
                Finding("duplicate-id", name, f"{item.file} ({item.where}) and {file} ({where})")
            )
            continue
        item.captions += captions
    source.items = list(items.values())
    source.media = media_kind([item.file for item in source.items if item.file], path)
    return source


def media_kind(files: Sequence[str], where: Path) -> Media:
    """Pictures or clips, by their suffixes; a mixture is an error, as one data set has one kind."""
    suffixes = [Path(file).suffix.lower() for file in files]
    clips = sum(suffix in CLIPS for suffix in suffixes)
    if 0 < clips < len(suffixes):
        picture = next(f for f, s in zip(files, suffixes, strict=True) if s not in CLIPS)
        clip = next(f for f, s in zip(files, suffixes, strict=True) if s in CLIPS)
        raise InputError(
            f"{where} names pictures and clips ({picture}, {clip}): a data set has one kind",
            fix="import them as two data sets",
        )
    return "clip" if clips else ("image" if files else "none")


def _jsonl(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, row in read_jsonl(path, "captions"):
        yield (
            number,
            {ours: row[theirs] for ours, names in NAMES.items() for theirs in names[::-1] if theirs in row},
        )


def _csv(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    text = read_text(path, "captions")
    delimiter = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
    csv.field_size_limit(2**24)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        column = {
            ours: header.index(theirs)
            for ours, names in NAMES.items()
            for theirs in names[::-1]
            if theirs in header
        }
        if "caption" not in column or not {"file", "id"} & set(column):
            raise InputError(
                f"{path}: its first line names no file and caption column, but {', '.join(header)[:200] or 'nothing'}",
                fix=f"name them in the first line, for example: file{'<tab>' if delimiter == chr(9) else ','}caption",
            )
        for row in reader:
            if row:
                yield reader.line_num, {name: row[at] for name, at in column.items() if at < len(row)}
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num} is not valid CSV ({error})") from None


def _text(value: Any) -> str:
    return "" if value is None else text_of(value).strip()


def _captions(value: Any) -> list[str]:
    if value is None:
        return []
    return texts_of(value) if isinstance(value, list) else [text_of(value)]


def _id_of(file: str) -> str:
    """A path as an id: without its suffix, with its folders."""
    return Path(file).with_suffix("").as_posix() if file else ""


def _sidecars(folder: Path) -> Source:
    """Pictures or clips with a text file beside each."""
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in PICTURES + CLIPS)
    if not files:
        raise InputError(
            f"{folder} has no pictures or clips, and no table of captions",
            fix=f"put one of {', '.join(TABLES[:3])} in it; see docs/data.md",
        )
    items = []
    for file in files:
        inside = file.relative_to(folder)
        text = file.with_suffix(".txt")
        captions = read_text(text, "captions").splitlines() if text.is_file() else []
        top = SPLITS.get(inside.parts[0], inside.parts[0])
        split = top if len(inside.parts) > 1 and top in ("train", "val", "test") else None
        items.append(Item(_id_of(inside.as_posix()), split, inside.as_posix(), captions, text.name))
    return Source(folder.resolve().name, media_kind([i.file or "" for i in items], folder), items, folder)


def split_by_hash(name: str, *, val: float, test: float, seed: int = 0) -> str:
    """The split of an id: sha256 of it as a number in [0, 1), test below `test`, val in the next `val`."""
    if val < 0 or test < 0 or val + test >= 1:
        raise ConfigError(
            f"--val {val} and --test {test} leave nothing to train on", fix="--val 0.1 --test 0.1"
        )
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if share < test else "val" if share < test + val else "train"


def give_splits(items: Sequence[Item], *, val: float, test: float, seed: int = 0) -> None:
    """Fill in the splits by hash; one that chance left empty gets an input of the largest, by hash as well."""
    by_split: dict[str, list[Item]] = {"train": [], "val": [], "test": []}
    for item in items:
        item.split = split_by_hash(item.id, val=val, test=test, seed=seed)
        by_split[item.split].append(item)
    for split, share in (("train", 1.0), ("val", val), ("test", test)):
        largest = max(by_split.values(), key=len)
        if share > 0 and not by_split[split] and len(largest) > 1:
            moved = min(
                largest, key=lambda item: hashlib.sha256(f"{seed}:{split}:{item.id}".encode()).digest()
            )
            largest.remove(moved)
            by_split[split].append(moved)
            moved.split = split
