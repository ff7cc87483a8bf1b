"""A step as one CUDA graph: what it reads each time, running parts of it beside each other, and capturing it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

RING = 8  # steps the host may be ahead of the device


class Feed:
    """Numbers of the next step, sent while the device works on those before; waits when RING steps ahead.

    One message per step, in float64, which holds every index, every float32 and every seed below 2^53 exactly.
    """

    def __init__(self, images: int, noise: int, device: torch.device) -> None:
        self._images = images
        width = images + 2 + images * noise
        self._there = torch.zeros(width, dtype=torch.float64, device=device)
        on_gpu = device.type == "cuda"
        self._slots = [torch.zeros(width, dtype=torch.float64, pin_memory=on_gpu) for _ in range(RING)]
        self._sent = [torch.cuda.Event() if on_gpu else None for _ in range(RING)]
        self._turn = 0

    def send(
        self,
        index: Int[Tensor, " images"],
        rate: float,
        seed: int,
        noise: Float[Tensor, "images refs"] | None,
    ) -> None:
        slot, sent = self._slots[self._turn], self._sent[self._turn]
        self._turn = (self._turn + 1) % RING
        if sent is not None:
            sent.synchronize()  # the device has read what this slot held last
        slot[: self._images] = index
        slot[self._images] = rate
        slot[self._images + 1] = seed % 2**53
        if noise is not None:
            slot[self._images + 2 :] = noise.flatten()
        self._there.copy_(slot, non_blocking=True)
        if sent is not None:
            sent.record()

    @property
    def index(self) -> Int[Tensor, " images"]:
        return self._there[: self._images].long()

    @property
    def rate(self) -> Float[Tensor, ""]:
        return self._there[self._images]

    @property
    def seed(self) -> Int[Tensor, ""]:
        return self._there[self._images + 1].long()

    @property
    def noise(self) -> Float[Tensor, "images refs"]:
        return self._there[self._images + 2 :].view(self._images, -1).float()


class Beside:
    """A second stream, for what need not wait: `with beside(): ...` forks, `beside.join()` waits for it.

    Tensors that cross must live until after `join`. On a CPU all is done in order.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)


def captured(body: Callable[[], None], changes: Sequence[Tensor], device: torch.device) -> Callable[[], None]:
    """`body` as a graph, after two runs that leave no trace in the tensors it changes or in the random state."""
    before = [tensor.clone() for tensor in changes]
    random = torch.cuda.get_rng_state(device)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
    try:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiles kernels, makes libraries take their room
            body()
            body()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize(device)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            body()
    finally:
        with torch.no_grad():
            for tensor, value in zip(changes, before, strict=True):
                tensor.copy_(value)
        torch.cuda.set_rng_state(random, device)
    return graph.replay
