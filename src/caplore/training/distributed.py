"""One process or many: who we are, sums over all of us, what the first of us knows. Alone, all of this is a no-op.

A process that has lost another one says so in one line and ends; torchrun starts all of them again where it was
told to (--max-restarts), and `loop.train` then goes on with the run it finds.
"""

import contextlib
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from caplore.errors import CaploreError, ConfigError, InputError
from caplore.files import digest_of

CPU = torch.device("cpu")
PATIENCE = timedelta(
    hours=1
)  # for a first process that scores with METEOR and SPICE while the others wait for it


@dataclass(frozen=True)
class World:
    """This process among its peers; `size` 1 means alone. Messages travel between tensors on `device`."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def check_divides(self, flag: str, batch: int) -> None:
        """Refuse a global batch of which not everyone can have the same share."""
        if batch % self.size:
            near = max(self.size, batch // self.size * self.size)
            raise ConfigError(
                f"{flag} is {batch}, but {self.size} processes cannot have equal shares of it",
                fix=f"--{flag} {near}, or another multiple of {self.size}",
            )

    def share(self, rows: Tensor) -> Tensor:
        """Our part of what is there for the global batch: neighbouring rows, the same number for everyone."""
        assert len(rows) % self.size == 0, "check_divides comes first"
        part = len(rows) // self.size
        return rows[self.rank * part : (self.rank + 1) * part]

    def sum_(self, value: Tensor) -> Tensor:
        """Sum over all processes, in place."""
        if self.size > 1:
            with _peers():
                dist.all_reduce(value)
        return value

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Add the gradients of all processes: one message, as losses are already divided by global counts."""
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.sum_(torch.cat([g.reshape(-1) for g in gradients]))
        parts = flat.split([g.numel() for g in gradients])
        torch._foreach_copy_(gradients, [p.view_as(g) for p, g in zip(parts, gradients, strict=True)])

    def most(self, value: float) -> float:
        """The largest value any process has. Waits for all of them: a barrier, too."""
        if self.size == 1:
            return value
        here = torch.tensor(value, dtype=torch.float64, device=self.device)
        with _peers():
            dist.all_reduce(here, dist.ReduceOp.MAX)
        return float(here)

    def barrier(self) -> None:
        self.most(0)

    def from_first(self, value: Any) -> Any:
        """What the first process has under `value`: anything JSON can say."""
        if self.size == 1:
            return value
        raw = json.dumps(value).encode() if self.is_first else b""
        said = torch.zeros(int(self.most(len(raw))), dtype=torch.uint8, device=self.device)
        if self.is_first:
            said.copy_(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
        with _peers():
            dist.broadcast(said, src=0)
        return json.loads(bytes(said.tolist()))

    def take_first_(self, tensors: Iterable[Tensor]) -> None:
        """Write the first process's numbers into everyone's tensors."""
        if self.size > 1:
            with _peers():
                for tensor in tensors:
                    dist.broadcast(tensor, src=0)

    def check_same(self, what: str, *parts: str) -> None:
        """Refuse to go on when a process reads something else than the first one does."""
        if self.size == 1:
            return
        here, first = digest_of(*parts), self.from_first(digest_of(*parts))
        if self.most(here != first):
            mine = f"process {self.rank} reads {'another' if here != first else 'the same'} one ({here})"
            raise InputError(
                f"the processes of this run do not read the same {what}: the first reads {first}, {mine}",
                fix="put data sets and run folders on a disk that all machines share, or copy them whole to each",
            )


ALONE = World()


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    """A message that did not get through is somebody else's end; they have said why."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(str(error).splitlines()[0]) from error


class PeerLost(CaploreError):
    """Another process of the run has ended."""

    def __init__(self, how: str) -> None:
        how = re.sub(r"^\[[^]]*\] ", "", how)[:120]  # without gloo's source file
        super().__init__(
            f"another process of this run has ended or cannot be reached ({how})",
            fix="see its message; the same torchrun command goes on from the last checkpoint",
        )


def join(device: torch.device) -> World:
    """The world torchrun made, if it did: NCCL on GPUs, gloo on CPU."""
    if processes() == 1:
        return World(device=device)
    if not dist.is_initialized():
        store, rank, size = next(dist.rendezvous("env://", timeout=PATIENCE))  # type: ignore[attr-defined]
        store.set_timeout(PATIENCE)
        bound: dict[str, Any] = {"device_id": device} if device.type == "cuda" else {}
        if bound:
            torch.cuda.set_device(device)
        dist.init_process_group(
            "nccl" if bound else "gloo",
            store=_unused(store, rank, size),
            rank=rank,
            world_size=size,
            timeout=PATIENCE,
            **bound,
        )
    return World(dist.get_rank(), dist.get_world_size(), device)


def _unused(store: dist.Store, rank: int, size: int) -> dist.Store:
    """A part of the launcher's store that nobody has written to: torchrun keeps one store over its restarts, where
    gloo finds the addresses of processes that are gone, and waits for them.

    Everyone leaves a number of its own. The first one calls the roll of all numbers, again and again, as some may be
    left from before; who hears its own answers with the roll; a roll that all have answered is new, and names the part.
    """
    own = uuid.uuid4().hex
    store.set(f"caplore/number/{rank}", own)
    roll = _call_roll(store, size) if rank == 0 else _answer_roll(store, rank, own)
    return dist.PrefixStore(hashlib.sha256(roll.encode()).hexdigest(), store)  # type: ignore[attr-defined]


def _call_roll(store: dist.Store, size: int) -> str:
    for _ in _moments():
        roll = ",".join(store.get(f"caplore/number/{r}").decode() for r in range(size))
        store.set("caplore/roll", roll)
        answers = [f"caplore/answer/{r}" for r in range(1, size)]
        if store.check(answers) and all(store.get(a).decode() == roll for a in answers):
            store.set(f"caplore/complete/{roll}", "")
            return roll
    raise PeerLost("not all of its processes came")


def _answer_roll(store: dist.Store, rank: int, own: str) -> str:
    for _ in _moments():
        roll = store.get("caplore/roll").decode()
        if own in roll.split(","):
            store.set(f"caplore/answer/{rank}", roll)
            if store.check([f"caplore/complete/{roll}"]):
                return roll
    raise PeerLost("its first process did not come")


def _moments() -> Iterator[None]:
    """To look again and again, as long as our patience lasts."""
    until = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < until:
        yield
        time.sleep(0.02)


def processes() -> int:
    """How many were started side by side for this run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def is_launched() -> bool:
    """Did something start us that starts the same command again after a failure: torchrun, or SLURM's requeue?

    torchrun's own restart counter does not tell: it stays 0 when machines come and go.
    """
    return "TORCHELASTIC_RUN_ID" in os.environ or int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0


def generator_of(device: torch.device) -> torch.Generator:
    """What torch draws from on this device where no generator is named, as in dropout."""
    return (
        torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index or 0]
    )


def speaks() -> bool:
    """Is it ours to print? Before and after there is a world, too."""
    return os.environ.get("RANK", "0") == "0"


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU of our local rank where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"device {name!r} is not one torch knows", fix="--device auto, cpu, cuda or cuda:N"
        ) from None
    if device.type != "cuda":
        return device
    there = torch.cuda.device_count()
    if there == 0:
        raise ConfigError(f"device {name} was asked for, but torch sees no GPU", fix="--device cpu")
    if device.index is None:  # a launcher may show every process one GPU, which is then the one to take
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) if there > 1 else 0)
    if device.index >= there:
        raise CaploreError(
            f"process {device.index} of this machine has no GPU: torch sees {there}",
            fix=f"torchrun --nproc-per-node {there}, or --device cpu",
        )
    return device
