"""Attention over regions in one kernel a step, and the att2in cell; forward and backward.

The additive attention z = sum_i softmax_i(w . tanh(k_i + q)) v_i is asked once a word, always of the same keys and
values. What the words do to q follows at once; what they all do to w, k and v is added up only when the first word's
turn has come, going backward, in one pass over the regions:

    dk_i = sum_t ds_ti w (1 - tanh^2(k_i + q_t)),    dv_i = sum_t weight_ti dz_t,    dw = sum_ti ds_ti tanh(k_i + q_t)
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from caplore.models.attention import Additive

CHUNK = 64  # of a vector, held for all regions at once
MOST_REGIONS = 256


class Later(NamedTuple):
    """What one word leaves for the end of the backward pass."""

    query: Float[Tensor, "rows width"]
    weight: Float[Tensor, "rows regions"]
    of_score: Float[Tensor, "rows regions"]
    of_seen: Float[Tensor, "rows dim"]


class FusedAdditive(nn.Module):
    """`Additive`, by these kernels. Questions of one forward pass belong together: they have the same keys."""

    def __init__(self, inside: Additive) -> None:
        super().__init__()
        self.inside = inside
        self._asked = (
            WeakTensorKeyDictionary()
        )  # of these keys: what is left for the end, how many words are open

    def forward(
        self,
        query: Float[Tensor, "rows width"],
        keys: Float[Tensor, "rows regions width"],
        values: Float[Tensor, "rows regions dim"],
    ) -> Float[Tensor, "rows dim"]:
        score = self.inside.score.weight
        if not torch.is_grad_enabled():
            return ask(query, keys, values, score)[0]
        later, open_ = self._asked.setdefault(keys, ([], [0]))
        open_[0] += 1
        seen: Tensor = _Ask.apply(query, keys, values, score, later, open_)
        return seen


def ask(
    query: Float[Tensor, "rows width"],
    keys: Float[Tensor, "rows regions width"],
    values: Float[Tensor, "rows regions dim"],
    score: Float[Tensor, "one width"],
) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "rows regions"]]:
    """What is seen, and the weights."""
    rows, regions, width = keys.shape
    dim = values.shape[-1]
    seen = torch.empty(rows, dim, dtype=values.dtype, device=values.device)
    weight = torch.empty(rows, regions, device=values.device)
    _ask[(rows,)](
        query, query.stride(0), keys, values, score, seen, weight, regions,
        WIDTH=width, DIM=dim, REGIONS=triton.next_power_of_2(regions), CHUNK=CHUNK, num_warps=4,
    )  # fmt: skip
    return seen, weight


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _ask(
    query, stride, keys, values, score, seen, weights, regions,
    WIDTH: tl.constexpr, DIM: tl.constexpr, REGIONS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    region, part = tl.arange(0, REGIONS), tl.arange(0, CHUNK)
    there = region < regions
    at = row * regions + region
    scores = tl.zeros((REGIONS,), tl.float32)
    for start in range(0, WIDTH, CHUNK):
        inside = start + part < WIDTH
        q = tl.load(query + row * stride + start + part, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(score + start + part, mask=inside, other=0.0).to(tl.float32)
        both = there[:, None] & inside[None, :]
        k = tl.load(keys + at[:, None] * WIDTH + start + part[None, :], mask=both, other=0.0).to(tl.float32)
        scores += tl.sum(_tanh(k + q[None, :]) * w[None, :], 1)
    scores = tl.where(there, scores, float("-inf"))
    mass = tl.exp(scores - tl.max(scores, 0))
    weight = mass / tl.sum(mass, 0)
    tl.store(weights + at, weight, mask=there)
    for start in range(0, DIM, CHUNK):
        inside = start + part < DIM
        both = there[:, None] & inside[None, :]
        v = tl.load(values + at[:, None] * DIM + start + part[None, :], mask=both, other=0.0).to(tl.float32)
        found = tl.sum(v * weight[:, None], 0)
        tl.store(seen + row * DIM + start + part, found.to(seen.dtype.element_ty), mask=inside)


class _Ask(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        score: Tensor,
        later: list[Later],
        open_: list[int],
    ) -> Tensor:
        seen, weight = ask(query, keys, values, score)
        ctx.save_for_backward(query, keys, values, score, weight)
        ctx.later, ctx.open = later, open_
        return seen

    @staticmethod
    def backward(ctx: Any, of_seen: Tensor) -> Any:
        query, keys, values, score, weight = ctx.saved_tensors
        of_seen = of_seen.contiguous()
        of_query, of_score = _back(query, keys, values, score, weight, of_seen)
        ctx.later.append(Later(query, weight, of_score, of_seen))
        ctx.open[0] -= 1
        if ctx.open[0]:
            return of_query, None, None, None, None, None
        of_keys, of_values, of_weight = add_up(ctx.later, keys, values, score)
        ctx.later.clear()
        return of_query, of_keys, of_values, of_weight, None, None


def _back(
    query: Tensor, keys: Tensor, values: Tensor, score: Tensor, weight: Tensor, of_seen: Tensor
) -> tuple[Float[Tensor, "rows width"], Float[Tensor, "rows regions"]]:
    """Of the query, and of each region's score."""
    rows, regions, width = keys.shape
    of_query = torch.empty(rows, width, dtype=query.dtype, device=query.device)
    of_score = torch.empty_like(weight)
    _of_query[(rows,)](
        query, query.stride(0), keys, values, score, weight, of_seen, of_query, of_score, regions,
        WIDTH=width, DIM=values.shape[-1], REGIONS=triton.next_power_of_2(regions), CHUNK=CHUNK, num_warps=4,
    )  # fmt: skip
    return of_query, of_score


@triton.jit
def _of_query(
    query, stride, keys, values, score, weights, of_seen, of_query, of_score, regions,
    WIDTH: tl.constexpr, DIM: tl.constexpr, REGIONS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    region, part = tl.arange(0, REGIONS), tl.arange(0, CHUNK)
    there = region < regions
    at = row * regions + region
    of_weight = tl.zeros((REGIONS,), tl.float32)
    for start in range(0, DIM, CHUNK):
        inside = start + part < DIM
        both = there[:, None] & inside[None, :]
        z = tl.load(of_seen + row * DIM + start + part, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(values + at[:, None] * DIM + start + part[None, :], mask=both, other=0.0).to(tl.float32)
        of_weight += tl.sum(v * z[None, :], 1)
    weight = tl.load(weights + at, mask=there, other=0.0)
    slope = weight * (of_weight - tl.sum(weight * of_weight, 0))
    tl.store(of_score + at, slope, mask=there)
    for start in range(0, WIDTH, CHUNK):
        inside = start + part < WIDTH
        both = there[:, None] & inside[None, :]
        q = tl.load(query + row * stride + start + part, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(score + start + part, mask=inside, other=0.0).to(tl.float32)
        k = tl.load(keys + at[:, None] * WIDTH + start + part[None, :], mask=both, other=0.0).to(tl.float32)
        bent = _tanh(k + q[None, :])
        found = w * tl.sum(slope[:, None] * (1 - bent * bent), 0)
        tl.store(of_query + row * WIDTH + start + part, found.to(of_query.dtype.element_ty), mask=inside)


def add_up(
    later: list[Later], keys: Tensor, values: Tensor, score: Tensor
) -> tuple[
    Float[Tensor, "rows regions width"], Float[Tensor, "rows regions dim"], Float[Tensor, "one width"]
]:
    """What all words did to keys, values and w."""
    query, weight, of_score, of_seen = (torch.stack(parts, 1) for parts in zip(*later, strict=True))
    of_values = weight.transpose(1, 2).to(values.dtype) @ of_seen  # rows regions dim
    rows, regions, width = keys.shape
    of_keys = torch.empty_like(keys)
    of_weight = torch.empty(rows, width, device=keys.device)
    _of_keys[(rows, triton.cdiv(width, CHUNK))](
        query, keys, score, of_score, of_keys, of_weight, regions,
        TIME=query.shape[1], WIDTH=width, REGIONS=triton.next_power_of_2(regions), CHUNK=CHUNK, num_warps=4,
    )  # fmt: skip
    return of_keys, of_values, of_weight.sum(0, keepdim=True).to(score.dtype)


@triton.jit
def _of_keys(
    query, keys, score, of_score, of_keys, of_weight, regions,
    TIME: tl.constexpr, WIDTH: tl.constexpr, REGIONS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    region = tl.arange(0, REGIONS)
    there, inside = region < regions, part < WIDTH
    both = there[:, None] & inside[None, :]
    here = (row * regions + region)[:, None] * WIDTH + part[None, :]
    k = tl.load(keys + here, mask=both, other=0.0).to(tl.float32)
    w = tl.load(score + part, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros((REGIONS, CHUNK), tl.float32)
    straight = tl.zeros((CHUNK,), tl.float32)
    for time in range(TIME):
        at = row * TIME + time
        q = tl.load(query + at * WIDTH + part, mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(of_score + at * regions + region, mask=there, other=0.0)
        bent = _tanh(k + q[None, :])
        total += slope[:, None] * (1 - bent * bent)
        straight += tl.sum(slope[:, None] * bent, 0)
    tl.store(of_keys + here, (total * w[None, :]).to(of_keys.dtype.element_ty), mask=both)
    tl.store(of_weight + row * WIDTH + part, straight, mask=inside)


class FusedMaxoutCell(nn.Module):
    """`MaxoutCell`, in one kernel each way."""

    def forward(self, some: Tensor, others: Tensor, seen: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        hidden, after = _Maxout.apply(some, others, seen, cell)
        return hidden, after


class _Maxout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, some: Tensor, others: Tensor, seen: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        rows, dim = cell.shape
        hidden, after = torch.empty_like(cell), torch.empty_like(cell)
        kept = torch.empty(rows, 5 * dim, dtype=cell.dtype, device=cell.device)
        _maxout[(rows, triton.cdiv(dim, 256))](
            some, some.stride(0), others, others.stride(0), seen, cell, hidden, after, kept,
            DIM=dim, UNITS=256, num_warps=2,
        )  # fmt: skip
        ctx.save_for_backward(cell, after, kept)
        return hidden, after

    @staticmethod
    def backward(ctx: Any, of_hidden: Tensor, of_after: Tensor) -> Any:
        cell, after, kept = ctx.saved_tensors
        rows, dim = cell.shape
        gates = torch.empty_like(kept)
        of_cell = torch.empty_like(cell)
        _maxout_back[(rows, triton.cdiv(dim, 256))](
            of_hidden.contiguous(), of_after.contiguous(), cell, after, kept, gates, of_cell,
            DIM=dim, UNITS=256, num_warps=2,
        )  # fmt: skip
        return gates, gates, gates[:, 3 * dim :], of_cell


@triton.jit
def _maxout(
    some, some_stride, others, others_stride, seen, cell, hidden_out, cell_out, kept_out,
    DIM: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    known = unit < DIM
    a, b, s = (
        some + row * some_stride + unit,
        others + row * others_stride + unit,
        seen + row * (2 * DIM) + unit,
    )
    kind = kept_out.dtype.element_ty
    write = tl.sigmoid(_sum(a, b, 0 * DIM, known))
    keep = tl.sigmoid(_sum(a, b, 1 * DIM, known))
    show = tl.sigmoid(_sum(a, b, 2 * DIM, known))
    one = _sum(a, b, 3 * DIM, known) + tl.load(s, mask=known).to(tl.float32)
    two = _sum(a, b, 4 * DIM, known) + tl.load(s + DIM, mask=known).to(tl.float32)
    new = tl.maximum(one, two)
    after = keep * tl.load(cell + row * DIM + unit, mask=known).to(tl.float32) + write * new
    tl.store(cell_out + row * DIM + unit, after.to(kind), mask=known)
    tl.store(hidden_out + row * DIM + unit, (show * _tanh(after)).to(kind), mask=known)
    out = kept_out + row * (5 * DIM) + unit
    tl.store(out, write.to(kind), mask=known)
    tl.store(out + DIM, keep.to(kind), mask=known)
    tl.store(out + 2 * DIM, show.to(kind), mask=known)
    tl.store(out + 3 * DIM, new.to(kind), mask=known)
    tl.store(out + 4 * DIM, (one >= two).to(kind), mask=known)


@triton.jit
def _sum(a, b, offset, known):
    return tl.load(a + offset, mask=known).to(tl.float32) + tl.load(b + offset, mask=known).to(tl.float32)


@triton.jit
def _maxout_back(
    of_hidden, of_after, cell, after, kept, gates_out, of_cell, DIM: tl.constexpr, UNITS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    known = unit < DIM
    here, at = row * DIM + unit, row * (5 * DIM) + unit
    h = tl.load(of_hidden + here, mask=known).to(tl.float32)
    bent = _tanh(tl.load(after + here, mask=known).to(tl.float32))
    write = tl.load(kept + at, mask=known).to(tl.float32)
    keep = tl.load(kept + at + DIM, mask=known).to(tl.float32)
    show = tl.load(kept + at + 2 * DIM, mask=known).to(tl.float32)
    new = tl.load(kept + at + 3 * DIM, mask=known).to(tl.float32)
    first = tl.load(kept + at + 4 * DIM, mask=known).to(tl.float32)
    c = tl.load(of_after + here, mask=known).to(tl.float32) + h * show * (1 - bent * bent)
    before = tl.load(cell + here, mask=known).to(tl.float32)
    kind = gates_out.dtype.element_ty
    tl.store(gates_out + at, (c * new * write * (1 - write)).to(kind), mask=known)
    tl.store(gates_out + at + DIM, (c * before * keep * (1 - keep)).to(kind), mask=known)
    tl.store(gates_out + at + 2 * DIM, (h * bent * show * (1 - show)).to(kind), mask=known)
    tl.store(gates_out + at + 3 * DIM, (c * write * first).to(kind), mask=known)
    tl.store(gates_out + at + 4 * DIM, (c * write * (1 - first)).to(kind), mask=known)
    tl.store(of_cell + here, (c * keep).to(kind), mask=known)


class FusedDot(nn.Module):
    """`Dot`; a single word's question, with no gradient asked for, by a kernel that reads keys and values once."""

    def forward(self, query: Tensor, keys: Tensor, values: Tensor, *, causal: bool = False) -> Tensor:
        if query.shape[2] > 1 or causal or torch.is_grad_enabled():
            return nn.functional.scaled_dot_product_attention(query, keys, values, is_causal=causal)
        rows, heads, places, dim = keys.shape
        seen = torch.empty(rows, heads, 1, dim, dtype=query.dtype, device=query.device)
        _dot[(rows, heads)](
            query, query.stride(0), query.stride(1), keys, keys.stride(0), keys.stride(1), keys.stride(2),
            values, values.stride(0), values.stride(1), values.stride(2), seen, heads, dim**-0.5,
            PLACES=places, BLOCK=triton.next_power_of_2(places), DIM=dim, UNITS=triton.next_power_of_2(dim),
            num_warps=2,
        )  # fmt: skip
        return seen


@triton.jit
def _dot(
    query, query_row, query_head, keys, keys_row, keys_head, keys_place, values, values_row, values_head, values_place,
    seen, heads, scale, PLACES: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr,
    UNITS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place, unit = tl.arange(0, BLOCK), tl.arange(0, UNITS)
    there, known = place < PLACES, unit < DIM
    both = there[:, None] & known[None, :]
    q = (
        tl.load(query + row * query_row + head * query_head + unit, mask=known, other=0.0).to(tl.float32)
        * scale
    )
    k = tl.load(
        keys + row * keys_row + head * keys_head + place[:, None] * keys_place + unit[None, :],
        mask=both, other=0.0,
    ).to(tl.float32)  # fmt: skip
    scores = tl.where(there, tl.sum(k * q[None, :], 1), float("-inf"))
    mass = tl.exp(scores - tl.max(scores, 0))
    v = tl.load(
        values + row * values_row + head * values_head + place[:, None] * values_place + unit[None, :],
        mask=both, other=0.0,
    ).to(tl.float32)  # fmt: skip
    found = tl.sum(v * (mass / tl.sum(mass, 0))[:, None], 0)
    tl.store(seen + (row * heads + head) * DIM + unit, found.to(seen.dtype.element_ty), mask=known)
