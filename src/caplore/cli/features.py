"""`caplore features DATA --encoder NAME`: encode every picture or clip of a data set, once."""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from caplore.cli.parsing import parse
from caplore.files import read_jsonl


@dataclass(frozen=True)
class Options:
    """Encode the pictures or clips of a data set into DATA/features/NAME.

    Goes on where it was interrupted; encodes only what is not there yet. Files that cannot be read are
    skipped and listed, with the reason, in bad.jsonl beside the features.
    """

    data: Annotated[Path, tyro.conf.Positional]
    """The data set's folder (caplore data scenes, caplore data import)."""
    encoder: str = "efficientnet-lite0"
    """efficientnet-lite0, -lite1, -lite2; tiny (made worlds); patches (fixed); a model of Hugging Face transformers by
    name or folder; module:function of yours."""
    grid: int = 3
    """Regions: the picture's cells averaged down to grid x grid; 0 for none."""
    name: str | None = None
    """What to call these features; default: the encoder's name."""
    frames: int = 16
    """Clips: frames taken of each, evenly by time."""
    segments: int = 8
    """Clips: stretches of time kept as regions."""
    batch: int | None = None
    """Frames through the encoder at once; default: 8 on a CPU, 128 on a GPU."""
    workers: int | None = None
    """Decoding threads; default: one per core."""
    storage: Literal["fp16", "int8"] = "fp16"
    """int8 (a scale per row) halves the size on disk."""
    device: str = "auto"
    """auto is the GPU where there is one, else the CPU."""
    again: bool = False
    """Delete what was encoded under this name and start over."""


def main(argv: list[str]) -> int:
    options = parse(Options, argv, prog="caplore features", description=Options.__doc__ or "")
    from caplore.data.dataset import open_dataset
    from caplore.errors import ConfigError, InputError
    from caplore.features.choice import encoder_named
    from caplore.features.decoding import ClipSampling
    from caplore.features.encoding import encode

    for knob, value in (("workers", options.workers), ("batch", options.batch)):
        if value is not None and value < 1:
            raise ConfigError(f"--{knob} is {value}; it is 1 or more")
    dataset = open_dataset(options.data)
    if dataset.media == "none":
        raise InputError(
            f"{dataset.path} has captions and features but no media files to encode",
            fix=f"train on the features it has: {', '.join(dataset.encoders) or 'none'}",
        )
    clip = ClipSampling(options.frames, options.segments) if dataset.media == "clip" else None
    encoder = encoder_named(options.encoder, grid=options.grid, clip=clip, device=options.device)
    warnings.filterwarnings(
        "ignore", module="PIL"
    )  # of oddities in single files: what matters goes to bad.jsonl
    started = time.monotonic()
    with _progress_bar(f"{encoder.name} on {encoder.device}", len(dataset.inputs)) as progress:
        store = encode(
            dataset,
            encoder,
            name=options.name,
            batch=options.batch,
            workers=options.workers,
            storage=options.storage,
            again=options.again,
            progress=progress,
        )
    seconds = time.monotonic() - started
    print(f"{len(store.ids)} inputs in {store.path} ({_shapes(store.shapes)}), {seconds:.1f} s")
    _say_bad(store.bad)
    return 0


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{kind} {' x '.join(map(str, shape))}" for kind, shape in shapes.items())


@contextlib.contextmanager
def _progress_bar(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Done, rate and time left on stderr; nothing where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[bad]} bad"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total, bad=0)
        yield lambda done, bad: bar.update(task, completed=done, bad=bad)


def _say_bad(path: Path, examples: int = 5) -> None:
    """The first of the files that were left out, and where all of them are."""
    if not path.is_file():
        return
    bad = [row for _, row in read_jsonl(path)]
    print(f"{len(bad)} inputs could not be read and have no features; all of them with reasons: {path}")
    for row in bad[:examples]:
        print(f"  {row['id']}: {row['reason']}")
