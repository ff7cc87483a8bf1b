"""The log once more, as TensorBoard reads it: for who watches many runs there. log.jsonl is what counts."""

from pathlib import Path
from typing import Any

from caplore.errors import MissingError


def require_tensorboard() -> Any:
    """The writer's class, or what to install: asked before anything is trained."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingError(
            "--tensorboard needs TensorBoard, which is not installed", fix="pip install 'tensorboard>=2.18'"
        ) from None
    return SummaryWriter


class Curves:
    """A point for each number of a log line, under `<phase>/<name>`."""

    def __init__(self, folder: Path, step: int) -> None:
        """What an interrupted run wrote after `step` is not shown: it is done again."""
        self._writer = require_tensorboard()(str(folder), purge_step=step + 1)

    def add(self, line: dict[str, Any]) -> None:
        for name, value in line.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{line['phase']}/{name}", value, line["step"])
        self._writer.flush()
