"""Pairwise BLEU equals coco-caption's sentence BLEU of one caption against one other."""

import pytest
import torch

from caplore.metrics.bleu import bleu_distance, pairwise_bleu

from .test_cider import random_rows, text

FLOAT32 = 1e-6


def test_pairwise_bleu_equals_the_reference_scorer() -> None:
    scorer = pytest.importorskip("pycocoevalcap.bleu.bleu_scorer").BleuScorer
    captions = random_rows(4, 4, time=9, vocab=4, seed=5)
    captions[0, 1] = captions[0, 0]
    got = pairwise_bleu(captions, orders=(3, 4))
    for i in range(4):
        for j in range(4):
            for k in range(4):
                one = scorer(n=4)
                one += (text(captions[i, j]), [text(captions[i, k])])
                _, bleus = one.compute_score(option="closest")
                assert got[i, j, k].item() == pytest.approx((bleus[2][0] + bleus[3][0]) / 2, abs=FLOAT32)


def test_distance_is_symmetric_and_zero_between_equal_captions() -> None:
    captions = random_rows(6, 5, time=12, vocab=5, seed=6)
    captions[:, 1] = captions[:, 0] = torch.tensor([3, 4, 3, 2, 1, 4, 0, 0, 0, 0, 0, 0])
    distance = bleu_distance(captions)
    assert torch.equal(distance, distance.transpose(1, 2))
    assert distance[:, 0, 1].abs().max() < FLOAT32
    assert distance.min() > -FLOAT32
    assert distance.max() <= 1
