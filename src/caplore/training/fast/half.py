"""A bf16 copy of a model, to compute with; the float32 weights stay where they are, for the optimiser and for others.

Some of its parts are exchanged for faster ones with the same parameters: the embedding (its gradient is gathered in
float32 without sorting), fc's LSTM (`recurrent`), attention (`attend`), and the output layer, whose rows are filled up
(`head.Output`).
"""

import copy
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor, nn

from caplore.models import Model
from caplore.models.attention import Additive, Dot, MaxoutCell
from caplore.models.entry import Entry
from caplore.training.fast.attend import FusedAdditive, FusedDot, FusedMaxoutCell
from caplore.training.fast.head import NO_WORD, Output
from caplore.training.fast.recurrent import Recurrence

ALIGNED = 64  # words; see head.Output


class HalfCopy:
    """`model` computes, like the original; `copies[i]` is its parameter that has the value of `weights[i]`."""

    def __init__(self, original: Model, dtype: torch.dtype = torch.bfloat16) -> None:
        self.model: Any = copy.deepcopy(original).to(dtype)
        entries = {name: part for name, part in original.named_modules() if isinstance(part, Entry)}
        for name, part in list(self.model.named_modules()):
            if isinstance(part, Entry):
                self.model.set_submodule(name, Narrowed(copy.deepcopy(entries[name]), dtype))
            else:
                faster = _faster(part)
                if faster is not None:
                    self.model.set_submodule(name, faster)
        self.output = _fill_up(self.model.out)
        self.lookup = Lookup(self.model.embedding)
        self.model.set_submodule("embedding", self.lookup)
        named = {name.replace(".inside.", "."): half for name, half in self.model.named_parameters()}
        self.weights: list[Tensor] = list(original.parameters())
        self.copies: list[Tensor] = [named[name] for name, _ in original.named_parameters()]

    def refresh(self) -> None:
        """Take over the float32 weights, after something other than the fused optimiser has changed them."""
        with torch.no_grad():
            for weight, half in zip(self.weights, self.copies, strict=True):
                half.copy_(weight)

    @property
    def slopes(self) -> list[Tensor]:
        """The gradients, in the order of `weights`."""
        embedding = self.lookup.inside.weight
        found = [self.lookup.slope if half is embedding else half.grad for half in self.copies]
        assert all(slope is not None for slope in found), "every parameter has its gradient before the update"
        return [slope for slope in found if slope is not None]


def _faster(part: nn.Module) -> nn.Module | None:
    """The same with kernels of our own, where there are some."""
    match part:
        case nn.LSTM():
            return Lstm(part)
        case Additive():
            return FusedAdditive(part)
        case MaxoutCell():
            return FusedMaxoutCell()
        case Dot():
            return FusedDot()
    return None


def _fill_up(layer: nn.Linear) -> Output:
    """The layer's parameters become the first rows of tensors whose number of rows ALIGNED divides."""
    vocab, dim = layer.weight.shape
    stride = -(-vocab // ALIGNED) * ALIGNED
    weight = layer.weight.new_zeros(stride, dim)
    bias = layer.weight.new_full((stride,), NO_WORD.value)
    weight[:vocab], bias[:vocab] = layer.weight.detach(), layer.bias.detach()
    layer.weight, layer.bias = nn.Parameter(weight[:vocab]), nn.Parameter(bias[:vocab])
    return Output(weight, bias, vocab)


class Narrowed(nn.Module):
    """Features are standardised in float32 and rounded afterwards: a mean may be far larger than the spread."""

    def __init__(self, inside: Entry, dtype: torch.dtype) -> None:
        super().__init__()
        self.inside, self.dtype = inside, dtype

    def forward(self, features: Tensor | None) -> Tensor:
        return self.inside(features).to(self.dtype)


class Lstm(nn.Module):
    """`nn.LSTM` with one layer and rows first, by the kernels of `recurrent`."""

    def __init__(self, inside: nn.LSTM) -> None:
        super().__init__()
        self.inside = inside

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        return self.inside.all_weights

    def forward(
        self, words: Float[Tensor, "rows time embed"], state: tuple[Tensor, Tensor]
    ) -> tuple[Float[Tensor, "rows time dim"], None]:
        input_weight, weight, input_bias, bias = self.inside.all_weights[0]
        start, cell = state[0][0], state[1][0]
        outputs = Recurrence.apply(
            words.transpose(0, 1).contiguous(), start, cell, input_weight, weight, input_bias, bias
        )
        return outputs.transpose(0, 1), None


class Lookup(nn.Module):
    """`nn.Embedding` whose gradient is added to `slope` in float32; set that to zero before each step.

    torch sorts the ids to add in a fixed order; this adds as it comes, which is several times faster and makes the
    last bits of a sum depend on the order of arrival.
    """

    def __init__(self, inside: nn.Embedding) -> None:
        super().__init__()
        self.inside = inside
        self.slope = torch.zeros_like(inside.weight, dtype=torch.float32, requires_grad=False)

    def forward(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows embed"]:
        found: Tensor = _Look.apply(self.inside.weight, tokens, self.slope)
        return found


class _Look(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, tokens: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.slope = slope
        return weight[tokens]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        (tokens,) = ctx.saved_tensors
        add_rows(ctx.slope, tokens, slope)
        return None, None, None


def add_rows(
    total: Float[Tensor, "vocab dim"], tokens: Int[Tensor, "*rows"], rows: Float[Tensor, "*rows dim"]
) -> None:
    """total[tokens[i]] += rows[i], in any order; rows of zeros, which padding has, are left out."""
    dim = rows.shape[-1]
    flat = rows.reshape(-1, dim)
    _add_rows[(len(flat),)](
        total, tokens.reshape(-1), flat, dim, DIM=triton.next_power_of_2(dim), num_warps=4
    )


@triton.jit
def _add_rows(total, tokens, rows, dim, DIM: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, DIM)
    value = tl.load(rows + row * dim + place, mask=place < dim, other=0.0).to(tl.float32)
    if tl.max(tl.abs(value), 0) > 0:
        tl.atomic_add(total + tl.load(tokens + row) * dim + place, value, mask=place < dim, sem="relaxed")
