"""Edit distance against the textbook table, written out slowly."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.metrics.edit import edit_distance

words = st.lists(st.integers(3, 5), max_size=6)


def slow_distance(a: list[int], b: list[int]) -> float:
    table = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            swap = table[i - 1][j - 1] + (a[i - 1] != b[j - 1])
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, swap)
    return table[-1][-1] / max(len(a), len(b), 1)


@given(sets=st.lists(st.tuples(words, words, words), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_equals_the_table(sets: list[tuple[list[int], ...]]) -> None:
    tokens = torch.tensor([[w + [0] * (7 - len(w)) for w in one] for one in sets])
    found = edit_distance(tokens)
    for image, one in zip(found, sets, strict=True):
        for row, a in zip(image, one, strict=True):
            for value, b in zip(row, one, strict=True):
                assert value.item() == pytest.approx(slow_distance(a, b))
