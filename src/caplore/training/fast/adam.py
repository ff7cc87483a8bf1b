"""Adam for all parameters in two kernels: the norm of the gradient, then clip, moments, weights and their bf16 copies.

A parameter is cut into blocks; a table holds, for every block, where its gradient, weights, moments and copy lie.
Addresses in a captured graph do not change, so the table is written once. The moments are those of the
`torch.optim.Adam` it is made for: a checkpoint of one can be resumed with the other.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from caplore.training.distributed import World

BLOCK = 4096
COLUMNS = 7  # addresses of gradient, weights, two moments, copy; how many there are; whether the gradient is float32


class FusedAdam:
    """`torch.optim.Adam.step` after `clip_grad_norm_`, from gradients in bf16 or float32.

    `weights` are what the optimiser holds, in float32, and `copies` theirs to compute with. With several processes
    the gradients are summed in float32, in one message.
    """

    def __init__(
        self,
        optimizer: torch.optim.Adam,
        weights: Sequence[Tensor],
        copies: Sequence[Tensor],
        *,
        clip: float,
        world: World,
    ) -> None:
        (group,) = optimizer.param_groups
        if group["amsgrad"] or group["weight_decay"] or group["maximize"]:
            raise ValueError("the fused optimiser is plain Adam: no amsgrad, weight decay or maximising")
        self.optimizer, self.weights, self.copies = optimizer, weights, copies
        self.clip, self.world = clip if clip > 0 else float("inf"), world
        (self.beta1, self.beta2), self.eps = group["betas"], group["eps"]
        device = weights[0].device
        self.rate = torch.tensor(group["lr"], device=device)
        self.steps = torch.zeros((), device=device)
        for weight in weights:
            state = optimizer.state[weight]
            if state:
                self.steps.copy_(state["step"])
            else:
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
            state["step"] = self.steps  # all parameters have made the same steps: one tensor for all
        blocks = sum(triton.cdiv(w.numel(), BLOCK) for w in weights)
        self._table = torch.zeros(blocks, COLUMNS, dtype=torch.int64, device=device)
        self._squares = torch.zeros(blocks, device=device)
        self._flat, self._views = _room_for_all(weights if world.size > 1 else [], device)

    @property
    def state(self) -> list[Tensor]:
        """Everything a step changes."""
        moments = [self.optimizer.state[w][name] for w in self.weights for name in ("exp_avg", "exp_avg_sq")]
        return [*self.weights, *self.copies, *moments, self.steps]

    def point(self, slopes: Sequence[Tensor]) -> None:
        """Write the table for gradients that lie there from now on."""
        rows = []
        for weight, copy, slope in zip(self.weights, self.copies, self._views or slopes, strict=True):
            state = self.optimizer.state[weight]
            tensors = (slope, weight, state["exp_avg"], state["exp_avg_sq"], copy)
            assert all(
                t.is_contiguous() and t.data_ptr() % 16 == 0 and t.numel() == weight.numel() for t in tensors
            )
            for start in range(0, weight.numel(), BLOCK):
                at = [t.data_ptr() + start * t.element_size() for t in tensors]
                rows.append([*at, min(BLOCK, weight.numel() - start), slope.dtype == torch.float32])
        self._table.copy_(torch.tensor(rows))

    def __call__(self, slopes: Sequence[Tensor]) -> Float[Tensor, ""]:
        """One step; returns the norm of the gradient before clipping."""
        if self._views:
            torch._foreach_copy_(self._views, list(slopes))
            self.world.sum_(self._flat)
        blocks = (len(self._table),)
        _square[blocks](self._table, self._squares, COLUMNS=COLUMNS, BLOCK=BLOCK, num_warps=8)
        norm = self._squares.sum().sqrt()
        self.steps.add_(1)
        _update[blocks](
            self._table, norm, self.steps, self.rate, self.clip,
            1 - self.beta1, math.log(self.beta1), 1 - self.beta2, math.log(self.beta2), self.eps,
            COPY=tl.bfloat16 if self.copies[0].dtype == torch.bfloat16 else tl.float32,
            COLUMNS=COLUMNS, BLOCK=BLOCK, num_warps=8,
        )  # fmt: skip
        return norm


def _room_for_all(weights: Sequence[Tensor], device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """One tensor, and a view of it for each weight; each begins at a multiple of 64 bytes."""
    ends = [0]
    for weight in weights:
        ends.append(ends[-1] + -(-weight.numel() // 16) * 16)
    flat = torch.zeros(ends[-1], device=device)
    starts = zip(weights, ends[:-1], strict=True)
    return flat, [flat[start : start + weight.numel()].view_as(weight) for weight, start in starts]


@triton.jit
def _slope(row, place, there):
    """A block of a gradient, in either precision."""
    address = tl.load(row)
    if tl.load(row + 6) != 0:
        slope = tl.load(tl.multiple_of(address.to(tl.pointer_type(tl.float32)), 16) + place, mask=there)
    else:
        half = tl.load(tl.multiple_of(address.to(tl.pointer_type(tl.bfloat16)), 16) + place, mask=there)
        slope = half.to(tl.float32)
    return slope


@triton.jit
def _square(table, squares, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = table + tl.program_id(0) * COLUMNS
    place = tl.arange(0, BLOCK)
    left = tl.load(row + 5)
    if left == BLOCK:
        slope = _slope(row, place, None)
    else:
        slope = tl.where(place < left, _slope(row, place, place < left), 0.0)
    tl.store(squares + tl.program_id(0), tl.sum(slope * slope, 0))


@triton.jit
def _update(
    table, norm, steps, rate, clip, new1, log_beta1, new2, log_beta2, eps,
    COPY: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = table + tl.program_id(0) * COLUMNS
    place = tl.arange(0, BLOCK)
    left = tl.load(row + 5)
    step = tl.load(steps)
    pace = tl.load(rate) / _one_less_exp(step * log_beta1)
    root = 1 / tl.sqrt(_one_less_exp(step * log_beta2))
    shrink = tl.minimum(clip / (tl.load(norm) + 1e-6), 1.0)
    if left == BLOCK:  # without a mask, loads and stores are as wide as they can be
        _move(row, place, None, pace, root, shrink, new1, new2, eps, COPY=COPY)
    else:
        _move(row, place, place < left, pace, root, shrink, new1, new2, eps, COPY=COPY)


@triton.jit
def _one_less_exp(x):
    """1 - exp(x), without losing the digits of a small x."""
    return tl.where(x > -0.05, -x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4))), 1 - tl.exp(x))


@triton.jit
def _move(row, place, there, pace, root, shrink, new1, new2, eps, COPY: tl.constexpr):
    slope = _slope(row, place, there) * shrink
    weights = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), 16) + place
    firsts = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), 16) + place
    seconds = tl.multiple_of(tl.load(row + 3).to(tl.pointer_type(tl.float32)), 16) + place
    copies = tl.multiple_of(tl.load(row + 4).to(tl.pointer_type(COPY)), 16) + place
    first = tl.load(firsts, mask=there)
    first += new1 * (slope - first)
    second = tl.load(seconds, mask=there)
    second += new2 * (slope * slope - second)
    weight = tl.load(weights, mask=there) - pace * first / (tl.sqrt(second) * root + eps)
    tl.store(firsts, first, mask=there)
    tl.store(seconds, second, mask=there)
    tl.store(weights, weight, mask=there)
    tl.store(copies, weight.to(COPY), mask=there)
