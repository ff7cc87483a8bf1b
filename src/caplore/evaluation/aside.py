"""Rows of numbers computed beside what this thread does: METEOR, while the other metrics are counted.

For compiled work, which lets other Python threads run. It is done some items at a time, so that Ctrl-C need not wait
for all of it.
"""

import threading
from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import NDArray

Work = Callable[[slice], NDArray[np.int32]]

AT_ONCE = 20_000


class Aside:
    """`work(some)` for all of `items`, one row each, in order. A context: leaving it ends what still runs."""

    def __init__(self, work: Work, items: int) -> None:
        self._work, self._items = work, items
        self._made: list[NDArray[np.int32]] = []
        self._error: BaseException | None = None
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            for begin in range(0, max(1, self._items), AT_ONCE):
                if self._left.is_set():
                    return
                self._made.append(self._work(slice(begin, min(begin + AT_ONCE, self._items))))
        except BaseException as error:  # it is whoever asks for the rows who must know
            self._error = error

    def rows(self) -> NDArray[np.int32]:
        """The result; waits for it."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return np.concatenate(self._made)

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
