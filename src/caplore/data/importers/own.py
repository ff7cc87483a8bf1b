"""Your own pictures or clips: a folder, or a CSV, TSV or JSONL file that names them.

    folder   captions.csv / .tsv / .jsonl in it; else a text file beside each picture (dog.jpg, dog.txt: a caption
             per line). Sub-folders called train, val and test are the splits, if there are any.
    csv/tsv  a header line, then a row per caption (or per picture); columns: file, caption, and if you like id, split
    jsonl    {"file": "dog.jpg", "captions": ["a dog", ...]} per line; "caption" and "id", "split" as well

A row that cannot be understood is listed and left out, whatever is wrong with it; the others are read.
"""

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from caplore.data.dataset import Media
from caplore.data.importers.source import Finding, Item, Source, known_split, text_of, texts_of
from caplore.errors import InputError
from caplore.files import read_json, read_text

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".jp2", ".avif", ".heic")
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
TABLES = (
    "captions.jsonl",
    "captions.csv",
    "captions.tsv",
    "captions.json",
    "captions.txt",
    "metadata.jsonl",
    "metadata.csv",
)
DELIMITERS = {".tsv": "\t", ".tab": "\t"}
USUAL_DELIMITERS = ",;\t"  # of a .csv: spreadsheets write semicolons where the comma is the decimal point


def read_own(path: Path, media: Path | None = None) -> Source:
    """A folder or a table, told apart by what it is; files are relative to `media`, or to where the table lies."""
    if path.is_dir():
        table = next((path / name for name in TABLES if (path / name).is_file()), None)
        return read_table(table, media or path) if table else _sidecars(path)
    return read_table(path, media or path.parent)


def read_table(path: Path, media: Path) -> Source:
    source = Source(path.parent.resolve().name or path.stem, "image", [], media)
    as_json = path.suffix.lower() in (".jsonl", ".json", ".ndjson")
    rows = _objects(path, source.findings) if as_json else _csv(path, source.findings)
    items: dict[str, Item] = {}
    for where, row in rows:
        try:
            file, captions = _file_in(_text(row.get("file")), media), _captions(row.get("caption"))
            split = known_split(_text(row.get("split"))) or None
            name = _text(row.get("id")) or _id_of(file)
            if not name:
                raise TypeError(f"neither a file nor an id: {str(dict(row))[:80]}")
        except (TypeError, ValueError) as error:  # ValueError: a path without a name, like "."
            source.findings.append(Finding("malformed", where, str(error)))
            continue
        item = items.setdefault(name, Item(name, split, file or None, [], where))
        if file and item.file and file != item.file:
            source.findings.append(
                Finding("duplicate-id", name, f"{item.file} ({item.where}) and {file} ({where})")
            )
            continue
        item.split = item.split or split
        if split and split != item.split:
            source.findings.append(Finding("in-two-splits", name, f"{item.split}, and {split} by {where}"))
        item.captions += captions
    source.items = list(items.values())
    source.media = media_kind([item.file for item in source.items if item.file], path)
    return source


def _file_in(file: str, media: Path) -> str:
    """A path as it is called inside the media folder: made relative, with our slashes where it came from Windows."""
    if "\\" in file and not os.path.isfile(media / file):
        file = PureWindowsPath(file).as_posix()
    for folder in (media.absolute(), media.resolve()):
        if Path(file).is_relative_to(folder):
            return Path(file).relative_to(folder).as_posix()
    return file


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


def _objects(path: Path, findings: list[Finding]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a JSONL file, or of a JSON file that is one list of them."""
    for where, row in _json_list(path) if _is_list(path) else _json_lines(path, findings):
        if isinstance(row, dict):
            yield (
                where,
                {
                    ours: row[theirs]
                    for ours, names in NAMES.items()
                    for theirs in names[::-1]
                    if theirs in row
                },
            )
        else:
            findings.append(Finding("malformed", where, f"not a JSON object: {str(row)[:80]}"))


def _is_list(path: Path) -> bool:
    return path.suffix.lower() == ".json" and read_text(path, "captions").lstrip()[:1] == "["


def _json_list(path: Path) -> Iterator[tuple[str, Any]]:
    for number, row in enumerate(read_json(path, "captions")):
        yield f"{path.name}[{number}]", row


def _json_lines(path: Path, findings: list[Finding]) -> Iterator[tuple[str, Any]]:
    # Not lines_of: JSON strings may hold characters that splitlines takes for line ends.
    for number, line in enumerate(read_text(path, "captions").split("\n"), start=1):
        where = f"{path.name}, line {number}"
        if not line.strip():
            continue
        try:
            yield where, json.loads(line)
        except (ValueError, RecursionError) as error:
            findings.append(Finding("malformed", where, f"not valid JSON ({error}): {line[:80]}"))


def _csv(path: Path, findings: list[Finding]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    text = read_text(path, "captions")
    delimiter, header, column = _header(path, text)
    csv.field_size_limit(2**24)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        next(reader)
        before = reader.line_num
        for row in reader:
            where, first, before = f"{path.name}, line {reader.line_num}", before + 1, reader.line_num
            if not row:
                continue
            trouble = _trouble(row, header, delimiter)
            if trouble:
                lines = (
                    where if first == reader.line_num else f"{path.name}, lines {first} to {reader.line_num}"
                )
                findings.append(Finding("malformed", lines, trouble))
                continue
            yield where, {name: row[at] for name, at in column.items() if at < len(row)}
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num} is not valid CSV ({error})") from None


def _header(path: Path, text: str) -> tuple[str, list[str], dict[str, int]]:
    """The delimiter, the names in the first line, and where those we know stand."""
    delimiters = DELIMITERS.get(path.suffix.lower(), USUAL_DELIMITERS)
    for delimiter in delimiters:
        header = [
            name.strip().lower() for name in next(csv.reader(io.StringIO(text), delimiter=delimiter), [])
        ]
        column = {
            ours: header.index(theirs)
            for ours, names in NAMES.items()
            for theirs in names[::-1]
            if theirs in header
        }
        if "caption" in column and {"file", "id"} & set(column):
            return delimiter, header, column
    first = text.partition("\n")[0].strip()[:200]
    raise InputError(
        f"{path}: its first line names no file and caption column, but {first or 'nothing'}",
        fix=f"name them in the first line, for example: file{'<tab>' if delimiters == chr(9) else ','}caption",
    )


def _trouble(row: Sequence[str], header: Sequence[str], delimiter: str) -> str | None:
    """What would make a row mean something else than its writer meant: never guessed at."""
    called = {",": "comma", ";": "semicolon"}.get(delimiter, "tab")
    if any(cell.strip() for cell in row[len(header) :]):
        return (
            f"{len(row)} columns, {len(header)} in the first line; a caption with a {called} in it needs quotes: "
            f"{delimiter.join(row)[:100]}"
        )
    for cell in row:
        for line in cell.split("\n")[1:]:
            parts = [Path(part.strip()).suffix.lower() for part in line.split(delimiter)]
            if len(parts) > 1 and set(parts) & {*PICTURES, *CLIPS}:
                return f'a quote (") that is opened here takes in the rows that follow: {cell[:60]!r}'
    return None


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
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.suffix.lower() in PICTURES + CLIPS)
    files = sorted(folder / p for p in found if not any(part.startswith(".") for part in p.parts))
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
        top = known_split(inside.parts[0])
        split = top if len(inside.parts) > 1 and top in ("train", "val", "test") else None
        items.append(Item(_id_of(inside.as_posix()), split, inside.as_posix(), captions, text.name))
    return Source(folder.resolve().name, media_kind([i.file or "" for i in items], folder), items, folder)
