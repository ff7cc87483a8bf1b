"""`tiny`: a small encoder that was trained once on made worlds; its weights (0.2 MB) come with the package.

    pixels [frames, 3, 96, 96] -> five convolutions -> cells [frames, 96, 6, 6]: regions [36, 96]
    8 learned queries, each with its own preference for places, average 64 values over the cells: pooled [512]

It knows what `caplore data scenes` draws (kinds, colours, sizes, textures, counts, which is left or above, what
moves) and nothing else: of photographs it is no better than `patches`. `caplore.features.tiny_training` says how such
weights are made, from scenes that no data set has, and measures what can be read off those that are here.
"""

from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import relu

from caplore.features.decoding import ClipSampling, Preprocessing
from caplore.features.encoder import Encoded, Encoder
from caplore.files import digest_of_file

SIZE = 96
WEIGHTS = Path(__file__).with_name("tiny.safetensors")
LAYERS = (
    (3, 32, 7, 4),
    (32, 48, 3, 2),
    (48, 64, 3, 1),
    (64, 96, 3, 2),
    (96, 96, 3, 1),
)  # in, out, kernel, stride
CELLS, QUERIES, VALUES = 6, 8, 64
PREPROCESSING = Preprocessing(SIZE, SIZE, mean=(0.5,) * 3, std=(0.25,) * 3)


class Tiny(nn.Module):
    """The network; training adds batch normalisation between the convolutions and folds it in afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2) for i, o, k, s in LAYERS)
        dim = LAYERS[-1][1]
        self.queries = nn.Conv2d(dim, QUERIES, 1)
        self.places = nn.Parameter(torch.zeros(QUERIES, CELLS, CELLS))
        self.values = nn.Conv2d(dim, VALUES, 1)

    def forward(self, pixels: Float[Tensor, "frames 3 height width"]) -> Encoded:
        cells = pixels
        for convolution in self.convolutions:
            cells = relu(convolution(cells))
        return {"pooled": self.summary(cells), "regions": cells.flatten(2).transpose(1, 2)}

    def summary(self, cells: Float[Tensor, "frames dim side side"]) -> Float[Tensor, "frames pooled"]:
        """What each query sees: its softmax over the cells, times their values."""
        shares = (self.queries(cells) + self.places).flatten(2).softmax(2)  # frames, queries, cells
        return (shares @ self.values(cells).flatten(2).transpose(1, 2)).flatten(1)


def tiny(*, clip: ClipSampling | None = None) -> Encoder:
    network = Tiny()
    network.load_state_dict(unpacked(load_file(WEIGHTS)))
    return Encoder(
        name="tiny",
        family="tiny",
        network=network.eval().requires_grad_(False),
        preprocessing=PREPROCESSING,
        weights=f"sha256:{digest_of_file(WEIGHTS)[:16]}",
        clip=clip,
    )


def unpacked(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """int8 weights times the scale of their row (`<name>.scale`); what has no scale is as it is."""
    scales = {name.removesuffix(".scale"): value for name, value in stored.items() if name.endswith(".scale")}
    return {
        name: value.float() * scales[name].view(-1, *[1] * (value.ndim - 1))
        if name in scales
        else value.float()
        for name, value in stored.items()
        if not name.endswith(".scale")
    }
