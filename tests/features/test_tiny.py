"""The made world's encoder: its shapes, its folding and packing, and what can be read off the weights that ship."""

from random import Random

import numpy as np
import pytest
import torch
from torch import nn

from caplore.data.scenes import world
from caplore.features.tiny import CELLS, QUERIES, SIZE, VALUES, Tiny, tiny, unpacked
from caplore.features.tiny_training import QUESTIONS, SEED, UNKNOWN, Learner, drawn, packed, readable


def test_shapes() -> None:
    found = tiny()(torch.randint(0, 255, (2, SIZE, SIZE, 3), dtype=torch.uint8))
    assert found["pooled"].shape == (2, QUERIES * VALUES)
    assert found["regions"].shape == (2, CELLS * CELLS, 96)


def test_folding_the_normalisation_changes_nothing() -> None:
    torch.manual_seed(0)
    learner = Learner()
    for norm in learner.norms:
        assert isinstance(norm, nn.BatchNorm2d)
        nn.init.uniform_(norm.weight, 0.5, 2)
        nn.init.normal_(norm.bias)
        norm.running_mean, norm.running_var = (
            torch.randn(norm.num_features),
            torch.rand(norm.num_features) + 0.1,
        )
    pixels = torch.randn(2, 3, SIZE, SIZE)
    with torch.no_grad():
        before = learner.eval()(pixels)
        pooled = learner.fold()(pixels)["pooled"]
        after = [reader(pooled) for reader in learner.readers]
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


def test_packed_weights_are_within_half_a_step() -> None:
    torch.manual_seed(0)
    network = Tiny()
    back = unpacked(packed(network))
    for name, value in network.state_dict().items():
        apart, rows = (back[name] - value).abs().reshape(len(value), -1), value.reshape(len(value), -1)
        step = rows.abs().amax(1) / 127 if name.endswith("weight") else torch.zeros(len(value))
        assert (apart.amax(1) <= 0.501 * step).all()


@pytest.mark.parametrize("number", [0, 3])
def test_answers_are_those_of_the_scene(number: int) -> None:
    """Number 3 is a frame of a clip; the scene is drawn again here from the same seed."""
    pixels, answers = drawn(number)
    scene = world.random_scene(Random(SEED + number), moving=number == 3)
    assert pixels.shape == (SIZE, SIZE, 3)
    said = {q: None if a == UNKNOWN else QUESTIONS[q][a] for q, a in zip(QUESTIONS, answers, strict=True)}
    assert said["place"] == scene.place
    assert said["arrangement"] == scene.arrangement
    assert said["motion"] == (scene.motion.kind if scene.motion else None)
    for i, group in enumerate(scene.groups):
        for name in ("kind", "colour", "size", "texture", "count"):
            assert said[f"{i}.{name}"] == getattr(group, name)


def test_the_probe_reads_what_is_there_and_not_what_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    answers = torch.stack(
        [torch.randint(0, len(v), (600,), generator=generator) for v in QUESTIONS.values()], 1
    )
    noise = torch.randn(600, 20, generator=generator)
    place = torch.nn.functional.one_hot(answers[:, 0], len(QUESTIONS["place"])).float()
    right = readable(torch.cat([noise, 3 * place], 1), answers, 400)
    assert right["place"] > 0.99
    assert right["0.kind"] < 0.2


def test_a_little_data_reads_most_of_a_scene_off_the_weights_that_ship() -> None:
    """900 scenes teach a linear layer what 300 new ones hold. The floors are far below what --check prints."""
    made = [drawn(200_000_000 + i) for i in range(1200)]
    pixels = torch.from_numpy(np.stack([image for image, _ in made]))
    answers = torch.tensor([said for _, said in made])
    encoder = tiny()
    pooled = torch.cat([encoder(some)["pooled"] for some in pixels.split(200)])
    right = readable(pooled, answers, 900)
    floors = {"place": 0.9, "0.kind": 0.7, "1.colour": 0.7, "0.size": 0.85, "0.texture": 0.8, "1.count": 0.75}
    assert {question: right[question] for question in floors if right[question] < floors[question]} == {}
