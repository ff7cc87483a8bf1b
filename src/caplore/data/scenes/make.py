"""Draw a whole data set: scenes, their pictures or clips, five references each.

Every input has its own random numbers, named by seed, split and number: the result is the same whatever
the number of workers, and a smaller data set is the beginning of a larger one. The folder is filled
beside its final place and moved there when it is whole.
"""

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from random import Random
from typing import Any

from caplore.data.dataset import Dataset, Input, open_dataset, write_dataset
from caplore.data.scenes.draw import save_clip, save_picture
from caplore.data.scenes.grammar import draw, frames_of
from caplore.data.scenes.truth import VERSION
from caplore.data.scenes.world import random_scene
from caplore.errors import CaploreError, ConfigError, InputError
from caplore.files import digest_of_file, read_json, write_jsonl
from caplore.machine import cores

REFERENCES = 5
CHUNK = 32  # inputs a worker draws at a time
NAMES = {"image": "scenes", "clip": "scenes-clips"}
LARGEST = 1_000_000  # of a split


@dataclass(frozen=True)
class Plan:
    """What to draw; kept in dataset.json. The same plan gives the same files."""

    train: int
    val: int
    test: int
    clips: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("train", "val", "test"):
            count = getattr(self, name)
            if not 1 <= count <= LARGEST:
                raise ConfigError(f"--{name} is {count}, not 1 to {LARGEST:,} inputs", fix=f"--{name} 500")

    @property
    def inputs(self) -> list[tuple[str, int]]:
        """(split, number in the split) of each."""
        return [(split, i) for split in ("train", "val", "test") for i in range(getattr(self, split))]


@dataclass(frozen=True)
class Made:
    """A data set that is there now; `drawn` is False where exactly this one was there before."""

    dataset: Dataset
    drawn: bool


def make_scenes(
    folder: Path,
    plan: Plan,
    *,
    replace: bool = False,
    workers: int | None = None,
    progress: Callable[[int], None] = lambda drawn: None,
) -> Made:
    """Draw the data set of this plan into `folder`; `progress` is told how many more inputs are drawn.

    The folder may be new or empty. A made world that is there is left alone if it is of the same plan, and
    gives way only to `replace`; any other folder is refused. Workers are spawned: a script of yours calls this
    under `if __name__ == "__main__"`, or with one worker.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers is {workers}: at least 1 is needed", fix="leave it out")
    folder = Path(folder)
    try:
        there = _made_before(folder, plan, replace)
        if there is not None:
            return Made(there, drawn=False)
        with _beside(folder) as fresh:
            _draw(fresh, plan, workers or cores(), progress)
            os.sync()  # every picture at once: thousands of single fsyncs take longer than the drawing
            _put(fresh, folder)
    except BrokenProcessPool:
        raise CaploreError(
            f"{folder} was not written: a process that draws was killed, perhaps for want of memory",
            fix="run the same command again with --workers 1",
        ) from None
    except OSError as error:
        raise InputError(
            f"{folder} could not be written: {error.strerror or error}; what was there before is untouched",
            fix="check the path, your rights there and the free space, then run the same command again",
        ) from error
    return Made(open_dataset(folder), drawn=True)


def _made_before(folder: Path, plan: Plan, replace: bool) -> Dataset | None:
    """The data set of this plan, if it is there and whole; an error if the folder is not to be touched."""
    for part in (*reversed(folder.parents), folder):
        if part.exists() and not part.is_dir():
            raise InputError(f"{part} is a file, not a folder", fix="name another folder with --to")
    if not folder.exists() or not any(folder.iterdir()):
        return None
    head = _head(folder)
    if head.get("name") not in NAMES.values():
        raise InputError(
            f"{folder} is not empty and is not a made world; nothing in it was touched",
            fix="name another folder with --to",
        )
    if replace:
        return None
    if head.get("plan") == asdict(plan) and head.get("version") == VERSION:
        dataset = open_dataset(folder)
        missing = [item.file for item in dataset.inputs if not dataset.media_path(item).is_file()]
        if not missing:
            return dataset
        raise InputError(
            f"{folder} lacks {len(missing)} of its files (first: {missing[0]})",
            fix="draw it anew with --replace",
        )
    raise InputError(
        f"{folder} is a made world of other settings ({_described(head)})",
        fix="name another folder with --to, or add --replace to draw it anew (its features go with it)",
    )


def _head(folder: Path) -> dict[str, Any]:
    head = read_json(folder / "dataset.json") if (folder / "dataset.json").is_file() else {}
    return head if isinstance(head, dict) else {}


def _described(head: dict[str, Any]) -> str:
    settings = head.get("plan")
    known = settings if isinstance(settings, dict) else {}
    return ", ".join(f"{key} {value}" for key, value in known.items()) or "incomplete"


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A new folder next to this one, gone at the end unless it was moved."""
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        fresh.chmod(0o755)
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _put(fresh: Path, folder: Path) -> None:
    """Move the whole folder to its place; a made world that is there goes after the move, not before."""
    if folder.is_dir() and any(folder.iterdir()):
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".old", dir=folder.parent))
        folder.rename(old)
        fresh.rename(folder)
        shutil.rmtree(old)
    else:
        fresh.rename(folder)


def _draw(folder: Path, plan: Plan, workers: int, progress: Callable[[int], None]) -> None:
    (folder / "media").mkdir()
    inputs = plan.inputs
    chunks = [inputs[start : start + CHUNK] for start in range(0, len(inputs), CHUNK)]
    found: dict[int, list[tuple[Input, dict[str, Any]]]] = {}
    for number, rows in _drawn(folder, plan, chunks, workers):
        found[number] = rows
        progress(len(rows))
    made = [row for number in range(len(chunks)) for row in found[number]]
    write_jsonl(folder / "scenes.jsonl", ({"id": item.id, **record} for item, record in made))
    media = "clip" if plan.clips else "image"
    write_dataset(
        folder,
        name=NAMES[media],
        media=media,  # type: ignore[arg-type]
        inputs=[item for item, _ in made],
        version=VERSION,
        plan=asdict(plan),
        scenes_sha256=digest_of_file(folder / "scenes.jsonl"),
    )


def _drawn(
    folder: Path, plan: Plan, chunks: list[list[tuple[str, int]]], workers: int
) -> Iterator[tuple[int, list[tuple[Input, dict[str, Any]]]]]:
    """(chunk number, its rows), as they are done."""
    if min(workers, len(chunks)) == 1:
        for number, chunk in enumerate(chunks):
            yield number, _draw_chunk(folder, plan, chunk)
        return
    with ProcessPoolExecutor(min(workers, len(chunks)), get_context("spawn"), _end_with_parent) as pool:
        try:
            with _interrupts_kept_back():  # workers begin here: Ctrl-C is for the parent, which stops them
                pending = {pool.submit(_draw_chunk, folder, plan, chunk): i for i, chunk in enumerate(chunks)}
            for done in as_completed(pending):
                yield pending[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In a worker: end when the parent is gone, even by kill -9, instead of waiting for it for ever."""

    def watch() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_kept_back() -> Iterator[None]:
    """An interruption meanwhile comes afterwards; processes begun meanwhile get none.

    They inherit the mask. The mask is this thread's alone: another one may take the signal, and Python would then
    interrupt the main thread all the same, in the middle of starting a process. So the handler waits, too.
    """
    came: list[int] = []
    main = threading.current_thread() is threading.main_thread()  # no other sets handlers, or is interrupted
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if main:
            signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)
    if came:
        signal.raise_signal(signal.SIGINT)


def _draw_chunk(folder: Path, plan: Plan, chunk: list[tuple[str, int]]) -> list[tuple[Input, dict[str, Any]]]:
    return [_draw_input(folder, plan, split, number) for split, number in chunk]


def _draw_input(folder: Path, plan: Plan, split: str, number: int) -> tuple[Input, dict[str, Any]]:
    """One input: its scene, what five people say of it, its picture; each with random numbers of its own."""

    def numbers(use: str) -> Random:
        return Random(f"{use} {plan.seed} {'clip' if plan.clips else 'picture'} {split} {number}")

    scene = random_scene(numbers("scene"), moving=plan.clips)
    captions = draw(frames_of(scene), numbers("words"), REFERENCES)
    name = f"{split}-{number:05d}"
    file = f"media/{name}.{'gif' if plan.clips else 'png'}"
    (save_clip if plan.clips else save_picture)(folder / file, scene, numbers("drawing"))
    return Input(name, split, file, tuple(" ".join(words) for words in captions)), scene.record()
