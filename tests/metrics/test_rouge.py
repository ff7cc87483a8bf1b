"""ROUGE-L: the bits of its common subsequence against the usual table."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.metrics import rouge as module
from caplore.metrics.ngrams import caption_lengths
from caplore.metrics.rouge import RougeL, longest_common_subsequence


def slow_common(first: list[int], second: list[int]) -> int:
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


lengths = st.one_of(st.integers(1, 12), st.sampled_from([61, 62, 63, 64, 124, 125, 190]))


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 10_000),
    st.lists(lengths, min_size=1, max_size=3),
    st.lists(lengths, min_size=1, max_size=3),
)
def test_common_subsequence_is_that_of_the_table(seed: int, ours: list[int], theirs: list[int]) -> None:
    rng = torch.Generator().manual_seed(seed)
    captions = torch.randint(1, 4, (1, len(ours), max(ours)), generator=rng)
    refs = torch.randint(1, 4, (1, len(theirs), max(theirs)), generator=rng)
    got = longest_common_subsequence(captions, torch.tensor([ours]), refs, torch.tensor([theirs]))
    for i, n in enumerate(ours):
        for j, m in enumerate(theirs):
            assert got[0, i, j] == slow_common(captions[0, i, :n].tolist(), refs[0, j, :m].tolist())


def score(captions: list[list[int]], refs: list[list[int]], there: list[bool] | None = None) -> list[float]:
    metric = RougeL(count_eos=False, dtype=torch.float64)
    references = metric.prepare(torch.tensor([refs]), torch.tensor([there or [True] * len(refs)]))
    return metric.score(torch.tensor([captions]), references)[0].tolist()


def test_precision_and_recall_take_their_best_reference_each() -> None:
    caption = [1, 2, 3, 4]
    precise, complete = [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 0, 0, 0, 0, 0, 0]
    precision, recall = 1.0, 1.0  # all of the caption is in the first, all of the second in the caption
    assert score([caption], [precise, complete]) == [
        (1 + 1.44) * precision * recall / (recall + 1.44 * precision)
    ]
    alone = score([caption], [precise])[0]
    assert abs(alone - 2.44 * 0.5 / (0.5 + 1.44)) < 1e-12
    assert score([caption], [precise, caption + [0] * 4], [True, False]) == [alone]


def test_an_empty_caption_is_one_empty_word() -> None:
    assert score([[0, 0], [1, 2]], [[0, 0]]) == [1.0, 0.0]
    assert score([[0, 0]], [[1, 2]]) == [0.0]
    assert score([[1, 2]], [[1, 2]], [False]) == [0.0]


def test_parts_of_images_are_the_whole(monkeypatch) -> None:
    rng = torch.Generator().manual_seed(0)
    captions, refs = (
        torch.randint(0, 4, (9, 2, 8), generator=rng),
        torch.randint(0, 4, (9, 3, 10), generator=rng),
    )
    sizes = caption_lengths(captions, False).clamp(min=1), caption_lengths(refs, False).clamp(min=1)
    whole = longest_common_subsequence(captions, sizes[0], refs, sizes[1])
    monkeypatch.setattr(module, "_ELEMENTS", 1000)
    assert torch.equal(longest_common_subsequence(captions, sizes[0], refs, sizes[1]), whole)


def test_similarity_is_the_score_against_one_reference() -> None:
    rng = torch.Generator().manual_seed(1)
    captions, refs = (
        torch.randint(0, 5, (4, 2, 8), generator=rng),
        torch.randint(0, 5, (4, 3, 8), generator=rng),
    )
    metric, all_there = RougeL(), torch.ones(4, 3, dtype=torch.bool)
    similarity = metric.similarity(captions, metric.prepare(refs, all_there))
    for r in range(3):
        only = metric.prepare(refs[:, r : r + 1], all_there[:, :1])
        assert torch.allclose(similarity[:, :, r], metric.score(captions, only))
