"""Features that are read beside the steps give the run that resident ones give, and the thread ends with its run."""

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from caplore.data.dataset import Dataset
from caplore.errors import InputError
from caplore.features.store import Reader, StoreWriter, open_store, quantised, remove_store
from caplore.models.protocol import Features
from caplore.training import checkpoint, loop, streaming
from caplore.training.config import Model, Recipe, Sequence, SllMe, Xe
from caplore.training.run import Run
from caplore.training.streaming import AHEAD, Streamed

Make = Callable[..., Recipe]
CPU = torch.device("cpu")
ROWS = 23


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture(params=["fp16", "int8", "both"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Reader:
    """23 inputs in three shards, asked for in another order than they are stored."""
    rng = torch.Generator().manual_seed(0)
    ids = [str(i) for i in range(ROWS)]
    writer = StoreWriter(tmp_path / "made", {"name": "made"})
    for number, start in enumerate(range(0, ROWS, 9)):
        some = ids[start : start + 9]
        parts = {"pooled": torch.randn(len(some), 5, generator=rng)}
        parts["regions"] = torch.randn(len(some), 3, 4, generator=rng)
        if request.param == "int8" or (request.param == "both" and number == 1):
            parts = {k: v for kind, values in parts.items() for k, v in quantised(values, kind).items()}
        writer.add(some, parts)
    return writer.finish().reader(ids[::-1])


def test_batches_come_in_order_as_they_would_be_loaded(reader: Reader) -> None:
    whole = reader.store.load([str(i) for i in range(ROWS)][::-1])
    order = [torch.randperm(ROWS)[:count] for count in (6, 6, 1, 6, 3, 6, 6, 6, 2, 6)]
    kept = []
    with Streamed(reader, CPU).along(order) as batches:
        for wanted, (index, look) in zip(order, batches, strict=True):
            assert torch.equal(index, wanted)
            kept.append(look())
            assert torch.equal(kept[-1].pooled, whole["pooled"][index].float())
    for index, features in zip(order, kept, strict=True):  # what was looked at is the looker's own
        assert torch.equal(features.regions, whole["regions"][index].float())


def test_int8_travels_as_int8(reader: Reader) -> None:
    small = {name for name, (dtype, _) in reader.parts.items() if dtype == torch.int8}
    stored = all("pooled.scale" in shard for shard in reader.store._tensors)
    assert small == ({"pooled", "regions"} if stored else set())


def test_there_may_be_fewer_batches_than_slots_or_none(reader: Reader) -> None:
    for count in range(AHEAD + 2):
        with Streamed(reader, CPU).along(torch.arange(count)[:, None]) as batches:
            assert [int(index) for index, _ in batches] == list(range(count))


def test_reading_stays_a_few_batches_ahead(reader: Reader) -> None:
    asked = []

    def order() -> Iterator[torch.Tensor]:
        for i in range(ROWS):
            asked.append(i)
            yield torch.tensor([i])

    with Streamed(reader, CPU).along(order()) as batches:
        for done, _ in enumerate(batches):
            assert len(asked) <= done + AHEAD
        assert done == ROWS - 1


def test_an_error_of_the_thread_is_raised_where_its_batch_is_due(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Reader.read

    def failing(self: Reader, index: np.ndarray, room: dict[str, torch.Tensor]) -> None:
        if 5 in index:
            raise InputError("the disk is gone")
        read(self, index, room)

    monkeypatch.setattr(Reader, "read", failing)
    with Streamed(reader, CPU).along(torch.arange(ROWS)[:, None]) as batches:
        assert [int(index) for index, _ in itertools.islice(batches, 5)] == [0, 1, 2, 3, 4]
        with pytest.raises(InputError, match="the disk is gone"):
            next(batches)


def test_it_can_be_left_in_the_middle(reader: Reader) -> None:
    def interrupted() -> None:
        with Streamed(reader, CPU).along(torch.arange(ROWS)[:, None]) as batches:
            next(batches)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


@pytest.mark.gpu
def test_on_a_gpu_nothing_is_overwritten_while_it_is_used(reader: Reader) -> None:
    """The host is far ahead of a device that takes its time: before it looks, and before it looks again."""
    device = torch.device("cuda", 0)
    whole = reader.store.load([str(i) for i in range(ROWS)][::-1])
    order = [torch.randint(ROWS, (6,)) for _ in range(100)]
    found: list[Features] = []
    with Streamed(reader, device).along(order) as batches:
        for _, look in batches:
            for _ in range(2):
                torch.cuda._sleep(2_000_000)
                found.append(look())
    for index, first, second in zip(order, found[::2], found[1::2], strict=True):
        for features in (first, second):
            assert torch.equal(features.pooled.cpu(), whole["pooled"][index].float())
            assert torch.equal(features.regions.cpu(), whole["regions"][index].float())


def weights(path: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(path).group("model")


def alike(a: Run, b: Run) -> bool:
    """The same weights, last and best, and the same log but for the time it took."""
    logs = [[{**line, "seconds": 0} for line in run.lines()] for run in (a, b)]
    pairs = [(weights(x), weights(y)) for x, y in ((a.last, b.last), (a.best, b.best))]
    return (
        logs[0] == logs[1]
        and all(x.keys() == y.keys() for x, y in pairs)
        and all(torch.equal(x[k], y[k]) for x, y in pairs for k in x)
    )


@pytest.mark.parametrize("model", ["fc", "updown"])
def test_a_streamed_run_is_the_resident_run_bit_for_bit(recipe: Make, tmp_path: Path, model: str) -> None:
    phase = Sequence(objective=SllMe(), epochs=2, lr=2e-3, batch=8, xe_weight=0.2)
    one, other = (
        loop.train(
            recipe(to=tmp_path / f"{gb}", resident_gb=gb, model=Model(name=model, hidden=16), sequence=phase),
            "tiny",
            quiet=True,
        )
        for gb in (1, 0)
    )
    assert (one.head()["resident"], other.head()["resident"]) == (True, False)
    assert alike(one, other)


def test_int8_shards_too(recipe: Make, tiny: Dataset, tmp_path: Path) -> None:
    path = tiny.path / "features" / "small"
    store = open_store(tiny.path / "features" / "made")
    writer = StoreWriter(path, {"name": "small"})
    for start in range(0, len(store.ids), 10):
        some = store.ids[start : start + 10]
        parts = store.load(some).items()
        writer.add(some, {k: v for kind, values in parts for k, v in quantised(values, kind).items()})
    writer.finish()
    try:
        one, other = (
            loop.train(recipe(to=tmp_path / f"{gb}", resident_gb=gb, encoder="small"), "tiny", quiet=True)
            for gb in (1, 0)
        )
    finally:
        remove_store(path)
        path.rmdir()
    assert alike(one, other)


@pytest.mark.parametrize("stop_at", [2, 8])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 1), (1, 0)])
def test_a_streamed_run_is_resumed_as_if_nothing_had_happened(
    recipe: Make, tmp_path: Path, stop_at: int, before: float, after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM, in either phase; it may go on in the other way."""
    whole = loop.train(recipe(to=tmp_path / "whole", resident_gb=0), "tiny", quiet=True)
    step, steps = loop.Session._step, []

    def stopping(self: loop.Session, *batch: object) -> dict[str, torch.Tensor]:
        steps.append(batch)
        if len(steps) == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *batch)

    with monkeypatch.context() as patched:
        patched.setattr(loop.Session, "_step", stopping)
        with pytest.raises(loop.Interrupted):
            loop.train(recipe(to=tmp_path / "cut", resident_gb=before), "tiny", quiet=True)
    cut = Run(tmp_path / "cut")
    cut.update(config={**cut.head()["config"], "resident_gb": after})
    assert alike(whole, loop.resume(cut.path, quiet=True))


def test_an_error_of_the_thread_ends_the_run(recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the run can go on when what was wrong is mended."""
    read, calls = Reader.read, []

    def failing(self: Reader, index: np.ndarray, room: dict[str, torch.Tensor]) -> None:
        calls.append(index)
        if len(calls) == 12:
            raise InputError("the disk is gone")
        read(self, index, room)

    with monkeypatch.context() as patched:
        patched.setattr(Reader, "read", failing)
        with pytest.raises(InputError, match="the disk is gone"):
            loop.train(recipe(resident_gb=0, xe=Xe(epochs=4, batch=4)), "tiny", quiet=True)
    assert loop.resume(recipe().to, quiet=True).head()["status"] == "done"


def test_features_fit_or_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert streaming.fits(1_000, CPU, 1e-6)
    assert not streaming.fits(1_001, CPU, 1e-6)
    assert streaming.fits(1_000_000, CPU, "auto")
    free = streaming._free(CPU)
    assert 1e8 < free < 1e14
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert streaming._free(CPU) == pytest.approx(free / 4, rel=0.2)
    assert not streaming.fits(int(free), CPU, "auto")
