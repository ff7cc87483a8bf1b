"""What holds of every encoder: normalisation, pooling over time, a description that is plain JSON."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.features.encoder import Encoder, pool_time, weights_hash


def test_pixels_are_normalised_per_channel() -> None:
    seen: list[torch.Tensor] = []

    def network(pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        seen.append(pixels)
        return {"pooled": pixels.mean((2, 3))}

    preprocessing = Preprocessing(2, 2, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    encoder = Encoder("e", "test", network, preprocessing, "")
    pixels = torch.zeros(1, 2, 2, 3, dtype=torch.uint8)
    pixels[..., 0], pixels[..., 1], pixels[..., 2] = 51, 102, 255
    pooled = encoder(pixels)["pooled"]
    assert seen[0].shape == (1, 3, 2, 2)
    torch.testing.assert_close(pooled[0], torch.tensor([0.1 / 0.5, 0.2 / 1.0, 0.7 / 2.0]))


@given(clips=st.integers(1, 3), segments=st.integers(1, 4), each=st.integers(1, 3), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_time_is_pooled_within_each_clip(clips: int, segments: int, each: int, seed: int) -> None:
    frames = torch.randn(clips * segments * each, 5, generator=torch.Generator().manual_seed(seed))
    found = pool_time({"pooled": frames}, ClipSampling(segments * each, segments))
    assert found["regions"].shape == (clips, segments, 5)
    for clip in range(clips):
        own = frames[clip * segments * each : (clip + 1) * segments * each]
        torch.testing.assert_close(found["pooled"][clip], own.mean(0))
        for segment in range(segments):
            torch.testing.assert_close(
                found["regions"][clip, segment], own[segment * each : (segment + 1) * each].mean(0)
            )


def test_an_encoder_of_regions_only_has_clips_too() -> None:
    regions = torch.randn(4, 3, 5)
    found = pool_time({"regions": regions}, ClipSampling(4, 2))
    torch.testing.assert_close(found["pooled"][0], regions.mean((0, 1)))


def test_the_description_survives_json() -> None:
    encoder = Encoder("e", "f", lambda pixels: {}, Preprocessing(2, 3), "w", ClipSampling(4, 2), {"grid": 3})
    assert json.loads(json.dumps(encoder.description)) == encoder.description


@pytest.mark.parametrize("change", ["value", "name", "nothing"])
def test_the_hash_names_the_weights(change: str) -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.load_state_dict(first.state_dict())
    if change == "value":
        with torch.no_grad():
            second.weight[0, 0] += 1e-6
    other = nn.Sequential(second) if change == "name" else second
    assert (weights_hash(first) == weights_hash(other)) == (change == "nothing")
