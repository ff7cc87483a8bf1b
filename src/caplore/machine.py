"""What this process may use, and what the interpreter does behind its back."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cycles: where millions of small objects and no cycle are made, it takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
