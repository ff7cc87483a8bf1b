"""CIDEr-D equals the reference scorer (pycocoevalcap 1.2, where it is installed) on random captions."""

import numpy as np
import pytest
import torch

from caplore.metrics.cider import CiderD
from caplore.metrics.ngrams import DocumentFrequencies

FLOAT32 = 2e-6  # scores up to 10, sums of some eighty products
FLOAT64 = 1e-12


def random_rows(*shape: int, time: int, vocab: int, seed: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, vocab, (*shape, time), generator=rng)
    lengths = torch.randint(0, time + 1, shape, generator=rng)
    return tokens * (torch.arange(time) < lengths.unsqueeze(-1))


def text(row: torch.Tensor) -> str:
    ids = [*row.tolist(), 0]
    return " ".join(str(i) for i in ids[: ids.index(0)])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, FLOAT32), (torch.float64, FLOAT64)])
def test_equals_the_reference_scorer(dtype: torch.dtype, tolerance: float) -> None:
    cider = pytest.importorskip("pycocoevalcap.cider.cider").Cider()
    images, samples, refs = 12, 3, 6
    references = random_rows(images, refs, time=14, vocab=30, seed=1)
    there = torch.rand(images, refs, generator=torch.Generator().manual_seed(2)) < 0.7
    there[:, 0] = True
    captions = random_rows(images, samples, time=11, vocab=34, seed=3)  # some words are in no reference
    captions[:, 0] = references[:, 0, :11]
    df = DocumentFrequencies.from_references(references, there, vocab=34, count_eos=False)
    scorer = CiderD(df, dtype=dtype)
    got = scorer.score(captions, scorer.prepare(references, there)).double().numpy()
    gts = {i: [text(references[i, j]) for j in range(refs) if there[i, j]] for i in range(images)}
    for k in range(samples):
        _, wanted = cider.compute_score(gts, {i: [text(captions[i, k])] for i in range(images)})
        assert np.abs(got[:, k] - wanted).max() < tolerance
    assert got.max() > 1
