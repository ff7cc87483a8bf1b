"""What a person sees while a run trains: a bar with the time left, and a line per validation."""

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

SHOWN = ("loss", "reward", "entropy", "length", "distance")


class Progress:
    """A rich progress bar on standard error; plain lines where that is not a terminal; nothing when quiet."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True, quiet=quiet)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[seen]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bars.add_task("", total=0, seen="")
        self._name = ""

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def phase(self, name: str, steps: int, done: int) -> None:
        self._name = name
        self._bars.reset(self._task, total=steps, completed=done, description=name, seen="")

    def advance(self) -> None:
        self._bars.advance(self._task)

    def show(self, stats: Mapping[str, float]) -> None:
        seen = " ".join(f"{name} {stats[name]:.3g}" for name in SHOWN if name in stats)
        self._bars.update(self._task, seen=seen)

    def validated(self, epoch: int, score: float, best: bool) -> None:
        mark = "  best so far" if best else ""
        self._console.print(
            f"{self._name} epoch {epoch}: validation CIDEr-D {100 * score:.1f}{mark}", highlight=False
        )

    def finish(self) -> None:
        self._bars.update(self._task, seen="")
