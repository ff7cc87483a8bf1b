"""Work done beside this thread: whole, its errors said here, and never left running."""

import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from caplore.errors import CaploreError
from caplore.evaluation.aside import Aside

GoOn = Callable[[], object]


def test_a_thread_does_it_while_this_one_goes_on() -> None:
    here, there = threading.Event(), threading.Event()

    def work(go_on: GoOn) -> np.ndarray:
        there.set()
        assert here.wait(10), "the other thread was waited for"
        return np.arange(3, dtype=np.int32)[:, None]

    with Aside(work) as running:
        assert there.wait(10)
        here.set()
        assert running.rows().flatten().tolist() == [0, 1, 2]
        assert running.rows().shape == (3, 1)


def test_an_error_is_said_here() -> None:
    def work(go_on: GoOn) -> np.ndarray:
        raise CaploreError("as it is")

    before = threading.active_count()
    with Aside(work) as running, pytest.raises(CaploreError, match="as it is"):
        running.rows()
    assert threading.active_count() == before


@pytest.mark.parametrize("waiting", [False, True])
def test_ctrl_c_ends_it_and_waits_for_that(waiting: bool) -> None:
    """Whether it finds this thread at other work, or in wait for the rows."""
    ended = threading.Event()
    if waiting and not hasattr(signal, "pthread_kill"):
        pytest.skip("needs to signal one thread")

    def work(go_on: GoOn) -> np.ndarray:
        try:
            if waiting:
                time.sleep(0.1)
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            while True:
                time.sleep(0.3)
                go_on()
        finally:
            ended.set()

    def leave() -> None:
        with Aside(work) as running:
            if not waiting:
                raise KeyboardInterrupt
            running.rows()

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert ended.is_set()
