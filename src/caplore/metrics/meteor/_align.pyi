"""METEOR's counts, compiled (align.cpp)."""

from collections.abc import Callable, Mapping, Sequence

def tables(arrays: Mapping[str, memoryview]) -> object:
    """The tables, ready to be looked up; they are read where words need them."""

def counts(
    tables: object,
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    normal: Callable[[str], bytes],
    threads: int,
    go_on: Callable[[], object] | None,
) -> bytes:
    """The counts of each caption with each of its references: int32, a row for each pair.

    `go_on` is called some times a second; what it raises ends the work, and so does Ctrl-C in the main thread.
    `normal` is asked for the words of a line that is not ASCII: UTF-8, lone surrogates passed, a space between words.
    """

def stem(word: str) -> str:
    """The stem of a lower-case word."""
