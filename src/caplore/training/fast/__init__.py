"""The same training steps, fused and captured as one CUDA graph: what runs on a GPU unless something is in the way.

`caplore.training.step` is the readable reference, runs everywhere, and says what is computed; tests compare the two.

    steps.py       the steps
    capture.py     graphs, what they read, what runs beside what
    half.py        the bf16 copy that computes
    rollout.py     drawing captions          head.py       the output layer, drawing and loss
    recurrent.py   fc's LSTM                 attend.py     attention over regions
    scores.py      CIDEr-D, BLEU distance    adam.py       the optimiser
    decoding.py    beam search and sampling, captured
"""

import importlib.util
import subprocess
from typing import TYPE_CHECKING, Any

import torch

from caplore.models import Model
from caplore.models.attention import Additive
from caplore.models.protocol import Headed
from caplore.training.config import Marginal, Sequence, Xe
from caplore.training.distributed import World
from caplore.training.examples import Examples
from caplore.training.reward import CiderReward, Reward

if TYPE_CHECKING:
    from caplore.training.fast.steps import FastStep as FastStep
else:
    FastStep = Any  # the real one needs Triton

MOST_WORDS, MOST_REGIONS, LONGEST, ALIGNED = 32_768, 256, 64, 16  # as the kernels need it; tests compare


def fast_step(
    model: Model,
    optimizer: torch.optim.Adam,
    phase: Xe | Sequence,
    train: Examples,
    reward: Reward,
    *,
    images: int,
    vocab: int,
    max_words: int,
    clip: float,
    world: World,
) -> tuple[FastStep | None, str]:
    """The captured step of this phase, or None; and why, for the run's record."""
    why = obstacle(model, phase, train, reward, max_words=max_words)
    if why:
        return None, f"plain: {why}"
    from triton.errors import TritonError

    from caplore.training.fast import steps

    assert isinstance(reward, CiderReward)
    before = {weight: dict(state) for weight, state in optimizer.state.items()}
    try:
        step = steps.FastStep(
            model,
            optimizer,
            phase,
            train,
            reward,
            images=images,
            vocab=vocab,
            max_words=max_words,
            clip=clip,
            world=world,
        )
        return step, "captured"
    # No memory, a kernel that is too large for this GPU, no compiler: the plain step needs less of everything.
    except (RuntimeError, TritonError, OSError, subprocess.CalledProcessError) as error:
        optimizer.state.clear()
        optimizer.state.update(before)  # the fused optimiser has one count of steps for all weights
        why = next(iter(str(error).splitlines()), type(error).__name__)
        return None, f"plain: the step could not be captured ({why[:200]})"


def obstacle(
    model: Model, phase: Xe | Sequence, train: Examples, reward: Reward, *, max_words: int
) -> str | None:
    """What the captured step cannot do, of all that was asked for."""
    return _of_machine(train) or _of_model(model) or _of_phase(phase, reward, train, max_words)


def _of_machine(train: Examples) -> str | None:
    if train.references.device.type != "cuda":
        return "there is no GPU"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if torch.cuda.get_device_capability(train.references.device) < (8, 0):
        return "the GPU is older than bf16 (compute capability 8.0)"
    return None


def _of_model(model: Model) -> str | None:
    if not isinstance(model, Headed):
        return "the model does not show its output layer (models.protocol.Headed)"
    if model.out.out_features > MOST_WORDS:
        return f"the vocabulary has more than {MOST_WORDS:,} words"
    regions = model.config.get("regions")
    if regions and regions[0] > MOST_REGIONS and any(isinstance(part, Additive) for part in model.modules()):
        return f"attention is over more than {MOST_REGIONS} regions"
    width = model.out.in_features
    return None if width % ALIGNED == 0 else f"the decoder's width, {width}, is not a multiple of {ALIGNED}"


def _of_phase(phase: Xe | Sequence, reward: Reward, train: Examples, max_words: int) -> str | None:
    if not isinstance(reward, CiderReward):
        return f"the reward {type(reward).__name__} has no kernel"
    if reward.metric.df.pairs is not None:
        return "the references have too many words for packed n-grams"
    if max(max_words, train.references.shape[-1]) > LONGEST:
        return f"captions are longer than {LONGEST} words"
    objective = phase.objective if isinstance(phase, Sequence) else None
    if isinstance(objective, Marginal) and objective.of != "recall":
        return f"marginal {objective.of} needs eigenvalues, which wait for the host"
    return None
