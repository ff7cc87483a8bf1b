"""Files through an encoder: decoded by threads, encoded in batches while the next ones are decoded.

`encode_files` takes any list of files; `encode` takes a data set and keeps the features in its store.
Order is kept, a bad file becomes a reason instead of features, and nothing waits for the slowest file
longer than it takes to decode it.
"""

import contextlib
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from caplore.data.dataset import Dataset, Input
from caplore.errors import InputError
from caplore.features.decoding import Frames, Undecodable, decode
from caplore.features.encoder import Encoder
from caplore.features.store import FeatureStore, StoreWriter, folder_name, quantised, remove_store
from caplore.machine import cores

A = TypeVar("A")
B = TypeVar("B")
Row = dict[str, Float[Tensor, "..."]]  # the features of one input: pooled [dim] and/or regions [n, dim]
Bad = str  # why a file has no features
Decoded = tuple[Path, Frames | Bad]

BATCH_CPU = 8  # frames; their activations stay in the cache, which is worth more than a longer batch
BATCH_GPU = 128


def encode_files(
    paths: Iterable[Path], encoder: Encoder, *, batch: int | None = None, workers: int | None = None
) -> Iterator[tuple[Path, Row | Bad]]:
    """Each file with its features, or with the reason why it has none, in the order given.

    `workers` threads decode ahead. On a CPU as many batches are encoded at the same time, each by one
    thread: there is no waiting within a batch, and a busy machine slows us only in proportion.
    `batch` counts frames, so that clips take no more memory than pictures.
    """
    workers = workers or cores()
    on_gpu = encoder.device.type != "cpu"
    frames = 1 if encoder.clip is None else encoder.clip.frames
    inputs = max(1, (batch or (BATCH_GPU if on_gpu else BATCH_CPU)) // frames)
    lanes = 2 if on_gpu else workers  # on a GPU one copies while the other computes
    files = in_order(lambda path: _decoded(path, encoder), paths, workers=workers, ahead=(lanes + 2) * inputs)
    with threads_per_batch(torch.get_num_threads() if on_gpu else 1):
        batches = in_order(
            lambda some: _encoded(some, encoder), chunks(files, inputs), workers=lanes, ahead=lanes + 1
        )
        for rows in batches:
            yield from rows


@contextlib.contextmanager
def threads_per_batch(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_order(work: Callable[[A], B], items: Iterable[A], *, workers: int, ahead: int) -> Iterator[B]:
    """work(item) of each item, in order, by threads; at most `ahead` items are begun and not yet handed out."""
    running: deque[Future[B]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for item in items:
            running.append(pool.submit(work, item))
            if len(running) >= ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(
            wait=False, cancel_futures=True
        )  # an interruption does not wait for what nobody will read


def chunks(items: Iterable[A], size: int) -> Iterator[list[A]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _decoded(path: Path, encoder: Encoder) -> Decoded:
    try:
        return path, decode(path, encoder.preprocessing, encoder.clip)
    except Undecodable as reason:
        return path, str(reason)


def _encoded(files: Sequence[Decoded], encoder: Encoder) -> list[tuple[Path, Row | Bad]]:
    """One batch through the network, its bad files put back in their places."""
    good = [frames for _, frames in files if not isinstance(frames, Bad)]
    if not good:
        return [(path, reason) for path, reason in files if isinstance(reason, Bad)]
    features = encoder.inputs(torch.from_numpy(np.concatenate(good)))
    on_cpu = {kind: values.float().cpu() for kind, values in features.items()}
    rows = ({kind: values[i] for kind, values in on_cpu.items()} for i in range(len(good)))
    return [(path, frames if isinstance(frames, Bad) else next(rows)) for path, frames in files]


# A data set


NO_FILE = "(no media file is named)"  # a path that is not there: such inputs end among the bad ones
SHARD_ROWS = 2048
SHARD_SECONDS = 30.0  # a kill loses at most this much work, or this many rows

Progress = Callable[[int, int], None]  # inputs done (bad ones too), bad inputs


def encode(
    dataset: Dataset,
    encoder: Encoder,
    *,
    name: str | None = None,
    batch: int | None = None,
    workers: int | None = None,
    storage: Literal["fp16", "int8"] = "fp16",
    again: bool = False,
    progress: Progress = lambda done, bad: None,
) -> FeatureStore:
    """Encode what the store does not hold yet, into DATA/features/<name>; bad files go to bad.jsonl beside it."""
    path = dataset.store_path(folder_name(name or encoder.name))
    if again:
        remove_store(path)
    writer = StoreWriter(path, encoder.description)
    _refuse_replaced(dataset, writer)
    todo = [item for item in dataset.inputs if item.id not in writer.done]
    shard = _Shard(writer, storage)
    bad: list[dict[str, str | None]] = []
    done = len(dataset.inputs) - len(todo)
    progress(done, 0)
    files = (dataset.path / (item.file or NO_FILE) for item in todo)
    for item, (file, row) in zip(
        todo, encode_files(files, encoder, batch=batch, workers=workers), strict=True
    ):
        reason = row if isinstance(row, str) else shard.add(item.id, row, file.stat().st_size)
        if reason is not None:
            bad.append({"id": item.id, "file": item.file, "reason": reason})
        done += 1
        progress(done, len(bad))
    shard.write()
    if not writer.done:
        first = f" (first: {bad[0]['id']}: {bad[0]['reason']})" if bad else ""
        raise InputError(
            f"none of the {len(dataset.inputs)} inputs of {dataset.path} could be encoded{first}"
        )
    return writer.finish(bad)


class _Shard:
    """Rows until there are enough of them, or enough time has gone by, to be worth a file."""

    def __init__(self, writer: StoreWriter, storage: str) -> None:
        self._writer, self._storage = writer, storage
        self._rows: list[tuple[str, int, Row]] = []
        self._since = time.monotonic()

    def add(self, name: str, row: Row, size: int) -> str | None:
        """Keep it, or say why it cannot be kept."""
        if not all(value.to(torch.float16).isfinite().all() for value in row.values()):
            return "the encoder gave numbers that are not finite in 16 bits"
        if self._rows:
            _same_shape(self._rows[0][2], name, row)
        self._rows.append((name, size, row))
        if len(self._rows) >= SHARD_ROWS or time.monotonic() - self._since > SHARD_SECONDS:
            self.write()
        return None

    def write(self) -> None:
        if self._rows:
            names, sizes, rows = zip(*self._rows, strict=True)
            tensors = {kind: torch.stack([row[kind] for row in rows]) for kind in rows[0]}
            if self._storage == "int8":
                tensors = {
                    k: v for kind, values in tensors.items() for k, v in quantised(values, kind).items()
                }
            self._writer.add(names, tensors, sizes)
        self._rows, self._since = [], time.monotonic()


def _same_shape(first: Row, name: str, row: Row) -> None:
    """A store has one shape; an encoder of yours may give what it likes."""
    before, now = ({kind: list(value.shape) for kind, value in one.items()} for one in (first, row))
    if before != now:
        raise InputError(
            f"the encoder gave features of the shapes {now} for {name!r}, and {before} before",
            fix="let it give all inputs the same: a fixed number of regions, of a fixed size",
        )


def _refuse_replaced(dataset: Dataset, writer: StoreWriter) -> None:
    """Features of pictures that were replaced since would be silently wrong."""

    def replaced(item: Input) -> bool:
        size = writer.done.get(item.id)
        file = dataset.path / (item.file or NO_FILE)
        return size is not None and os.path.isfile(file) and os.path.getsize(file) != size

    found = [item.id for item in dataset.inputs if replaced(item)]
    if found:
        raise InputError(
            f"{len(found)} files of {dataset.path} are not those {writer.path} was made from (first: {found[0]!r})",
            fix="encode them all again with --again",
        )
