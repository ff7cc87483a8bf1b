"""Work done beside this thread: in order, whole, its errors said here, and never left running."""

import threading

import numpy as np
import pytest

from caplore.errors import CaploreError
from caplore.evaluation import aside
from caplore.evaluation.aside import Aside


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "AT_ONCE", 3)


@pytest.mark.parametrize("items", [0, 1, 3, 7])
def test_a_thread_does_it_while_this_one_goes_on(items: int) -> None:
    here, there = threading.Event(), threading.Event()

    def work(some: slice) -> np.ndarray:
        there.set()
        assert here.wait(10), "the other thread was waited for"
        return np.arange(items, dtype=np.int32)[some, None]

    with Aside(work, items) as running:
        assert there.wait(10)
        here.set()
        assert running.rows().flatten().tolist() == list(range(items))
        assert running.rows().shape == (items, 1)


def test_an_error_is_said_here() -> None:
    def work(some: slice) -> np.ndarray:
        raise CaploreError("as it is")

    before = threading.active_count()
    with Aside(work, 1) as running, pytest.raises(CaploreError, match="as it is"):
        running.rows()
    assert threading.active_count() == before


def test_leaving_early_does_no_more_than_what_is_begun() -> None:
    begun: list[int] = []
    left = threading.Event()

    def work(some: slice) -> np.ndarray:
        begun.append(some.start)
        assert left.wait(10)
        return np.zeros((1, 1), dtype=np.int32)

    def leave() -> None:
        with Aside(work, 100) as running:
            threading.Timer(0.2, left.set).start()
            assert running._thread.is_alive()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert begun == [0]
