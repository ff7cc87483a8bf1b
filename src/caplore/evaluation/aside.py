"""Rows of numbers computed beside what this thread does: METEOR, while the other metrics are counted.

For compiled work, which lets other Python threads run, and asks now and then whether to go on, so that Ctrl-C need not
wait for all of it.
"""

import threading
from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import NDArray

Work = Callable[[Callable[[], object]], NDArray[np.int32]]


class _Left(Exception):
    """Nobody asks for the rows any more."""


class Aside:
    """`work(go_on)` beside this thread. A context: leaving it makes `go_on` raise, and waits for what still runs."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._made: NDArray[np.int32] | None = None
        self._error: BaseException | None = None
        self._left, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self._made = self._work(self._go_on)
        except BaseException as error:  # it is whoever asks for the rows who must know
            self._error = error
        finally:
            self._done.set()

    def _go_on(self) -> None:
        if self._left.is_set():
            raise _Left

    def rows(self) -> NDArray[np.int32]:
        """The result; waits for it."""
        self._wait()
        if self._error is not None:
            raise self._error
        assert self._made is not None, "there is a result or an error"
        return self._made

    def _wait(self) -> None:
        """Not by `join`: before Python 3.13 one that Ctrl-C interrupts takes the thread for ended ever after."""
        self._done.wait()

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._wait()
        self._thread.join()
