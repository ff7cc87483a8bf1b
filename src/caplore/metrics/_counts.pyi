"""Counting n-grams of captions, compiled: counts.cpp. Arrays are numpy's, contiguous."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Captions = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]  # words, captions, inputs
_Ints = NDArray[np.int32] | None
_Floats = NDArray[np.float64] | None

def encode(lines: Sequence[str], /) -> tuple[bytes, bytes, list[str]]:
    """(ids int32 from 0 of the words of the lines, ends of the lines int64 from 0, the words)."""

def frequencies(references: _Captions, /) -> Any:
    """Document frequencies, as `count` takes them."""

def ngrams_known(frequencies: Any, /) -> int:
    """How many different n-grams the references have."""

def count(
    said: _Captions,
    refs: _Captions,
    inputs: tuple[int, int],
    frequencies: Any,
    sigma: float,
    outputs: tuple[_Ints, _Ints, _Ints, _Ints, _Ints, _Floats, _Floats, _Floats],
    /,
) -> None:
    """Fill what these inputs have of the outputs: bleu, bleu_each, bleu_others, ngrams, captions, cider_d, cider,
    cider_others (caplore.metrics.counts); None where one is not wanted."""

def common(said: _Captions, refs: _Captions, inputs: tuple[int, int], output: NDArray[np.int32], /) -> None:
    """Fill what these inputs have of the longest common subsequences."""
