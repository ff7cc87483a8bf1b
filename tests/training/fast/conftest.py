"""Kernels are tested where they can run: on a GPU in bf16, else in Triton's interpreter in float32, else not at all."""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from caplore.models import Model, build
from caplore.models.protocol import Features
from caplore.training.examples import Examples
from caplore.training.reward import CiderReward

VOCAB, TIME, INPUTS, REFS = 40, 6, 12, 4

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton


@dataclass(frozen=True)
class Place:
    device: torch.device
    dtype: torch.dtype
    tolerance: float  # relative error of a product of a few hundred terms in this precision


@pytest.fixture(scope="session")
def place() -> Place:
    if importlib.util.find_spec("triton") is None:
        pytest.skip(
            "Triton is not installed (it comes with CUDA builds of torch; pip install triton for its interpreter)"
        )
    if torch.cuda.is_available():
        return Place(torch.device("cuda"), torch.bfloat16, 1e-2)
    return Place(torch.device("cpu"), torch.float32, 1e-5)


@pytest.fixture
def examples(place: Place) -> Examples:
    """A dozen inputs with random captions over a vocabulary of which the model knows all but five words."""
    rng = torch.Generator().manual_seed(0)
    words = torch.randint(3, VOCAB + 5, (INPUTS, REFS, TIME), generator=rng)
    lengths = torch.randint(2, TIME + 1, (INPUTS, REFS, 1), generator=rng)
    there = torch.rand(INPUTS, REFS, generator=rng) > 0.2
    there[:, 0] = True
    references = words * (torch.arange(TIME) < lengths) * there[..., None]
    features = Features(torch.randn(INPUTS, 10, generator=rng), torch.randn(INPUTS, 3, 8, generator=rng))
    on = [f.to(place.device) for f in features if f is not None]
    ids = tuple(map(str, range(INPUTS)))
    return Examples(ids, Features(*on), references.to(place.device), there.to(place.device))


@pytest.fixture
def reward(examples: Examples) -> CiderReward:
    return CiderReward(examples, vocab=VOCAB + 6)


@pytest.fixture
def make_model(place: Place) -> Callable[..., Model]:
    """A small model by name, with weights far enough from uniform for a mistake to show."""

    def make(name: str, **sizes: object) -> Model:
        torch.manual_seed(1)
        fields = {"vocab": VOCAB, "pooled_dim": 10, "regions": (3, 8), "hidden": 32, "dropout": 0.0}
        model = build(name, **{**fields, **sizes}).to(place.device)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.5)
        return model

    return make
