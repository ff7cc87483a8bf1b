"""Checkpoints: everything a run needs to go on as if nothing had happened, in one safetensors file.

Weights and optimiser state are tensors; where the loop stands is JSON in the file's own header. Chance
needs no keeping: it is a function of the seed and the step (`schedule.seed_of`). One file, written to a
temporary name and renamed, is whole or absent: there is no moment at which weights and loop state can
disagree. Nothing is pickled.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from caplore.errors import InputError
from caplore.files import replacing

FORMAT = "caplore-checkpoint-1"


@dataclass(frozen=True)
class Checkpoint:
    """What was saved: named tensors (model.*, optimizer.*) and the loop's state."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]

    def group(self, prefix: str) -> dict[str, Tensor]:
        return {
            k.removeprefix(prefix + "."): v for k, v in self.tensors.items() if k.startswith(prefix + ".")
        }


def save(path: Path, checkpoint: Checkpoint) -> None:
    # Copies: safetensors refuses tensors that share memory, and fused optimisers keep theirs in one block.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in checkpoint.tensors.items()}
    header = {"format": FORMAT, "state": json.dumps(checkpoint.state)}
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=header)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; one that is not there, not ours or damaged is an error that says so."""
    if not Path(path).is_file():
        raise InputError(f"no checkpoint at {path}", fix="train the run first, or check the path")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise InputError(f"{path} is a safetensors file, but not a {FORMAT}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return Checkpoint(tensors, json.loads(header["state"]))
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise InputError(
            f"checkpoint {path} cannot be read ({error})",
            fix="resume from the other checkpoint of the run folder, or train again",
        ) from None


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {f"model.{name}": value for name, value in model.state_dict().items()}


def load_model(model: nn.Module, checkpoint: Checkpoint, path: Path) -> None:
    try:
        model.load_state_dict(checkpoint.group("model"))
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise InputError(f"checkpoint {path} does not fit this model: {first}") from None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's tensors by parameter number and name; Adam has step, exp_avg and exp_avg_sq."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{i}.{name}": torch.as_tensor(v) for i, slot in state.items() for name, v in slot.items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, checkpoint: Checkpoint) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in checkpoint.group("optimizer").items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = value
    whole = optimizer.state_dict()
    optimizer.load_state_dict({"state": state, "param_groups": whole["param_groups"]})
