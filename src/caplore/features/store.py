"""The feature store: what an encoder said of each input, in safetensors shards beside an index.

    features/<encoder>/index.json          format, encoder (name, weights hash, preprocessing), ids, shapes, shards
    features/<encoder>/part-00000.safetensors   pooled [rows, dim] and/or regions [rows, regions, dim], fp16

An input has a pooled vector, or region vectors (grid cells, boxes, temporal segments), or both.
Shards are memory-mapped: a store larger than memory can be read row by row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from caplore.errors import InputError
from caplore.files import read_json, replacing, write_json

FORMAT = "caplore-features-1"
KINDS = ("pooled", "regions")


@dataclass(frozen=True)
class FeatureStore:
    """A folder of features, open for reading. `shapes` is {"pooled": [dim], "regions": [n, dim]}, what there is of it."""

    path: Path
    ids: tuple[str, ...]
    encoder: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    shards: tuple[tuple[str, int], ...]  # file name, rows

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

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
        """The features of these inputs, in this order, as they are stored (fp16): {"pooled": ..., "regions": ...}."""
        rows = torch.tensor(self.rows(ids), dtype=torch.long)
        found = {k: torch.empty(len(ids), *shape, dtype=torch.float16) for k, shape in self.shapes.items()}
        start = 0
        for name, count in self.shards:
            here = (rows >= start) & (rows < start + count)
            if here.any():
                with _opened(self.path / name) as shard:
                    for kind, out in found.items():
                        out[here] = shard.get_tensor(kind)[rows[here] - start].to(torch.float16)
            start += count
        return found


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"feature shard {path} cannot be read ({error})",
            fix="delete the folder it is in and run caplore features again",
        ) from None


def open_store(path: Path) -> FeatureStore:
    path = Path(path)
    if not (path / "index.json").is_file():
        raise InputError(f"no features at {path}", fix="caplore features DATA --encoder NAME writes them")
    index = read_json(path / "index.json", "feature index")
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise InputError(f"{path}/index.json is not of the format {FORMAT}")
    return FeatureStore(
        path,
        tuple(index["ids"]),
        index["encoder"],
        {kind: tuple(shape) for kind, shape in index["shapes"].items()},
        tuple((name, rows) for name, rows in index["shards"]),
    )


def write_store(
    path: Path,
    ids: Sequence[str],
    chunks: Iterator[Mapping[str, Float[Tensor, "rows ..."]]],
    *,
    encoder: Mapping[str, Any],
) -> FeatureStore:
    """Write chunks of rows (in the order of `ids`) as shards; the index comes last, so half a store is no store."""
    path = Path(path)
    shards: list[tuple[str, int]] = []
    shapes: dict[str, list[int]] = {}
    for number, chunk in enumerate(chunks):
        tensors = {kind: value.to(torch.float16).contiguous().cpu() for kind, value in chunk.items()}
        if not tensors or set(tensors) - set(KINDS):
            raise ValueError(f"a chunk of features has {sorted(chunk)}; it may have {', '.join(KINDS)}")
        shapes = {kind: list(value.shape[1:]) for kind, value in tensors.items()}
        name = f"part-{number:05d}.safetensors"
        with replacing(path / name) as temporary:
            save_file(tensors, temporary)
        shards.append((name, len(next(iter(tensors.values())))))
    if sum(rows for _, rows in shards) != len(ids):
        raise ValueError(f"{len(ids)} ids, but {sum(rows for _, rows in shards)} rows of features")
    index = {
        "format": FORMAT,
        "encoder": dict(encoder),
        "shapes": shapes,
        "shards": shards,
        "ids": list(ids),
    }
    write_json(path / "index.json", index)
    return open_store(path)
