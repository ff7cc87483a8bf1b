"""The formats captions come in, as rows of (id, caption). What a file holds decides, its name only helps.

    COCO results        [{"image_id": 42, "caption": "..."}, ...]         several rows of an id are its set
    COCO annotations    {"annotations": [{"image_id": 42, "caption": "..."}, ...], ...}
    Karpathy's file     {"images": [{"cocoid": 42, "split": "test", "sentences": [{"raw": "..."}]}]}
    a mapping           {"42": "..."} or {"42": ["...", "..."]}
    records             [{"id": ..., "captions": [...], "references": [...]}] as JSON, or one a line (JSONL)
    CSV, TSV            a header with an id column and one or more caption columns
    id<tab>caption      as in Flickr8k.token.txt; `name.jpg#0` is input name.jpg
    plain text          one caption a line, the line number is the id
    what a run said     results/test.captions.jsonl:beam, of caplore evaluate
    a caplore data set  DIR or DIR:split

One file may hold both sides: the role says which names of columns and keys are looked for first. Every file
is read or refused with an InputError; none ends in another exception.
"""

import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from caplore.data.dataset import open_dataset
from caplore.errors import InputError
from caplore.files import read_text

Role = Literal["candidates", "references"]
Row = tuple[str, str]  # id, caption

IDS = ("image_id", "video_id", "id", "_id", "cocoid", "imgid", "key", "filename", "file", "image", "video")
SAID = ("caption", "captions", "sentence", "sentences", "text", "raw")
NAMES: dict[Role, tuple[str, ...]] = {
    "candidates": ("candidate", "candidates", "prediction", "predictions", "hypothesis", "hypotheses", *SAID),
    "references": ("reference", "references", "refs", "ref", "ground_truth", "gt", *SAID),
}


def shown(text: str, width: int = 40) -> str:
    """A piece of a file inside a message: quoted and cut."""
    return repr(text if len(text) <= width else text[: width - 3] + "...")


def _json(value: Any) -> str:
    try:
        return shown(json.dumps(value), 60)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


@dataclass(frozen=True)
class Rows:
    rows: list[Row]
    source: str
    by_position: bool = False
    """No ids in the file: the position is the id."""

    @property
    def inputs(self) -> int:
        return len({name for name, _ in self.rows})


def read_rows(source: str, role: Role) -> Rows:
    path, part = _path_and_part(source)
    if os.path.isdir(path):  # unlike Path.is_dir, False for a name that is too long for the file system
        dataset = open_dataset(path)
        inputs = dataset.inputs if part is None else dataset.split(part)
        return Rows([(item.id, caption) for item in inputs for caption in item.captions], source)
    _refuse_archive(path, role)
    text = read_text(path, role)
    kind = _kind(path, text)
    if kind in ("csv", "tsv"):
        rows = _from_table(text, "," if kind == "csv" else "\t", source, role)
    elif kind == "json":
        rows = _from_json(text, str(path), role, part)
    elif kind == "tabs":
        rows = Rows([_numbered(line) for line in _lines(text) if line.strip()], source)
    else:
        rows = Rows(
            [(str(n), line) for n, line in enumerate(_lines(text), start=1)], source, by_position=True
        )
    if not rows.rows:
        raise InputError(f"{source} holds no captions", fix="caplore score --help shows the formats")
    return rows


def _refuse_archive(path: Path, role: Role) -> None:
    """annotations.zip and captions.json.gz are what people download: the bytes are no text in any encoding."""
    if not os.path.isfile(path):  # of a pipe nothing may be read twice
        return
    with contextlib.suppress(OSError), path.open("rb") as file:
        begin = file.read(4)
        for magic, program in ((b"\x1f\x8b", "gunzip -k"), (b"PK\x03\x04", "unzip")):
            if begin.startswith(magic):
                raise InputError(f"{role} {path} is compressed", fix=f"{program} {path}")


def _path_and_part(source: str) -> tuple[Path, str | None]:
    """`DIR:test` is the split test of DIR; a path that exists as it stands is that path."""
    head, _, part = source.rpartition(":")
    if head and part and not os.path.exists(source) and os.path.exists(head):
        return Path(head), part
    return Path(source), None


def _kind(path: Path, text: str) -> Literal["csv", "tsv", "json", "tabs", "text"]:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return "csv" if suffix == ".csv" else "tsv"
    if suffix in (".json", ".jsonl", ".ndjson") or text.lstrip()[:1] in ("[", "{"):
        return "json"
    lines = [line for line in text[:100_000].split("\n")[:100] if line.strip()]
    if lines and all(
        line.count("\t") == 1 and not line.startswith("\t") for line in lines[: max(1, len(lines) - 1)]
    ):
        return "tabs"
    return "text"


def _lines(text: str) -> list[str]:
    """Lines as editors count them: a last line without its end counts, an end at the end adds none."""
    return text.removesuffix("\n").split("\n") if text else []


def _numbered(line: str) -> Row:
    """`1000268201_693b08cb0e.jpg#0<tab>A child ...`: the caption's number is not part of the id."""
    name, _, caption = line.partition("\t")
    return re.sub(r"#\d+$", "", name.strip()), caption


def _from_table(text: str, delimiter: str, source: str, role: Role) -> Rows:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=False)
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        told, columns = _column(header, IDS), _columns(header, NAMES[role])
        if not columns:
            raise InputError(
                f"{source} has no column of captions in its header ({', '.join(map(shown, header[:6]))})",
                fix=f"name the columns, for example id and {NAMES[role][0]}",
            )
        rows: list[Row] = []
        for row, cells in enumerate(reader, start=1):
            if not any(cells):
                continue
            if len(cells) != len(header):
                raise InputError(
                    f"{source}, line {reader.line_num} has {len(cells)} cells, the header {len(header)}",
                    fix="put captions that hold the separator in double quotes",
                )
            name = str(row) if told is None else cells[told].strip()
            said = [cells[column] for column in columns]
            rows += [(name, caption) for caption in said if caption.strip() or len(columns) == 1]
    except csv.Error as error:
        raise InputError(
            f"{source}, line {reader.line_num} is not a table row ({error})",
            fix="put cells that hold the separator, quotes or line breaks in double quotes",
        ) from None
    return Rows(rows, source, by_position=told is None)


def _column(header: Sequence[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _columns(header: Sequence[str], names: Sequence[str]) -> list[int]:
    """The columns called by the first name that is there, alone or numbered: caption, caption_1, caption2."""
    for name in names:
        found = [i for i, cell in enumerate(header) if re.fullmatch(rf"{name}[ _.-]?\d*", cell)]
        if found:
            return found
    return []


def _from_json(text: str, source: str, role: Role, part: str | None) -> Rows:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        value = _json_lines(text, source, error)
    return _Json(source, role, part).rows(value)


def _json_lines(text: str, source: str, as_one: Exception) -> list[Any]:
    """The file as one object a line; where its first line is not even that, the error of the whole file."""
    values = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            why = f"line {number}: {error}" if values else str(as_one)
            raise InputError(
                f"{source} is not valid JSON ({why[:200]})",
                fix="one JSON value, or one object a line; a file that ends early was not written to its end",
            ) from None
    return values


@dataclass(frozen=True)
class _Json:
    """The shapes of JSON that hold captions, read as rows."""

    source: str
    role: Role
    part: str | None
    """After the colon: the split, or the way of decoding."""

    def rows(self, value: Any) -> Rows:
        if isinstance(value, dict):
            if any(key in value for key in IDS):  # one record: a file of one line
                return self._records([value])
            for key in ("annotations", "images", "sentences"):
                inner = value.get(key)
                if isinstance(inner, list) and inner and self._said(inner[0]) is not None:
                    return self._records(inner)
            if "format" in value and str(value["format"]).startswith("caplore-"):
                raise InputError(
                    f"{self.source} holds results ({value['format']}), not captions",
                    fix="give the file of captions that was scored",
                )
            if {"annotations", "images"} & set(value):
                raise InputError(
                    f"{self.source} looks like COCO annotations but has no captions in it",
                    fix="captions are in captions_*.json; instances_*.json and image_info_*.json have none",
                )
            return Rows([(k, text) for k, v in value.items() for text in self._texts(v, k)], self.source)
        if not isinstance(value, list):
            raise InputError(
                f"{self.source} is JSON, but neither a list nor an object",
                fix='[{"id": 42, "caption": "..."}, ...] or {"42": "...", ...}',
            )
        return self._records(value)

    def _records(self, records: list[Any]) -> Rows:
        alike = self._alike(records) if self.part is None else None
        if alike is not None:
            return Rows(alike, self.source)
        rows: list[Row] = []
        without = 0
        for position, record in enumerate(records, start=1):
            if isinstance(record, str | list):
                name, said = None, record
            else:
                said = self._said(record)
                if said is None:
                    raise self._no_caption(record, position)
                if self.part is not None and self.part not in record and record.get("split") != self.part:
                    continue
                name = next((record[key] for key in IDS if record.get(key) is not None), None)
            without += name is None
            key = str(position) if name is None else self._id(name, position)
            rows += [(key, text) for text in self._texts(said, key)]
        if self.part is not None and not rows:
            there = sorted({str(r["split"]) for r in records if isinstance(r, dict) and "split" in r})
            raise InputError(
                f"{self.source} has no entries of split {self.part!r}",
                fix=f"one of {', '.join(map(shown, there[:6]))}" if there else "leave the split out",
            )
        if 0 < without < len(records):
            raise InputError(
                f"{self.source}: {without:,} of {len(records):,} entries have no id",
                fix=f"give every entry an id ({', '.join(IDS[:3])}, ...), or none",
            )
        return Rows(rows, self.source, by_position=without > 0)

    def _alike(self, records: list[Any]) -> list[Row] | None:
        """Of records that all have the same keys, an id and one caption: COCO's 600,000 in a third of a second."""
        if set(map(type, records)) != {dict} or len(set(map(tuple, records))) != 1:
            return None
        key_of_id = next((key for key in IDS if key in records[0]), None)
        key_of_text = next((key for key in NAMES[self.role] if key in records[0]), None)
        names, texts = ([record.get(key) for record in records] for key in (key_of_id, key_of_text))
        if set(map(type, texts)) != {str} or not set(map(type, names)) <= {int, str}:
            return None
        try:
            return list(zip(map(str.strip, map(str, names)), texts, strict=True))
        except ValueError:  # an integer of thousands of digits
            return None

    def _said(self, record: Any) -> Any:
        """What the entry says, under the first name that fits the role; None where it says nothing."""
        if isinstance(record, str):
            return record
        if not isinstance(record, dict):
            return None
        if self.part is not None and self.part in record:
            return record[self.part]
        return next((record[key] for key in NAMES[self.role] if record.get(key) is not None), None)

    def _no_caption(self, record: Any, position: int) -> InputError:
        what = f"{self.source}, entry {position} has no caption: {_json(record)}"
        sets = [k for k, v in record.items() if isinstance(v, list) and v] if isinstance(record, dict) else []
        for way in sets:
            if self._said(record[way][0]) is not None:
                return InputError(what, fix=f"name one of its ways of decoding: {self.source}:{way}")
        return InputError(what, fix='give each entry an id and a caption: {"id": 42, "caption": "..."}')

    def _texts(self, said: Any, name: str) -> list[str]:
        if isinstance(said, str):
            return [said]
        if isinstance(said, list):
            if set(map(type, said)) == {str}:
                return said
            texts = [self._said(item) for item in said]
            if all(isinstance(text, str) for text in texts):
                return texts
        raise InputError(
            f"{self.source}: the captions of {shown(name)} are neither a string nor a list of strings "
            f"({_json(said)})",
            fix='{"id": 42, "caption": "..."} or {"id": 42, "captions": ["...", "..."]}',
        )

    def _id(self, value: Any, position: int) -> str:
        """42, 42.0 and "42" are the same input."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise InputError(
                f"{self.source}, entry {position}: its id is {_json(value)}",
                fix="an id is a text or an integer",
            )
        try:
            return str(value).strip()
        except ValueError:  # an integer of thousands of digits
            raise InputError(
                f"{self.source}, entry {position}: its id is too long a number", fix="write it as a text"
            ) from None


def rows_of(value: Mapping[Any, Any] | Sequence[Any], name: str, role: Role) -> Rows:
    """Rows of a Python value of the shapes JSON has: id -> captions, records, or captions by position."""
    if isinstance(value, Mapping):
        return _Json(name, role, None).rows({str(key): said for key, said in value.items()})
    return _Json(name, role, None).rows(list(value))
