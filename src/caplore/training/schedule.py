"""How the learning rate goes over a phase, in which order the inputs come, and what chance a step has."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from caplore.files import digest_of


def rate(schedule: Literal["constant", "linear", "cosine"], start: float, step: int, steps: int) -> float:
    """Learning rate of this step (0-based) of so many: constant, linearly to zero, or half a cosine to zero."""
    done = step / max(steps, 1)
    match schedule:
        case "constant":
            return start
        case "linear":
            return start * (1 - done)
        case "cosine":
            return start * 0.5 * (1 + math.cos(math.pi * done))


def seed_of(*parts: int | str) -> int:
    """A seed for exactly this: (seed of the run, what for, step, ...), unlike any other's.

    Chance is a function of the place in the run and not of what came before, so that a resumed run needs no
    memory of it, and the processes of a distributed run no messages about it.
    """
    return int(digest_of(*map(str, parts)), 16) >> 1  # 63 bits


def steps_per_epoch(inputs: int, batch: int) -> int:
    return math.ceil(inputs / batch)


def batches(
    inputs: int, batch: int, *, seed: int, epoch: int, start: int = 0
) -> Iterator[Int[Tensor, " batch"]]:
    """Indices of the batches of one epoch from batch `start` on: a permutation, wrapped so that all are full.

    It depends on (seed, epoch) alone, so a resumed run goes on with the batch it was at, and every
    process of a distributed run sees the same order.
    """
    rng = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(inputs, generator=rng)
    count = steps_per_epoch(inputs, batch)
    wrapped = order.repeat(math.ceil(count * batch / inputs))[: count * batch].view(count, batch)
    yield from wrapped[start:]
