"""Attention, as modules of their own: a faster copy of a model may exchange them (caplore.training.fast)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Additive(nn.Module):
    """z = sum_i softmax(w . tanh(k_i + q))_i v_i (Bahdanau et al., 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1, bias=False)

    def forward(
        self,
        query: Float[Tensor, "rows width"],
        keys: Float[Tensor, "rows regions width"],
        values: Float[Tensor, "rows regions dim"],
    ) -> Float[Tensor, "rows dim"]:
        weight = self.score(torch.tanh(keys + query[:, None])).softmax(dim=1)  # rows regions 1
        return (weight.transpose(1, 2) @ values).squeeze(1)


class Dot(nn.Module):
    """softmax(q k / sqrt(dim)) v of every head (Vaswani et al., 2017)."""

    def forward(
        self,
        query: Float[Tensor, "rows heads time dim"],
        keys: Float[Tensor, "rows heads places dim"],
        values: Float[Tensor, "rows heads places dim"],
        *,
        causal: bool = False,
    ) -> Float[Tensor, "rows heads time dim"]:
        return F.scaled_dot_product_attention(query, keys, values, is_causal=causal)


class MaxoutCell(nn.Module):
    """The LSTM of Att2in: its new content is the larger of two pieces, and what was seen adds to these alone.

        i, f, o = sigmoid(gates);   c = f c' + i max(a, b);   h = o tanh(c)

    `some` and `others` are summands of (i, f, o, a, b); `seen` is one of (a, b).
    """

    def forward(
        self,
        some: Float[Tensor, "rows five*dim"],
        others: Float[Tensor, "rows five*dim"],
        seen: Float[Tensor, "rows two*dim"],
        cell: Float[Tensor, "rows dim"],
    ) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "rows dim"]]:
        dim = cell.shape[-1]
        gates, pieces = (some + others).split([3 * dim, 2 * dim], dim=-1)
        write, keep, show = gates.sigmoid().chunk(3, dim=-1)
        cell = keep * cell + write * torch.maximum(*(pieces + seen).chunk(2, dim=-1))
        return show * cell.tanh(), cell
