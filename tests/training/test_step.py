"""One step by itself: what bfloat16 products change, and what they must not."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from caplore import models
from caplore.data.dataset import Dataset
from caplore.features.store import open_store
from caplore.models.protocol import Features
from caplore.text.vocabulary import Vocabulary
from caplore.training import examples
from caplore.training.config import Sequence, SllSle
from caplore.training.distributed import ALONE
from caplore.training.reward import CiderReward
from caplore.training.step import Update, sequence_step, xe_step

Precision = Literal["float32", "bfloat16"]


@pytest.mark.parametrize("model", ["fc", "att2in", "updown", "transformer"])
def test_products_in_bfloat16_give_nearly_the_same_gradient_to_every_weight(
    tiny: Dataset, model: str
) -> None:
    """Of cross-entropy, whose words are given; of samples they may be others, but all weights are pushed."""
    exact = gradients(tiny, model, "float32")
    for name, gradient in gradients(tiny, model, "bfloat16").items():
        assert gradient.dtype == torch.float32
        assert (gradient - exact[name]).norm() <= 0.03 * exact[name].norm() + 1e-4, name
    drawn = gradients(tiny, model, "bfloat16", sampled=True)
    assert [name for name, gradient in drawn.items() if not gradient.any()] == [
        name
        for name, gradient in gradients(tiny, model, "float32", sampled=True).items()
        if not gradient.any()
    ]


def gradients(
    dataset: Dataset, name: str, precision: Precision, *, sampled: bool = False
) -> dict[str, Tensor]:
    """Of one step of a new model on all training inputs."""
    tokens = examples.tokenised(dataset, "train")
    words = Vocabulary.from_captions((c for some in tokens for c in some), min_count=1)
    store = open_store(dataset.store_path("made"))
    train = examples.load_examples(
        dataset, "train", tokens, words, store=store, max_words=8, device=torch.device("cpu")
    )
    torch.manual_seed(0)
    sizes = {"heads": 2} if name == "transformer" else {}
    model = models.build(
        name, vocab=len(words), pooled_dim=7, regions=(2, 7), hidden=32, dropout=0.0, **sizes
    )
    update = Update(model, torch.optim.Adam(model.parameters(), lr=0.0), 0.0, ALONE)
    index = torch.arange(len(train))
    features = train.features_of(index)
    assert isinstance(features, Features)
    if sampled:
        rng = torch.Generator().manual_seed(1)
        sequence_step(
            model,
            features,
            index,
            CiderReward(train, vocab=len(words)),
            Sequence(objective=SllSle()),
            max_words=8,
            update=update,
            precision=precision,
            uniforms=lambda rows: torch.rand(rows, generator=rng),
        )
    else:
        xe_step(model, features, train.references, label_smoothing=0.0, update=update, precision=precision)
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
