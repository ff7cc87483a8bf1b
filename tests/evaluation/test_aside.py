"""Work done by other processes: in order, whole, and never left running. Each test forks in a fresh interpreter."""

import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from caplore.errors import CaploreError
from caplore.evaluation import aside
from caplore.evaluation.aside import Aside, InThread

HEAD = """
    import os, sys, time, threading
    import numpy as np
    from caplore.errors import CaploreError
    from caplore.evaluation import aside
    from caplore.evaluation.aside import Aside
    aside.FEWEST, aside._cores = 10, lambda: 3
"""


def fresh(code: str, *arguments: str) -> str:
    """What this code prints in a new Python that has no torch and no threads."""
    program = textwrap.dedent(HEAD) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_rows_come_in_order_from_several_processes() -> None:
    printed = fresh("""
        def work(some):
            return np.array([[i, os.getpid()] for i in range(100)[some]], dtype=np.int32)
        with Aside(work, 100, columns=2) as running:
            assert "torch" not in sys.modules
            rows = running.rows()
        assert rows[:, 0].tolist() == list(range(100))
        print(len(set(rows[:, 1].tolist()) - {os.getpid()}))
    """)
    assert printed == "3"


def test_a_failure_in_another_process_is_said_here() -> None:
    printed = fresh("""
        def work(some):
            if some.start:
                raise ValueError("no such thing")
            return np.zeros((len(range(100)[some]), 1), dtype=np.int32)
        try:
            with Aside(work, 100, columns=1) as running:
                running.rows()
        except CaploreError as error:
            print(error)
    """)
    assert printed.endswith("ValueError: no such thing")


def test_leaving_ends_what_still_runs(tmp_path: Path) -> None:
    begun = time.monotonic()
    fresh(
        """
        def work(some):
            time.sleep(5)
            open(sys.argv[1], "w").close()
        try:
            with Aside(work, 100, columns=1):
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        """,
        str(tmp_path / "late"),
    )
    assert time.monotonic() - begun < 5
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize("why", ["few", "torch", "threads"])
def test_it_is_done_here_where_forking_is_not_safe_or_not_worth_it(why: str) -> None:
    printed = fresh(
        """
        why = sys.argv[1]
        if why == "torch":
            sys.modules["torch"] = os
        if why == "threads":
            threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
        items = 5 if why == "few" else 100
        with Aside(lambda some: np.full((len(range(items)[some]), 1), os.getpid()), items, columns=1) as running:
            print(set(running.rows().flatten().tolist()) == {os.getpid()}, len(running.rows()) == items)
        """,
        why,
    )
    assert printed == "True True"


def test_errors_of_work_done_here_are_their_own() -> None:
    def work(some: slice) -> np.ndarray:
        raise CaploreError("as it is")

    with Aside(work, 1, columns=1) as running, pytest.raises(CaploreError, match="as it is"):
        running.rows()
    assert aside.FEWEST > 1


def test_a_thread_does_it_while_this_one_goes_on() -> None:
    here, there = threading.Event(), threading.Event()

    def work(some: slice) -> np.ndarray:
        there.set()
        assert here.wait(10), "the other thread was waited for"
        return np.arange(7, dtype=np.int32)[some, None]

    with InThread(work, 7) as running:
        assert there.wait(10)
        here.set()
        assert running.rows().flatten().tolist() == list(range(7))
        assert running.rows().shape == (7, 1)


def test_an_error_in_the_thread_is_said_here_and_no_thread_is_left() -> None:
    def work(some: slice) -> np.ndarray:
        raise CaploreError("as it is")

    before = threading.active_count()
    with InThread(work, 1) as running, pytest.raises(CaploreError, match="as it is"):
        running.rows()
    with pytest.raises(KeyboardInterrupt), InThread(work, 1):
        raise KeyboardInterrupt
    assert threading.active_count() == before
