"""Training from features on disk against training from features on the device: `reference` is resident, a step's time.

On a GPU the captured step at COCO size; on a CPU the plain one at a size that a CPU trains. `max |diff|` is that of
the mean losses of the two runs: 0 on a CPU, and on a GPU what sums in no fixed order make of it.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from bench import Row
from caplore import models
from caplore.features.store import FeatureStore, open_store, quantised, write_store
from caplore.models.protocol import Features
from caplore.training.config import Sequence, Xe
from caplore.training.distributed import ALONE
from caplore.training.examples import Examples
from caplore.training.fast import fast_step
from caplore.training.reward import CiderReward
from caplore.training.schedule import batches
from caplore.training.step import Update, sequence_step, xe_step
from caplore.training.streaming import Look, Streamed

DIM, WORDS, CAPTIONS, WRITTEN = (
    2_048,
    16,
    5,
    5_000,
)  # so many inputs have references of their own, the others theirs
Step = Callable[[Tensor, Look], object]


@dataclass(frozen=True)
class Size:
    device: torch.device
    inputs: int
    hidden: int
    vocab: int
    batches: tuple[int, ...]
    steps: int


GPU = Size(torch.device("cuda", 0), 113_287, 512, 9_487, (10, 50, 256), 300)
CPU = Size(torch.device("cpu"), 20_000, 128, 1_000, (64,), 12)


def rows() -> Iterator[Row]:
    size = GPU if torch.cuda.is_available() else CPU
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("fp16", "int8"):
            store = written(Path(folder) / kind, size, int8=kind == "int8")
            data = examples(store, size)
            reward = CiderReward(data, vocab=size.vocab)
            for images in size.batches if kind == "fp16" else size.batches[-1:]:
                for name, phase in (("XE", Xe()), ("SLL-SLE", Sequence())):
                    what = f"{name} step, {images} images of {size.inputs:,} x {DIM:,} {kind}"
                    yield compared(what, data, phase, reward, images, size)
        yield from_disk(Path(folder) / "fp16", data, reward, size)


def written(path: Path, size: Size, *, int8: bool) -> FeatureStore:
    rng = torch.Generator().manual_seed(0)

    def shards() -> Iterator[dict[str, Tensor]]:
        for start in range(0, size.inputs, 4096):
            values = torch.rand(min(4096, size.inputs - start), DIM, generator=rng)
            yield quantised(values, "pooled") if int8 else {"pooled": values}

    return write_store(path, [str(i) for i in range(size.inputs)], shards(), encoder={"name": "made"})


def examples(store: FeatureStore, size: Size) -> Examples:
    """Streamed; `resident` makes the other."""
    rng = torch.Generator().manual_seed(1)
    some = torch.randint(3, size.vocab, (WRITTEN, CAPTIONS, WORDS), generator=rng)
    references = some[torch.arange(size.inputs) % WRITTEN].to(size.device)
    there = torch.ones(references.shape[:2], dtype=torch.bool, device=size.device)
    return Examples(store.ids, Streamed(store.reader(store.ids), size.device), references, there)


def resident(data: Examples) -> Examples:
    assert isinstance(data.features, Streamed)
    pooled = data.features.reader.store.load(data.ids)["pooled"]
    return replace(data, features=Features(pooled.to(data.references.device), None))


def compared(
    what: str, data: Examples, phase: Xe | Sequence, reward: CiderReward, images: int, size: Size
) -> Row:
    """In turns, so that both have the machine's good and bad minutes; the fastest turn of each."""
    times, losses = {}, {}
    both = {"streamed": data, "resident": resident(data)}
    steps = {name: stepper(one, phase, reward, images, size) for name, one in both.items()}
    for turn in range(3):
        for name, one in both.items():
            step, loss = steps[name]
            seconds = timed(one, step, images, size)
            times[name] = min(seconds, times.get(name, seconds)) if turn else seconds
            losses[name] = loss()
    off = abs(losses["streamed"] - losses["resident"]) / abs(losses["resident"])
    ours, theirs = times["streamed"], times["resident"]
    return Row(what, ours, theirs, difference=off, note=f"{1 / ours:,.0f} and {1 / theirs:,.0f} steps/s")


def from_disk(path: Path, data: Examples, reward: CiderReward, size: Size) -> Row:
    """The first pass over shards that are not in the page cache."""
    for file in path.glob("part-*"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    store, images = open_store(path), size.batches[-1]
    cold = replace(data, features=Streamed(store.reader(data.ids), size.device))
    step, _ = stepper(cold, Xe(), reward, images, size)
    warm = resident(data)
    other, _ = stepper(warm, Xe(), reward, images, size)
    what = f"XE step, {images} images fp16, read from the disk"
    return Row(what, timed(cold, step, images, size), timed(warm, other, images, size))


def stepper(
    data: Examples, phase: Xe | Sequence, reward: CiderReward, images: int, size: Size
) -> tuple[Step, Callable[[], float]]:
    """A step of a new model, and the sum of the losses so far."""
    torch.manual_seed(0)
    sizes = {"hidden": size.hidden, "embed": size.hidden, "dropout": 0.0}
    model = models.build("fc", vocab=size.vocab, pooled_dim=DIM, regions=None, **sizes).to(size.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
    if size.device.type == "cuda":
        options = {"images": images, "vocab": size.vocab, "max_words": WORDS, "clip": 5.0, "world": ALONE}
        fast, how = fast_step(model, optimizer, phase, data, reward, **options)
        assert fast is not None, how
        noise = torch.rand(images, CAPTIONS)
        fast.restart({})
        return (
            lambda index, look: fast(index, 5e-4, seed=0, noise=noise, look=look),
            lambda: float(fast.sums["loss"]),
        )
    update, losses = Update(model, optimizer, 5.0, ALONE), []
    rng = torch.Generator().manual_seed(0)

    def step(index: Tensor, look: Look) -> None:
        if isinstance(phase, Xe):
            stats = xe_step(model, look(), data.references[index], label_smoothing=0.0, update=update)
        else:
            chance = {"max_words": WORDS, "uniforms": lambda rows: torch.rand(rows, generator=rng)}
            stats = sequence_step(model, look(), index, reward, phase, update=update, **chance)
        losses.append(float(stats["loss"]))

    return step, lambda: sum(losses)


def timed(data: Examples, step: Step, images: int, size: Size) -> float:
    """Seconds of a step, of as many as `size` says after two that are not counted."""
    order = batches(size.inputs, images, seed=0, epoch=0)
    with data.along(order) as arriving:
        begun = 0.0
        for number, (index, look) in enumerate(arriving):
            if number == 2:
                wait(size.device)
                begun = time.perf_counter()
            step(index, look)
            if number == size.steps + 1:
                break
        wait(size.device)
        return (time.perf_counter() - begun) / size.steps


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
