"""The feature store: what an encoder said of each input, in safetensors shards beside an index.

    features/<encoder>/index.json          format, encoder (name, weights hash, preprocessing), ids, shapes, shards
    features/<encoder>/part-00000.safetensors   pooled [rows, dim] and/or regions [rows, regions, dim]
    features/<encoder>/bad.jsonl           inputs that have no features, each with its reason (where there are any)

An input has a pooled vector, or region vectors (grid cells, boxes, temporal segments), or both. Values are
fp16, or int8 with a scale per row (`pooled.scale`): value = int8 * scale. Shards are memory-mapped: a store
larger than memory can be read row by row, by many processes at once. Each shard carries the ids of its rows
and the digest of its encoder, so that encoding goes on after a kill where the last whole shard ended.
"""

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from caplore.errors import InputError
from caplore.files import digest_of, read_json, replacing, write_json, write_jsonl

FORMAT = "caplore-features-1"
KINDS = ("pooled", "regions")


@dataclass(frozen=True)
class FeatureStore:
    """A folder of features, open for reading. `shapes` has "pooled": (dim,) and/or "regions": (n, dim)."""

    path: Path
    ids: tuple[str, ...]
    encoder: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    shards: tuple[tuple[str, int], ...]  # file name, rows

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

    @cached_property
    def _tensors(self) -> list[dict[str, Tensor]]:
        """The shards, memory-mapped: reading a row touches that row's bytes only."""
        return [_mapped(self.path / name, rows, self.shapes) for name, rows in self.shards]

    def __contains__(self, name: object) -> bool:
        return name in self._row_of

    def rows(self, ids: Sequence[str]) -> list[int]:
        """Row numbers of these inputs; an input that was never encoded is an error that counts and names."""
        missing = [name for name in ids if name not in self._row_of]
        if missing:
            raise InputError(
                f"{self.path} has no features for {len(missing)} of {len(ids)} inputs (first: {missing[0]!r})",
                fix="run caplore features on the data set again; it encodes only what is missing",
            )
        return [self._row_of[name] for name in ids]

    def load(self, ids: Sequence[str]) -> dict[str, Float[Tensor, "inputs ..."]]:
        """The features of these inputs, in this order, as fp16: {"pooled": ..., "regions": ...}."""
        found = {k: torch.empty(len(ids), *shape, dtype=torch.float16) for k, shape in self.shapes.items()}
        for shard, here, rows in self._by_shard(np.array(self.rows(ids), dtype=np.int64)):
            for kind, out in found.items():
                out[torch.from_numpy(here)] = _values(shard, kind, torch.from_numpy(rows))
        return found

    def reader(self, ids: Sequence[str]) -> "Reader":
        """For reading some of these inputs at a time, again and again."""
        return Reader(self, np.array(self.rows(ids), dtype=np.int64))

    def bytes_of(self, inputs: int) -> int:
        """What so many inputs take when they are loaded."""
        return inputs * sum(2 * math.prod(shape) for shape in self.shapes.values())

    def _by_shard(
        self, rows: Int[np.ndarray, " inputs"]
    ) -> Iterator[tuple[dict[str, Tensor], Int[np.ndarray, " some"], Int[np.ndarray, " some"]]]:
        """Each shard that holds some of these rows of the store: the tensors, which of the rows, where in the shard."""
        shard, row = self._places(rows)
        order = np.argsort(shard, kind="stable")
        for here in np.split(order, np.flatnonzero(np.diff(shard[order])) + 1):
            if len(here):
                yield self._tensors[shard[here[0]]], here, row[here]

    def _places(
        self, rows: Int[np.ndarray, " inputs"]
    ) -> tuple[Int[np.ndarray, " inputs"], Int[np.ndarray, " inputs"]]:
        """For each of these rows of the store, in which shard it is and where there."""
        starts = np.cumsum([0, *(count for _, count in self.shards)])
        shard = np.searchsorted(starts, rows, side="right") - 1
        return shard, rows - starts[shard]

    @property
    def bad(self) -> Path:
        return self.path / "bad.jsonl"


@dataclass(frozen=True)
class Reader:
    """Reads inputs by their place in a list, as they are stored, into room that is there.

    Made for threads: nothing but copies of memory, row by row, with numpy, which starts no threads of its own for
    them. (A batch has about one row in each shard, so to collect those of a shard first takes longer.)
    """

    store: FeatureStore
    rows: Int[np.ndarray, " inputs"]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def parts(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """The tensors of a batch and what a row of each is; int8 and its scale where all shards have that."""
        found: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
        for kind, shape in self.store.shapes.items():
            small = all(f"{kind}.scale" in shard for shard in self.store._tensors)
            found[kind] = (torch.int8 if small else torch.float16, shape)
            if small:
                found[f"{kind}.scale"] = (torch.float32, ())
        return found

    @cached_property
    def _shards(self) -> dict[str, "list[np.ndarray | _Unpacked]"]:
        """For each of `parts` what gives a row of it, shard by shard."""
        return {
            name: [
                _Unpacked(shard[name].numpy(), shard[f"{name}.scale"].numpy())
                if dtype == torch.float16 and f"{name}.scale" in shard  # of a store that is partly int8
                else shard[name].numpy()
                for shard in self.store._tensors
            ]
            for name, (dtype, _) in self.parts.items()
        }

    @cached_property
    def _places(self) -> tuple[Int[np.ndarray, " inputs"], Int[np.ndarray, " inputs"]]:
        return self.store._places(self.rows)

    def room(self, inputs: int, device: torch.device, *, pinned: bool = False) -> dict[str, Tensor]:
        return {
            name: torch.zeros(inputs, *shape, dtype=dtype, device=device, pin_memory=pinned)
            for name, (dtype, shape) in self.parts.items()
        }

    def read(self, index: Int[np.ndarray, " some"], room: Mapping[str, Tensor]) -> None:
        """Fill the first rows of `room` with the inputs at these places."""
        shard, row = (places[index].tolist() for places in self._places)
        for name, shards in self._shards.items():
            out = room[name].numpy()
            for i, (number, place) in enumerate(zip(shard, row, strict=True)):
                out[i] = shards[number][place]

    @staticmethod
    def values(room: Mapping[str, Tensor]) -> dict[str, Float[Tensor, "inputs ..."]]:
        """What was read, as fp16, wherever it is by now."""
        return {kind: _unpacked(room[kind], room.get(f"{kind}.scale")) for kind in KINDS if kind in room}


@dataclass(frozen=True)
class _Unpacked:
    """Rows of an int8 shard, as fp16."""

    values: Int[np.ndarray, "rows ..."]
    scale: Float[np.ndarray, " rows"]

    def __getitem__(self, row: int) -> Float[np.ndarray, "..."]:
        return (self.values[row].astype(np.float32) * self.scale[row]).astype(np.float16)


def _values(shard: Mapping[str, Tensor], kind: str, rows: Int[Tensor, " some"]) -> Float[Tensor, "some ..."]:
    scale = shard.get(f"{kind}.scale")
    return _unpacked(shard[kind][rows], None if scale is None else scale[rows])


def _unpacked(values: Tensor, scale: Float[Tensor, " rows"] | None) -> Float[Tensor, "rows ..."]:
    if scale is None:
        return values.to(torch.float16)
    return (values.float() * scale.view(-1, *[1] * (values.ndim - 1))).to(torch.float16)


def _mapped(path: Path, rows: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    with _opened(path) as shard:
        tensors = {name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118, not a dict
    for kind, shape in shapes.items():
        if kind not in tensors or tuple(tensors[kind].shape) != (rows, *shape):
            raise InputError(f"feature shard {path} is not the one its index describes ({kind})", fix=_AGAIN)
    return tensors


_AGAIN = "delete the folder it is in and run caplore features (or the import) again"


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise InputError(f"feature shard {path} cannot be read ({error})", fix=_AGAIN) from None


def open_store(path: Path) -> FeatureStore:
    path = Path(path)
    if not (path / "index.json").is_file():
        raise InputError(f"no features at {path}", fix="caplore features DATA --encoder NAME writes them")
    index = read_json(path / "index.json", "feature index")
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise InputError(f"{path}/index.json is not of the format {FORMAT}")
    try:
        return FeatureStore(
            path,
            tuple(index["ids"]),
            index["encoder"],
            {kind: tuple(shape) for kind, shape in index["shapes"].items()},
            tuple((name, rows) for name, rows in index["shards"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"feature index {path}/index.json is malformed ({error!r})", fix=_AGAIN) from None


def folder_name(name: str) -> str:
    """An encoder's name as the name of its folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "features"


def quantised(values: Float[Tensor, "rows ..."], kind: str) -> dict[str, Tensor]:
    """int8 and the scale of each row, the largest value of a row becoming 127: half the size of fp16."""
    scale = values.flatten(1).abs().amax(1).clamp(min=1e-12).float() / 127
    return {
        kind: (values.float() / scale.view(-1, *[1] * (values.ndim - 1))).round().to(torch.int8),
        f"{kind}.scale": scale,
    }


class StoreWriter:
    """Adds shards to a folder, each whole or not there; the index comes last, so half a store is no store.

    Opening a folder where a writer was killed finds the shards it left: `done` has the ids they hold.
    """

    def __init__(self, path: Path, encoder: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.encoder = dict(encoder)
        self._digest = digest_of(json.dumps(self.encoder, sort_keys=True))
        self._shards: list[tuple[str, list[str]]] = []
        self.done: dict[str, int | None] = {}  # ids written so far, and how many bytes their media files had
        self._shapes: dict[str, list[int]] = {}
        for shard in sorted(self.path.glob("part-*.safetensors")):
            self._adopt(shard)

    def _adopt(self, path: Path) -> None:
        with _opened(path) as shard:
            notes = shard.metadata() or {}
            if notes.get("encoder") != self._digest:
                raise InputError(
                    f"{self.path} holds features made in another way (other weights, preprocessing or frames)",
                    fix=f"encode under another name with --name, or start over with --again (it deletes {self.path})",
                )
            there = set(shard.keys())
            shapes = {kind: list(shard.get_slice(kind).get_shape())[1:] for kind in KINDS if kind in there}
        self._same_shapes(shapes)
        self._remember(path.name, json.loads(notes["ids"]), json.loads(notes["bytes"]))

    def _remember(self, shard: str, ids: Sequence[str], sizes: Sequence[int] | None) -> None:
        self._shards.append((shard, list(ids)))
        self.done.update(zip(ids, sizes or itertools.repeat(None, len(ids)), strict=True))

    def _same_shapes(self, shapes: dict[str, list[int]]) -> None:
        if not shapes:
            raise ValueError(f"features have {' and/or '.join(KINDS)}")
        if self._shapes and shapes != self._shapes:
            raise ValueError(f"all features of a store have one shape: {self._shapes} before, {shapes} now")
        self._shapes = shapes

    def add(
        self, ids: Sequence[str], tensors: Mapping[str, Tensor], sizes: Sequence[int] | None = None
    ) -> None:
        """One shard: a row per id. Floats are kept as fp16; int8 comes with `<kind>.scale` [rows].

        `sizes` are the bytes of the media files, by which a file that was replaced later is noticed.
        """
        kept = {
            name: (value if value.dtype == torch.int8 or name.endswith(".scale") else value.to(torch.float16))
            .contiguous()
            .cpu()
            for name, value in tensors.items()
        }
        if any(len(value) != len(ids) for value in kept.values()):
            raise ValueError(
                f"{len(ids)} ids, but {[len(value) for value in kept.values()]} rows of features"
            )
        unknown = set(kept) - {*KINDS, *(f"{kind}.scale" for kind in KINDS)}
        if unknown:
            raise ValueError(f"features are {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")
        self._same_shapes({kind: list(kept[kind].shape[1:]) for kind in KINDS if kind in kept})
        name = f"part-{len(self._shards):05d}.safetensors"
        with replacing(self.path / name) as temporary:
            notes = {"encoder": self._digest, "ids": json.dumps(list(ids)), "bytes": json.dumps(sizes)}
            save_file(kept, temporary, metadata=notes)
        self._remember(name, ids, sizes)

    def finish(self, bad: Iterable[Mapping[str, Any]] = ()) -> FeatureStore:
        """Write the list of bad inputs, then the index."""
        reasons = list(bad)
        if reasons:
            write_jsonl(self.path / "bad.jsonl", reasons)
        else:
            (self.path / "bad.jsonl").unlink(missing_ok=True)
        index = {
            "format": FORMAT,
            "encoder": self.encoder,
            "shapes": self._shapes,
            "shards": [(name, len(ids)) for name, ids in self._shards],
            "ids": [name for _, ids in self._shards for name in ids],
        }
        write_json(self.path / "index.json", index)
        return open_store(self.path)


def write_store(
    path: Path,
    ids: Sequence[str],
    chunks: Iterator[Mapping[str, Float[Tensor, "rows ..."]]],
    *,
    encoder: Mapping[str, Any],
) -> FeatureStore:
    """Write a new store from chunks of rows, in the order of `ids`."""
    remove_store(path)
    writer, written = StoreWriter(path, encoder), 0
    for chunk in chunks:
        rows = len(next(iter(chunk.values()), ()))
        writer.add(ids[written : written + rows], chunk)
        written += rows
    if written != len(ids):
        raise ValueError(f"{len(ids)} ids, but {written} rows of features")
    return writer.finish()


def move_store(store: FeatureStore, to: Path) -> FeatureStore:
    """A whole store to where it belongs, in the place of one that is there; the index comes last here, too."""
    remove_store(to)
    to.mkdir(parents=True, exist_ok=True)
    for file in sorted(store.path.iterdir(), key=lambda file: file.name == "index.json"):
        file.rename(to / file.name)
    return open_store(to)


def remove_store(path: Path) -> None:
    """The index first: what is left if this is interrupted is no store."""
    for pattern in ("index.json", "bad.jsonl", "part-*.safetensors"):
        for file in Path(path).glob(pattern):
            file.unlink()
