"""An LSTM one word at a time: product and cell in one kernel, forward and backward.

With the gates' order of torch (write i, keep f, new g, show o) and x_t what a word contributes,

    i, f, g, o = x_t + U h_{t-1};   c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g);   h_t = sigmoid(o) tanh(c_t)

A kernel holds the four gates of the same units, so that the cell follows from its own accumulators. Backward, the
same tile takes the gradient that comes from the step after, dgates_{t+1} U, and turns it into dgates_t. Everything that
does not depend on the step before (words, weights) is one large product over all steps. Cells and their gradients are
float32, all else is bf16.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from caplore.training.fast.head import step_of


class Steps(NamedTuple):
    """What the backward pass needs of a forward pass over time; time comes first."""

    hidden: Float[Tensor, "time+1 rows dim"]
    cell: Float[Tensor, "time+1 rows dim"]
    gates: Float[Tensor, "time rows four*dim"]  # after their sigmoids and tanh

    @classmethod
    def room(cls, time: int, start: Float[Tensor, "rows dim"], cell: Float[Tensor, "rows dim"]) -> "Steps":
        """Room for so many steps from this state on."""
        rows, dim = start.shape
        hidden = start.new_empty(time + 1, rows, dim)
        cells = torch.empty(time + 1, rows, dim, device=start.device)
        hidden[0], cells[0] = start, cell
        return cls(hidden, cells, start.new_empty(time, rows, 4 * dim))


def forward_step(
    steps: Steps,
    time: int,
    words: Float[Tensor, "any four*dim"],
    index: Int[Tensor, " rows"] | None,
    weight: Float[Tensor, "four*dim dim"],
) -> None:
    """Step `time`: row r reads words[index[r]], or words[r] without an index."""
    _, rows, dim = steps.hidden.shape
    block = _rows_of_a_block(rows)
    _forward[(triton.cdiv(dim, UNITS), triton.cdiv(rows, block))](
        words, words if index is None else index, weight, steps.hidden[time], steps.cell[time],
        steps.hidden[time + 1], steps.cell[time + 1], steps.gates[time], rows,
        INDEXED=index is not None, DIM=dim, ROWS=block, UNITS=UNITS, STEP=step_of(dim), num_warps=4, num_stages=4,
    )  # fmt: skip


UNITS = 16  # of one kernel; times four gates


def _rows_of_a_block(rows: int) -> int:
    return 64 if rows > 512 else 32 if rows > 128 else 16


@triton.jit
def _forward(
    words, index, weight, hidden, cell, hidden_out, cell_out, gates_out, rows,
    INDEXED: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inner = tl.arange(0, STEP)
    there, known = row[:, None] < rows, unit[None, :] < DIM
    own = there & known
    left = hidden + row[:, None] * DIM + inner[None, :]
    right = weight + unit[None, :] * DIM + inner[:, None]
    write = tl.zeros((ROWS, UNITS), tl.float32)
    keep = tl.zeros((ROWS, UNITS), tl.float32)
    new = tl.zeros((ROWS, UNITS), tl.float32)
    show = tl.zeros((ROWS, UNITS), tl.float32)
    for k in range(0, DIM, STEP):
        h = tl.load(left + k, mask=there, other=0.0)
        write = tl.dot(h, tl.load(right + k, mask=known, other=0.0), write)
        keep = tl.dot(h, tl.load(right + k + DIM * DIM, mask=known, other=0.0), keep)
        new = tl.dot(h, tl.load(right + k + 2 * DIM * DIM, mask=known, other=0.0), new)
        show = tl.dot(h, tl.load(right + k + 3 * DIM * DIM, mask=known, other=0.0), show)
    if INDEXED:
        at = tl.load(index + row, mask=row < rows, other=0)
    else:
        at = row.to(tl.int64)
    word = words + at[:, None] * (4 * DIM) + unit[None, :]
    write = tl.sigmoid(write + tl.load(word, mask=own, other=0.0))
    keep = tl.sigmoid(keep + tl.load(word + DIM, mask=own, other=0.0))
    new = _tanh(new + tl.load(word + 2 * DIM, mask=own, other=0.0))
    show = tl.sigmoid(show + tl.load(word + 3 * DIM, mask=own, other=0.0))
    here = row[:, None] * DIM + unit[None, :]
    after = keep * tl.load(cell + here, mask=own, other=0.0) + write * new
    tl.store(cell_out + here, after, mask=own)
    tl.store(hidden_out + here, (show * _tanh(after)).to(hidden_out.dtype.element_ty), mask=own)
    kind = gates_out.dtype.element_ty
    gate = gates_out + row[:, None] * (4 * DIM) + unit[None, :]
    tl.store(gate, write.to(kind), mask=own)
    tl.store(gate + DIM, keep.to(kind), mask=own)
    tl.store(gate + 2 * DIM, new.to(kind), mask=own)
    tl.store(gate + 3 * DIM, show.to(kind), mask=own)


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


class Slopes(NamedTuple):
    """Gradients with respect to what `Steps` were made of."""

    gates: Float[Tensor, "time rows four*dim"]  # before their sigmoids and tanh: also the gradient of the words
    start: Float[Tensor, "rows dim"]  # of the first hidden state
    cell: Float[Tensor, "rows dim"]  # of the first cell


def backward_steps(
    steps: Steps, slope: Float[Tensor, "time rows dim"], weight: Float[Tensor, "four*dim dim"]
) -> Slopes:
    """All steps back, from the gradient of every hidden state."""
    time, rows, dim = slope.shape
    gates = torch.empty_like(steps.gates)
    cell = torch.zeros(rows, dim, device=slope.device)
    block = _rows_of_a_block(rows)
    for t in reversed(range(time)):
        last = t == time - 1
        _backward[(triton.cdiv(dim, BACK_UNITS), triton.cdiv(rows, block))](
            slope[t], gates[t if last else t + 1], weight, steps.gates[t], steps.cell[t], steps.cell[t + 1], cell,
            gates[t], rows,
            LAST=last, DIM=dim, ROWS=block, UNITS=BACK_UNITS, STEP=step_of(dim), num_warps=4, num_stages=4,
        )  # fmt: skip
    return Slopes(gates, gates[0] @ weight, cell)


BACK_UNITS = 32


@triton.jit
def _backward(
    slope, gates_after, weight, gates, cell_before, cell_after, cell_slope, gates_out, rows,
    LAST: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    there, known = row[:, None] < rows, unit[None, :] < DIM
    own = there & known
    here = row[:, None] * DIM + unit[None, :]
    hidden = tl.load(slope + here, mask=own, other=0.0).to(tl.float32)
    if not LAST:
        inner = tl.arange(0, STEP)
        left = gates_after + row[:, None] * (4 * DIM) + inner[None, :]
        right = weight + inner[:, None] * DIM + unit[None, :]
        for k in range(0, 4 * DIM, STEP):
            a = tl.load(left + k, mask=there, other=0.0)
            hidden = tl.dot(a, tl.load(right + k * DIM, mask=known, other=0.0), hidden)
    gate = gates + row[:, None] * (4 * DIM) + unit[None, :]
    write = tl.load(gate, mask=own, other=0.0).to(tl.float32)
    keep = tl.load(gate + DIM, mask=own, other=0.0).to(tl.float32)
    new = tl.load(gate + 2 * DIM, mask=own, other=0.0).to(tl.float32)
    show = tl.load(gate + 3 * DIM, mask=own, other=0.0).to(tl.float32)
    bent = _tanh(tl.load(cell_after + here, mask=own, other=0.0))
    cell = tl.load(cell_slope + here, mask=own, other=0.0) + hidden * show * (1 - bent * bent)
    kind = gates_out.dtype.element_ty
    out = gates_out + row[:, None] * (4 * DIM) + unit[None, :]
    before = tl.load(cell_before + here, mask=own, other=0.0)
    tl.store(out, (cell * new * write * (1 - write)).to(kind), mask=own)
    tl.store(out + DIM, (cell * before * keep * (1 - keep)).to(kind), mask=own)
    tl.store(out + 2 * DIM, (cell * write * (1 - new * new)).to(kind), mask=own)
    tl.store(out + 3 * DIM, (hidden * bent * show * (1 - show)).to(kind), mask=own)
    tl.store(cell_slope + here, cell * keep, mask=own)


class Recurrence(torch.autograd.Function):
    """Outputs of an LSTM over given inputs, differentiable: [time, rows, dim] from [time, rows, embed]."""

    @staticmethod
    def forward(
        ctx: Any,
        words: Float[Tensor, "time rows embed"],
        start: Float[Tensor, "rows dim"],
        cell: Float[Tensor, "rows dim"],
        input_weight: Float[Tensor, "four*dim embed"],
        weight: Float[Tensor, "four*dim dim"],
        input_bias: Float[Tensor, " four*dim"],
        bias: Float[Tensor, " four*dim"],
    ) -> Float[Tensor, "time rows dim"]:
        time = len(words)
        read = torch.addmm(input_bias + bias, words.flatten(0, 1), input_weight.T).view(time, len(start), -1)
        steps = Steps.room(time, start, cell)
        for t in range(time):
            forward_step(steps, t, read[t], None, weight)
        ctx.save_for_backward(words, input_weight, weight, *steps)
        return steps.hidden[1:]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:  # type: ignore[override]
        words, input_weight, weight, *steps = ctx.saved_tensors
        found = backward_steps(Steps(*steps), slope.contiguous(), weight)
        gates = found.gates.flatten(0, 1)
        to_bias = gates.sum(0, dtype=torch.float32).to(gates.dtype)
        return (
            (gates @ input_weight).view_as(words),
            found.start,
            found.cell.to(found.start.dtype),
            gates.T @ words.flatten(0, 1),
            gates.T @ steps[0][:-1].flatten(0, 1),
            to_bias,
            to_bias,
        )
