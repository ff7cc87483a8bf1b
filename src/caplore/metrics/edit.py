"""Edit distance between captions, on ids and on the device: the other distance the paper names."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.metrics.ngrams import caption_lengths


def edit_distance(captions: Int[Tensor, "images samples time"]) -> Float[Tensor, "images samples samples"]:
    """Levenshtein distance of words / the longer caption's length, of each pair of a set: 0 .. 1.

    Row by row of the classical table; within a row, insertions are a running minimum:
    D[i, j] = min over k <= j of (best without insertion at k) + (j - k).
    """
    lengths = caption_lengths(captions, count_eos=False)
    images, samples, time = captions.shape
    steps = torch.arange(time + 1, device=captions.device, dtype=torch.float32)
    row = steps.expand(images, samples, samples, time + 1)
    ends = lengths[:, None, :].expand(images, samples, samples)[..., None]  # of the second caption
    found = row.gather(-1, ends).squeeze(-1)
    for i in range(time):
        differs = (captions[:, :, i, None, None] != captions[:, None]).float()  # images, j, k, time
        without = torch.cat(
            [row[..., :1] + 1, torch.minimum(row[..., 1:] + 1, row[..., :-1] + differs)], dim=-1
        )
        row = (without - steps).cummin(-1).values + steps
        reached = lengths[:, :, None] == i + 1  # the first caption ends here
        found = torch.where(reached, row.gather(-1, ends).squeeze(-1), found)
    longer = torch.maximum(lengths[:, :, None], lengths[:, None, :])
    return found / longer.clamp_min(1)
