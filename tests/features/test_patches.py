"""The fixed encoder: what it sees, and that it sees it the same everywhere."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from caplore.features.decoding import fit
from caplore.features.encoder import Encoded
from caplore.features.patches import COLOURS, GRID, colour_shares, edges, patches


def seen(image: Image.Image) -> Encoded:
    encoder = patches()
    return encoder(torch.from_numpy(np.array(fit(image, encoder.preprocessing)))[None])


def spot(x: int, y: int, colour: tuple[int, int, int] = (220, 30, 30)) -> Image.Image:
    image = Image.new("RGB", (96, 96), (128, 128, 128))
    ImageDraw.Draw(image).rectangle((x, y, x + 20, y + 20), fill=colour)
    return image


def test_shapes_and_range() -> None:
    found = seen(spot(10, 10))
    assert found["regions"].shape == (1, GRID * GRID, len(COLOURS) + 16)
    assert found["pooled"].shape == (1, (GRID * GRID + 1) * (len(COLOURS) + 16))
    assert found["pooled"].isfinite().all()


def test_a_thing_is_seen_where_it_is() -> None:
    """The cell that changes most against an empty picture is the one the spot is in."""
    empty = seen(Image.new("RGB", (96, 96), (128, 128, 128)))["regions"][0]
    for column in range(GRID):
        for row in range(GRID):
            found = seen(spot(24 * column + 2, 24 * row + 2))["regions"][0]
            assert int((found - empty).abs().sum(1).argmax()) == row * GRID + column


@pytest.mark.parametrize("index", range(len(COLOURS)))
def test_each_prototype_is_itself(index: int) -> None:
    shares = colour_shares(torch.tensor(COLOURS[index]).view(1, 3, 1, 1))
    assert int(shares.argmax(1)) == index
    torch.testing.assert_close(shares.sum(1), torch.ones(1, 1, 1))


def test_edges_know_their_direction() -> None:
    """A step to the right is direction 0, a step down is direction 2 of 8; turned round they are 4 and 6."""
    step = torch.cat([torch.zeros(8, 4), torch.ones(8, 4)], dim=1).expand(1, 3, 8, 8)
    for picture, direction in (
        (step, 0),
        (step.transpose(2, 3), 2),
        (step.flip(3), 4),
        (step.transpose(2, 3).flip(2), 6),
    ):
        inside = edges(picture.contiguous(), 1)[..., 1:-1, 1:-1].sum((0, 2, 3))
        assert int(inside.argmax()) == direction
        assert inside[direction] > 0.99 * inside.sum()


def test_a_batch_is_its_pictures() -> None:
    pixels = torch.randint(0, 255, (3, 96, 96, 3), dtype=torch.uint8)
    encoder = patches()
    for kind, values in encoder(pixels).items():
        one_by_one = torch.cat([encoder(pixels[i : i + 1])[kind] for i in range(3)])
        torch.testing.assert_close(values, one_by_one)
