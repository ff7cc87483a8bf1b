"""One process or many: who we are, and sums over all of us. Without torchrun all of this is a no-op."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from caplore.errors import ConfigError


@dataclass(frozen=True)
class World:
    """This process among its peers; `size` 1 means alone."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, index: Tensor) -> Tensor:
        """Our part of a global batch: neighbouring rows, the same number for everyone."""
        if len(index) % self.size:
            raise ConfigError(
                f"a batch of {len(index)} inputs cannot be shared by {self.size} processes",
                fix=f"make the batch a multiple of {self.size}",
            )
        part = len(index) // self.size
        return index[self.rank * part : (self.rank + 1) * part]

    def sum_(self, value: Tensor) -> Tensor:
        """Sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Add the gradients of all processes: one message, as losses are already divided by global counts."""
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in gradients])
        dist.all_reduce(flat)
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


def join(device: torch.device) -> World:
    """The world torchrun made, if it did: NCCL on GPUs, gloo on CPU."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return World()
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return World(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU of our local rank where there is one, else the CPU."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if name == "auto":
        name = f"cuda:{local}" if torch.cuda.is_available() else "cpu"
    elif name == "cuda":
        name = f"cuda:{local}"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"device {name!r} is not one torch knows", fix="--device auto, cpu, cuda or cuda:N"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {name} was asked for, but torch sees no GPU", fix="--device cpu")
    return device
