"""Rows of numbers computed beside what this thread does: METEOR, while the other metrics are counted.

Compiled code lets other threads run, so `InThread` is a thread. Python does not: where METEOR's twin was not built, it
takes longer than everything else together and `Aside` has other processes do it. They are forks, so what they read
(captions, tables) is neither copied nor sent; what they make comes back as bytes of one array. Where forking is not
safe (torch or threads are there already, no Linux) or not worth it, the same work is done here when it is asked for.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import IO, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from caplore.errors import CaploreError

Work = Callable[[slice], NDArray[np.int32]]

FEWEST = 300
"""Items below which a process costs more than it gains."""


class _Part(NamedTuple):
    pid: int
    made: IO[Any]


class Aside:
    """`work(some)` for all of `items`, one row each, in order. A context: leaving it ends what still runs."""

    def __init__(self, work: Work, items: int, *, columns: int) -> None:
        self._work, self._items, self._columns = work, items, columns
        self._parts: list[_Part] = []

    def __enter__(self) -> Self:
        processes = min(_cores(), self._items // FEWEST)
        if processes > 1 and _may_fork():
            ends = [self._items * i // processes for i in range(processes + 1)]
            for begin, end in pairwise(ends):
                self._parts.append(self._fork(slice(begin, end)))
        return self

    def _fork(self, some: slice) -> _Part:
        made = tempfile.TemporaryFile()  # noqa: SIM115  closed when it has been read
        pid = os.fork()
        if pid:
            return _Part(pid, made)
        status = 1
        try:  # the child: nothing of the parent's may run here, so it leaves by _exit whatever happens
            rows = np.ascontiguousarray(self._work(some), dtype=np.int32)
            made.write(rows.tobytes())
            made.flush()
            status = 0
        except Exception as error:
            made.write(f"{type(error).__name__}: {error}".encode())
            made.flush()
        finally:
            os._exit(status)

    def rows(self) -> NDArray[np.int32]:
        """The result; waits for it, or makes it now."""
        if not self._parts:
            return self._work(slice(0, self._items))
        return np.concatenate([self._finish(part) for part in self._parts])

    def _finish(self, part: _Part) -> NDArray[np.int32]:
        _, status = os.waitpid(part.pid, 0)
        self._parts = [other for other in self._parts if other.pid != part.pid]
        with part.made as made:
            made.seek(0)
            content = made.read()
        if status != 0:
            raise CaploreError(
                f"a process that helped ended with {status}: {content.decode(errors='replace')[:300]}"
            )
        return np.frombuffer(content, dtype=np.int32).reshape(-1, self._columns)

    def __exit__(self, *_: object) -> None:
        for part in self._parts:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(part.pid, signal.SIGKILL)
                os.waitpid(part.pid, 0)
            part.made.close()
        self._parts = []


class InThread:
    """`work` for all of `items` by a thread of this process. A context: leaving it waits for what still runs."""

    def __init__(self, work: Work, items: int) -> None:
        self._work, self._items = work, items
        self._made: NDArray[np.int32] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self._made = self._work(slice(0, self._items))
        except BaseException as error:  # it is whoever asks for the rows who must know
            self._error = error

    def rows(self) -> NDArray[np.int32]:
        """The result; waits for it."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._made is not None
        return self._made

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _may_fork() -> bool:
    """A fork has only the thread that made it; locks that others hold stay locked in it for ever."""
    return sys.platform == "linux" and "torch" not in sys.modules and threading.active_count() == 1
