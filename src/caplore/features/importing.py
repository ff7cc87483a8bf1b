"""Features that were computed elsewhere, into a feature store.

    one array for all    .npy (memory-mapped), .npz, .h5 (extra `h5`): [inputs, dim] pooled, [inputs, n, dim] regions;
                         a file with the ids of its rows: one per line, a JSON list, or JSONL with "id"
    one array per input  a folder of <id>.npy or <id>.npz, or an .h5 with a data set per id

Values are kept as fp16, or as int8 with a scale where they are int8 already (`scale`: value = int8 * scale).
Where an encoder of ours is shown to give the same vectors (`agreement`), the store names it, and models trained
on the imported features can caption new pictures.
"""

import contextlib
import gzip
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from caplore.data.importers.own import CLIPS, PICTURES
from caplore.errors import InputError, MissingError
from caplore.features.encoder import Encoder
from caplore.features.encoding import encode_files
from caplore.features.store import FeatureStore, StoreWriter, move_store, remove_store
from caplore.files import digest_of, digest_of_file, read_json, read_text

CHUNK = 2048  # rows per shard
H5 = (".h5", ".hdf5")
ARRAYS = (".npy", ".npz", *H5)
INNER = ("feat", "features", "x", "arr_0")  # what the array in an .npz or .h5 is usually called


@dataclass(frozen=True)
class Table:
    """Features of many inputs: rows by id. `read(ids)` gives [ids, dim] or [ids, n, dim]."""

    path: Path
    ids: Sequence[str]
    kind: str
    shape: tuple[int, ...]
    read: Callable[[Sequence[str]], np.ndarray]


def import_features(
    to: Path,
    wanted: Sequence[str],
    tables: Sequence[Table],
    *,
    name: str,
    scale: float | None = None,
    encoder: Encoder | None = None,
) -> tuple[FeatureStore, list[str]]:
    """Write the features of the wanted inputs; also the ids that some table has none of (they stay out).

    `encoder` is the one that made them, where that is known.
    """
    kinds = [table.kind for table in tables]
    if not tables or len(set(kinds)) < len(kinds):
        raise InputError(
            f"{' and '.join(str(t.path) for t in tables) or 'no file'}: one table of pooled vectors [inputs, dim] "
            f"and/or one of regions [inputs, n, dim] is needed, got {', '.join(kinds) or 'none'}"
        )
    tables = [_by_id(table, wanted) for table in tables]
    there = set(wanted).intersection(*(table.ids for table in tables))
    ids = [one for one in wanted if one in there]
    if not ids:
        raise InputError(
            f"{tables[0].path} has features for none of the {len(wanted)} inputs "
            f"(its first: {next(iter(tables[0].ids), None)!r}; an input: {next(iter(wanted), None)!r})",
            fix="give the ids of its rows with --feature-rows: those of the inputs, or the names of their files",
        )
    made_by = encoder.description if encoder else {"name": name, "family": "imported", "weights": None}
    imported = [{"file": str(table.path), "digest": _fingerprint(table.path)} for table in tables]
    beside = to.with_name(
        f"{to.name}.importing"
    )  # features of this name that are there stay until these are whole
    remove_store(beside)
    writer = StoreWriter(beside, {**made_by, "imported": imported})
    left = [one for one in wanted if one not in there]
    bad = [{"id": one, "file": None, "reason": "not in the imported features"} for one in left]
    try:
        for start in range(0, len(ids), CHUNK):
            some = ids[start : start + CHUNK]
            chunk: dict[str, torch.Tensor] = {}
            for table in tables:
                chunk |= _tensors(table, some, scale)
            writer.add(some, chunk)
        return move_store(writer.finish(bad), to), left
    finally:
        remove_store(beside)
        with contextlib.suppress(OSError):  # something of somebody else's is in it
            beside.rmdir()


def _by_id(table: Table, wanted: Sequence[str]) -> Table:
    """The table with ids of inputs where it has their files' names: dog.jpg for dog, COCO's long names for numbers."""
    inputs = set(wanted)
    named: dict[str, str] = {}
    for given in table.ids:
        one = next((name for name in _readings(given) if name in inputs), given)
        if one in named:
            twice = f"{given!r}" if named[one] == given else f"{named[one]!r} and {given!r}"
            raise InputError(
                f"{table.path} has two rows for one input ({twice})", fix="give each input one row"
            )
        named[one] = given
    return replace(table, ids=list(named), read=lambda ids: table.read([named[one] for one in ids]))


def _readings(name: str) -> Iterator[str]:
    """What a row's name may mean, the likeliest first."""
    yield name
    stem = name if Path(name).suffix.lower() not in PICTURES + CLIPS else str(Path(name).with_suffix(""))
    yield stem
    number = re.fullmatch(r"(?:.*/)?COCO_[a-z]+\d{4}_(\d+)|0*(\d+)", stem)
    if number:
        yield str(int(number[1] or number[2]))


def _tensors(table: Table, ids: Sequence[str], scale: float | None) -> dict[str, torch.Tensor]:
    values = np.ascontiguousarray(table.read(ids))
    if values.dtype == np.int8:
        if scale is None:
            raise InputError(
                f"{table.path} holds int8 values",
                fix="give what they are to be multiplied by: --feature-scale",
            )
        kept = torch.from_numpy(values)
        return {table.kind: kept, f"{table.kind}.scale": torch.full((len(ids),), scale, dtype=torch.float32)}
    if values.dtype.kind not in "fiu":
        raise InputError(f"{table.path} holds {values.dtype} values, not numbers")
    floats = torch.from_numpy(values.astype(np.float32) * (1.0 if scale is None else scale))
    wrong = (~floats.to(torch.float16).isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
    if wrong:
        raise InputError(
            f"{table.path}: {len(wrong)} rows are nan or too large for 16 bits (first: {ids[wrong[0]]!r})",
            fix="mend or scale them (--feature-scale 0.01)",
        )
    return {table.kind: floats}


def _fingerprint(path: Path) -> str:
    """The file's checksum; a folder's, of the names and sizes in it."""
    if path.is_file():
        return digest_of_file(path)[:16]
    return digest_of(*(f"{file.name}:{file.stat().st_size}" for file in sorted(path.iterdir())))


def agreement(table: Table, encoder: Encoder, files: Mapping[str, Path]) -> float:
    """The lowest cosine between a table's pooled vectors and what the encoder says of the same inputs' files."""
    said = {path: row for path, row in encode_files(files.values(), encoder) if not isinstance(row, str)}
    cosines = []
    for one, path in files.items():
        ours = said[path]["pooled"] if path in said else torch.zeros(1)
        theirs = torch.from_numpy(table.read([one])[0].astype(np.float32))
        same_size = ours.shape == theirs.shape
        cosines.append(float(torch.cosine_similarity(ours, theirs, dim=0)) if same_size else 0.0)
    return min(cosines, default=0.0)


def read_ids(path: Path) -> list[str]:
    """Ids in row order: a line each; a JSON list of ids or of objects with an id; JSONL with "id" (gzipped or not)."""
    inner = path.with_suffix("") if path.suffix == ".gz" else path
    try:
        text = (
            gzip.decompress(path.read_bytes()).decode()
            if path.suffix == ".gz"
            else read_text(path, "ids of rows")
        )
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error})") from None
    try:
        if inner.suffix == ".json":
            rows = read_json(path) if inner is path else json.loads(text)
            if not isinstance(rows, list):
                raise TypeError(f"it is a JSON {type(rows).__name__}")
            return [_id(row) for row in rows]
        if inner.suffix == ".jsonl":
            return [_id(json.loads(line)) for line in text.splitlines() if line.strip()]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a list of ids, nor of objects with an id ({error!r})") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _id(row: Any) -> str:
    return str(row["id"]) if isinstance(row, dict) else str(row)


def open_table(path: Path, rows: Sequence[str] | None = None) -> Table:
    """Any of the forms above, by what it is. `rows` names the rows of one array for all."""
    if path.is_dir():
        return _folder(path)
    if path.suffix.lower() not in ARRAYS:
        raise InputError(f"{path} is no feature file", fix=f"give a folder, or one of {', '.join(ARRAYS)}")
    if not path.is_file():
        raise InputError(f"feature file not found: {path}", fix="check the path")
    if path.suffix.lower() in H5:
        return _h5(path, rows)
    return _array(path, _numpy(path, mapped=True), rows)


def _numpy(path: Path, *, mapped: bool = False) -> np.ndarray:
    """An .npy, or the one array in an .npz; nothing pickled."""
    try:
        if mapped and path.suffix.lower() == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        with path.open(
            "rb"
        ) as data:  # numpy leaves a file that it opened itself open, where it is no archive
            loaded = np.load(data, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else loaded[_inner(path, list(loaded.files))]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"feature file {path} cannot be read ({error})", fix="it is damaged or cut off: copy it again"
        ) from None


def _inner(path: Path, names: Sequence[str]) -> str:
    found = names[0] if len(names) == 1 else next((name for name in INNER if name in names), None)
    if found is None:
        raise InputError(
            f"{path} holds several arrays ({', '.join(names)[:200]}), none of them called {', '.join(INNER)}"
        )
    return found


def _array(path: Path, values: Any, rows: Sequence[str] | None) -> Table:
    if rows is None:
        raise InputError(f"{path} has no ids", fix="give the ids of its rows, in order: --feature-rows FILE")
    if values.ndim not in (2, 3):
        raise InputError(
            f"{path} has the shape {values.shape}: features are [inputs, dim] or [inputs, n, dim]"
        )
    if len(rows) != len(values):
        raise InputError(f"{path} has {len(values)} rows, but there are {len(rows)} ids for them")
    row_of = {name: row for row, name in enumerate(rows)}

    def read(ids: Sequence[str]) -> np.ndarray:
        numbers = np.array([row_of[one] for one in ids])
        order = np.argsort(numbers, kind="stable")  # h5 wants ascending rows, and discs like them
        return np.asarray(values[numbers[order]])[np.argsort(order, kind="stable")]

    return Table(path, rows, _kind(values.ndim - 1), tuple(values.shape[1:]), read)


def _kind(axes: int) -> str:
    return "pooled" if axes == 1 else "regions"


def _h5(path: Path, rows: Sequence[str] | None) -> Table:
    try:
        import h5py
    except ImportError:
        raise MissingError(
            f"reading {path} needs h5py, which is not installed", fix="pip install 'h5py>=3.12'"
        ) from None
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"feature file {path} cannot be read ({error})") from None
    names = [name for name, value in file.items() if isinstance(value, h5py.Dataset)]
    if rows is not None:
        return _array(path, file[_inner(path, names)], rows)
    return _per_input(path, names, lambda name: np.asarray(file[name]))


def _folder(path: Path) -> Table:
    files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix.lower() in (".npy", ".npz")}
    return _per_input(path, list(files), lambda name: _numpy(files[name]))


def _per_input(path: Path, ids: Sequence[str], read_one: Callable[[str], np.ndarray]) -> Table:
    """One array per input: [dim], or [n, dim] (or [h, w, dim], flattened to cells) with the same n for all."""
    if not ids:
        raise InputError(f"{path} has no features in it (looked for an .npy, .npz or data set per input)")

    def row(name: str) -> np.ndarray:
        value = read_one(name)
        return value.reshape(-1, value.shape[-1]) if value.ndim == 3 else value

    shape = row(ids[0]).shape
    if len(shape) not in (1, 2):
        raise InputError(f"{path}: {ids[0]!r} has the shape {shape}: features are [dim] or [n, dim]")

    def read(some: Sequence[str]) -> np.ndarray:
        values = [row(name) for name in some]
        odd = next((name for name, value in zip(some, values, strict=True) if value.shape != shape), None)
        if odd is not None:
            raise InputError(
                f"{path}: {odd!r} has the shape {row(odd).shape}, {ids[0]!r} has {shape}: all inputs need the same",
                fix="use features with a fixed number of regions (36 per picture, or a grid)",
            )
        return np.stack(values)

    return Table(path, ids, _kind(len(shape)), tuple(shape), read)
