"""`patches`: a small fixed encoder that needs no weights and no download.

What colours are where, and which way the edges run, by plain arithmetic:

    colour   each pixel shares itself among fixed colour prototypes (softmax of squared distance)
    edges    gradient energy in 8 directions at two scales
    both averaged over a 4 x 4 grid: the regions; grid and whole picture together: the pooled vector

It sees colours, places, sizes and rough shapes. It does not know what things are: use it for made worlds,
tests and first steps; use a pretrained encoder for photographs.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d, conv2d

from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.features.encoder import Encoded, Encoder

VERSION = "1"  # part of the weights' name: change it whenever a number below changes
SIZE = 96
GRID = 4
COLOURS = [  # RGB prototypes: black, grey, white, the six hues, orange, brown, pink
    *((v, v, v) for v in (0.05, 0.5, 0.95)),
    *(
        (0.85, 0.15, 0.15),
        (0.85, 0.8, 0.2),
        (0.2, 0.65, 0.25),
        (0.2, 0.75, 0.8),
        (0.2, 0.35, 0.8),
        (0.6, 0.25, 0.7),
    ),
    *((0.95, 0.55, 0.15), (0.5, 0.32, 0.18), (0.95, 0.6, 0.75)),
]
DIRECTIONS = 8


class Patches(nn.Module):
    """Fixed: no parameter is learned, and the same pixels give the same numbers everywhere."""

    def forward(self, pixels: Float[Tensor, "frames 3 height width"]) -> Encoded:
        maps = torch.cat([colour_shares(pixels), edges(pixels, 1), edges(pixels, 2)], dim=1)
        cells = adaptive_avg_pool2d(maps, GRID)  # frames, channels, grid, grid
        cells = cells.sqrt()  # a tenth of a cell matters more than its square: small things must be seen
        regions = cells.flatten(2).transpose(1, 2)
        whole = maps.mean((2, 3)).sqrt()
        return {"pooled": torch.cat([whole, regions.flatten(1)], dim=1), "regions": regions}


def colour_shares(
    pixels: Float[Tensor, "frames 3 height width"],
) -> Float[Tensor, "frames colours height width"]:
    """How much each pixel is of each prototype; the shares of a pixel sum to 1."""
    prototypes = pixels.new_tensor(COLOURS)
    # -|x - c|^2 up to what all prototypes share, as one 1x1 convolution.
    near = conv2d(pixels, 2 * prototypes[:, :, None, None], bias=-prototypes.square().sum(1))
    return (near * 30).softmax(1)


def edges(
    pixels: Float[Tensor, "frames 3 height width"], scale: int
) -> Float[Tensor, "frames directions height width"]:
    """Gradient length shared between the two nearest of 8 directions; light to dark is not dark to light."""
    grey = pixels.mean(1, keepdim=True)
    if scale > 1:
        grey = avg_pool2d(grey, 2 * scale - 1, stride=1, padding=scale - 1)
    step = torch.tensor([[-1.0, 0.0, 1.0]]).to(grey) / 2
    dx = conv2d(grey, step[None, None], padding=(0, 1))
    dy = conv2d(grey, step.T[None, None], padding=(1, 0))
    length = (dx.square() + dy.square()).sqrt()
    angle = torch.atan2(dy, dx) * (DIRECTIONS / (2 * math.pi))
    bins = torch.arange(DIRECTIONS, device=grey.device).view(1, -1, 1, 1)
    apart = (angle - bins).remainder(DIRECTIONS)
    share = (1 - torch.minimum(apart, DIRECTIONS - apart)).clamp(min=0)
    return length * share


def patches(clip: ClipSampling | None = None) -> Encoder:
    return Encoder(
        name="patches",
        family="patches",
        network=Patches(),
        preprocessing=Preprocessing(SIZE, SIZE),
        weights=f"none (fixed arithmetic, version {VERSION})",
        clip=clip,
    )
