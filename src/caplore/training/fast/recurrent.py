"""An LSTM over words, one kernel per step beside the product with the step before; forward and backward.

With the gates' order of torch (write i, keep f, new g, show o) and x_t what a word contributes,

    i, f, g, o = x_t + U h_{t-1};   c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g);   h_t = sigmoid(o) tanh(c_t)

U h_{t-1} is a product of its own: joined with the cell in one kernel it was slower at every size (docs/performance.md).
What does not depend on the step before (what words contribute, the gradients of the weights) is one large product over
all steps. Cells, sums and U h are float32, what is multiplied is bf16.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from caplore.training.fast.products import product

UNITS = 256  # of one program


class Steps(NamedTuple):
    """What the backward pass needs of a forward pass over time; time comes first."""

    start: Float[Tensor, "rows dim"]
    first_cell: Float[Tensor, "rows dim"]
    hidden: Float[Tensor, "time rows dim"]
    cell: Float[Tensor, "time rows dim"]
    gates: Float[Tensor, "time rows four*dim"]  # after their sigmoids and tanh

    @classmethod
    def room(cls, time: int, start: Float[Tensor, "rows dim"], cell: Float[Tensor, "rows dim"]) -> "Steps":
        """Room for so many steps from this state on."""
        rows, dim = start.shape
        hidden, gates = start.new_empty(time, rows, dim), start.new_empty(time, rows, 4 * dim)
        return cls(start, cell.float(), hidden, torch.empty(time, rows, dim, device=start.device), gates)

    def before(self, time: int) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "rows dim"]]:
        """Hidden state and cell that step `time` starts from."""
        return (self.hidden[time - 1], self.cell[time - 1]) if time else (self.start, self.first_cell)

    def of_first(self, rows: int) -> "Steps":
        """The first rows alone; a view."""
        return Steps(
            self.start[:rows],
            self.first_cell[:rows],
            self.hidden[:, :rows],
            self.cell[:, :rows],
            self.gates[:, :rows],
        )


def forward_step(
    steps: Steps,
    time: int,
    words: Float[Tensor, "any four*dim"],
    index: Int[Tensor, " rows"] | None,
    weight: Float[Tensor, "four*dim dim"],
) -> None:
    """Step `time`: row r reads words[index[r]], or words[r] without an index."""
    hidden, cell = steps.before(time)
    rows, dim = hidden.shape
    _forward[(rows, triton.cdiv(dim, UNITS))](
        words, words if index is None else index, product(hidden, weight), cell,
        steps.hidden[time], steps.cell[time], steps.gates[time],
        INDEXED=index is not None, DIM=dim, UNITS=UNITS, num_warps=2,
    )  # fmt: skip


@triton.jit
def _forward(
    words, index, carried, cell, hidden_out, cell_out, gates_out,
    INDEXED: tl.constexpr, DIM: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    known = unit < DIM
    if INDEXED:
        word = words + tl.load(index + row) * (4 * DIM) + unit
    else:
        word = words + row * (4 * DIM) + unit
    own, out = carried + row * (4 * DIM) + unit, gates_out + row * (4 * DIM) + unit
    write = tl.sigmoid(tl.load(word, mask=known) + tl.load(own, mask=known))
    keep = tl.sigmoid(tl.load(word + DIM, mask=known) + tl.load(own + DIM, mask=known))
    new = _tanh(tl.load(word + 2 * DIM, mask=known) + tl.load(own + 2 * DIM, mask=known))
    show = tl.sigmoid(tl.load(word + 3 * DIM, mask=known) + tl.load(own + 3 * DIM, mask=known))
    here = row * DIM + unit
    after = keep * tl.load(cell + here, mask=known) + write * new
    tl.store(cell_out + here, after, mask=known)
    tl.store(hidden_out + here, (show * _tanh(after)).to(hidden_out.dtype.element_ty), mask=known)
    kind = gates_out.dtype.element_ty
    tl.store(out, write.to(kind), mask=known)
    tl.store(out + DIM, keep.to(kind), mask=known)
    tl.store(out + 2 * DIM, new.to(kind), mask=known)
    tl.store(out + 3 * DIM, show.to(kind), mask=known)


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


class Slopes(NamedTuple):
    """Gradients with respect to what `Steps` were made of."""

    gates: Float[
        Tensor, "time rows four*dim"
    ]  # before their sigmoids and tanh: also the gradient of the words
    start: Float[Tensor, "rows dim"]
    first_cell: Float[Tensor, "rows dim"]

    def of_weight(self, steps: Steps) -> Float[Tensor, "four*dim dim"]:
        first = self.gates[0].T @ steps.start
        return torch.addmm(first, self.gates[1:].flatten(0, 1).T, steps.hidden[:-1].flatten(0, 1))


def backward_steps(
    steps: Steps, slope: Float[Tensor, "time rows dim"], weight: Float[Tensor, "four*dim dim"]
) -> Slopes:
    """All steps back, from the gradient of every hidden state; the rows of `slope` may lie apart in each step."""
    time, rows, dim = slope.shape
    gates = torch.empty(time, rows, 4 * dim, dtype=slope.dtype, device=slope.device)
    cell = torch.zeros(rows, dim, device=slope.device)
    carried = cell
    for t in reversed(range(time)):
        _backward[(rows, triton.cdiv(dim, UNITS))](
            slope[t], carried, steps.gates[t], steps.before(t)[1], steps.cell[t], cell, gates[t],
            CARRIED=t < time - 1, DIM=dim, UNITS=UNITS, num_warps=2,
        )  # fmt: skip
        carried = product(gates[t], weight.T)
    return Slopes(gates, carried, cell)


@triton.jit
def _backward(
    slope, carried, gates, cell_before, cell_after, cell_slope, gates_out,
    CARRIED: tl.constexpr, DIM: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    known = unit < DIM
    here = row * DIM + unit
    hidden = tl.load(slope + here, mask=known).to(tl.float32)
    if CARRIED:
        hidden += tl.load(carried + here, mask=known)
    gate, out = gates + row * (4 * DIM) + unit, gates_out + row * (4 * DIM) + unit
    write = tl.load(gate, mask=known).to(tl.float32)
    keep = tl.load(gate + DIM, mask=known).to(tl.float32)
    new = tl.load(gate + 2 * DIM, mask=known).to(tl.float32)
    show = tl.load(gate + 3 * DIM, mask=known).to(tl.float32)
    bent = _tanh(tl.load(cell_after + here, mask=known))
    cell = tl.load(cell_slope + here, mask=known) + hidden * show * (1 - bent * bent)
    before = tl.load(cell_before + here, mask=known)
    kind = gates_out.dtype.element_ty
    tl.store(out, (cell * new * write * (1 - write)).to(kind), mask=known)
    tl.store(out + DIM, (cell * before * keep * (1 - keep)).to(kind), mask=known)
    tl.store(out + 2 * DIM, (cell * write * (1 - new * new)).to(kind), mask=known)
    tl.store(out + 3 * DIM, (hidden * bent * show * (1 - show)).to(kind), mask=known)
    tl.store(cell_slope + here, cell * keep, mask=known)


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
        return steps.hidden

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        words, input_weight, weight, *saved = ctx.saved_tensors
        steps = Steps(*saved)
        found = backward_steps(steps, slope.contiguous(), weight)
        gates = found.gates.flatten(0, 1)
        to_bias = gates.sum(0, dtype=torch.float32).to(gates.dtype)
        return (
            (gates @ input_weight).view_as(words),
            found.start.to(words.dtype),
            found.first_cell.to(words.dtype),
            gates.T @ words.flatten(0, 1),
            found.of_weight(steps),
            to_bias,
            to_bias,
        )
