"""Features that do not fit the device: a thread reads them from the shards, a few batches ahead of the steps.

A batch arrives in a slot: memory that the thread fills (pinned, where there is a GPU) and the same on the device,
to which it is copied on a stream of its own. Values travel as they are stored, int8 is unpacked on arrival. What is
computed is what is computed from resident features, bit for bit.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from caplore.features.store import Reader
from caplore.models.protocol import Features

AHEAD = 4  # batches in slots: one that a step uses, one being copied, two being read or waiting
SHARE = 0.5  # of the memory that is free may be features

Look = Callable[[], Features]  # the features of a batch, until the next one is asked for
Batch = tuple[Int[Tensor, " images"], Look]
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Streamed:
    """The features of some inputs, not in memory."""

    reader: Reader
    device: torch.device

    @contextmanager
    def along(self, order: Iterable[Int[Tensor, " images"]]) -> Iterator[Iterator[Batch]]:
        """These batches one after another, none larger than the first. An error of the thread is raised here.

        When the context is left, for whatever reason, the thread has ended and the slots are free.
        """
        copying = None
        if (
            self.device.type == "cuda"
        ):  # of high priority: torch would share an ordinary one with a graph being captured
            copying = torch.cuda.Stream(self.device, priority=-1)
        thread = ThreadPoolExecutor(1, "features")
        try:
            yield self._arriving(iter(order), thread, copying)
        finally:
            thread.shutdown(cancel_futures=True)  # waits for the batch that is being read
            if copying is not None:
                copying.synchronize()

    def _arriving(
        self,
        order: Iterator[Int[Tensor, " images"]],
        thread: ThreadPoolExecutor,
        copying: "torch.cuda.Stream | None",
    ) -> Iterator[Batch]:
        coming: deque[tuple[Int[Tensor, " images"], Slot, Future[None]]] = deque()
        first = next(order, None)
        if first is None:
            return
        slots = [Slot(self.reader, len(first), self.device, copying) for _ in range(AHEAD)]
        for slot, index in zip(slots, chain([first], order), strict=False):
            coming.append((index, slot, thread.submit(slot.fill, index)))
        while coming:
            index, slot, filled = coming.popleft()
            filled.result()
            slot.await_copy()
            yield index, slot.look
            slot.release()
            following = next(order, None)
            if following is not None:
                coming.append((following, slot, thread.submit(slot.fill, following)))

    def room(self, images: int) -> Features:
        """Where a batch can be kept on the device."""
        shapes = self.reader.store.shapes
        rooms = {kind: torch.zeros(images, *shape, device=self.device) for kind, shape in shapes.items()}
        return Features(rooms.get("pooled"), rooms.get("regions"))


class Slot:
    """Room for a batch, used again and again. On a CPU the room on the device is the room.

    The thread fills `room` when the last copy from it is over (the host waits), and copies it when the step that
    used `there` is over (the copying stream waits). A step begins when its copy is over (its stream waits).
    """

    def __init__(
        self, reader: Reader, rows: int, device: torch.device, copying: "torch.cuda.Stream | None"
    ) -> None:
        self._reader, self._device, self._copying, self._rows = reader, device, copying, rows
        self._room = self._there = reader.room(rows, CPU, pinned=copying is not None)
        if copying is not None:
            self._there = reader.room(rows, device)
            self._copied, self._used = torch.cuda.Event(blocking=True), torch.cuda.Event()
            self.release()

    def fill(self, index: Int[Tensor, " images"]) -> None:
        """What the thread does: nothing here touches another stream than the copying one, or allocates."""
        if self._copying is not None:
            self._copied.synchronize()
        self._rows = len(index)
        self._reader.read(index.numpy(), self._room)
        if self._copying is not None:
            with torch.cuda.stream(self._copying):
                self._copying.wait_event(self._used)
                for name, part in self._room.items():
                    self._there[name][: self._rows].copy_(part[: self._rows], non_blocking=True)
                self._copied.record(self._copying)

    def await_copy(self) -> None:
        if self._copying is not None:
            torch.cuda.current_stream(self._device).wait_event(self._copied)

    def look(self) -> Features:
        """The batch in the slot, in new tensors."""
        found = Reader.values({name: part[: self._rows] for name, part in self._there.items()})
        wide = {kind: values.float() for kind, values in found.items()}
        return Features(wide.get("pooled"), wide.get("regions"))

    def release(self) -> None:
        """All that uses the batch has been asked for, on this stream."""
        if self._copying is not None:
            self._used.record(torch.cuda.current_stream(self._device))


def fits(size: int, device: torch.device, limit: float | Literal["auto"]) -> bool:
    """May so many bytes of features live in the device's memory? `limit` in gigabytes."""
    return size <= (SHARE * _free(device) if limit == "auto" else 1e9 * limit)


def _free(device: torch.device) -> float:
    """Bytes of memory for this process: a GPU's own, the machine's (or container's) shared with its other processes."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if Path("/proc/meminfo").is_file():
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * float(lines["MemAvailable"].split()[0])
    container = Path("/sys/fs/cgroup/memory.max")
    if container.is_file() and container.read_text().strip() != "max":
        free = min(free, float(container.read_text()))
    return free / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
