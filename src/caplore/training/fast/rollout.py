"""Drawing captions with the fused output layer: samples and greedy rows in one batch.

Rows are the samples of all images, those of an image side by side, then the greedy caption of every image.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from caplore.models.fc import Fc
from caplore.models.protocol import BOS, EOS, Features, State, repeat_state
from caplore.training.fast.half import HalfCopy
from caplore.training.fast.head import Said, draw
from caplore.training.fast.recurrent import Steps, forward_step


class Rollout(NamedTuple):
    """Captions, and the recurrent steps that led to them where the model is fc."""

    said: Said
    images: int
    samples: int
    steps: Steps | None

    @property
    def drawn(self) -> int:
        """How many rows are samples."""
        return self.images * self.samples

    @property
    def captions(self) -> Int[Tensor, "images captions time"]:
        """The samples of each image, then its greedy caption if there is one."""
        samples, greedy = self.said.tokens.split([self.drawn, len(self.said.tokens) - self.drawn])
        parts = [samples.view(self.images, self.samples, -1)]
        return torch.cat(parts + ([greedy[:, None]] if len(greedy) else []), dim=1)


def roll(
    half: HalfCopy,
    features: Features,
    *,
    samples: int,
    max_words: int,
    seed: Int[Tensor, ""],
    with_greedy: bool = True,
) -> Rollout:
    """Draw `samples` captions per image from the model's own distribution, and its greedy caption."""
    with torch.no_grad():
        state = half.model.begin(features)
        images = len(state[0])
        rows = repeat_state(state, samples)
        if with_greedy:
            rows = tuple(torch.cat(parts) for parts in zip(rows, state, strict=True))
        device = rows[0].device
        said = Said(
            torch.full((len(rows[0]), max_words), EOS, device=device),
            torch.zeros(len(rows[0]), max_words, device=device),
            torch.zeros(max_words, len(rows[0]), device=device),
            torch.full((len(rows[0]),), BOS, device=device),
            torch.zeros(len(rows[0]), dtype=torch.int8, device=device),
        )
        uniform = torch.empty(max_words, 2, len(rows[0]), device=device)
        _uniform[(triton.cdiv(uniform.numel(), 1024),)](uniform, seed, uniform.numel(), BLOCK=1024)
        if isinstance(half.model, Fc):
            steps = _roll_lstm(half, rows, said, uniform, images * samples)
        else:
            steps = None
            _roll(half, rows, said, uniform, images * samples)
    return Rollout(said, images, samples, steps)


def _roll(
    half: HalfCopy, state: State, said: Said, uniform: Float[Tensor, "time two rows"], drawn: int
) -> None:
    for time, numbers in enumerate(uniform):
        hidden, state = half.model.advance(said.last, state)
        draw(hidden, half.output, numbers, said, time, drawn=drawn)


def _roll_lstm(
    half: HalfCopy, state: State, said: Said, uniform: Float[Tensor, "time two rows"], drawn: int
) -> Steps:
    """What each word of the vocabulary adds to the gates is computed once, then looked up at every step."""
    assert isinstance(half.model, Fc)
    input_weight, weight, input_bias, bias = half.model.lstm.all_weights[0]
    words = torch.addmm(input_bias + bias, half.lookup.inside.weight, input_weight.T)
    steps = Steps.room(len(uniform), *state)
    for time, numbers in enumerate(uniform):
        forward_step(steps, time, words, said.last, weight)
        draw(steps.hidden[time], half.output, numbers, said, time, drawn=drawn)
    return steps


@triton.jit
def _uniform(out, seed, many, BLOCK: tl.constexpr):
    """Numbers from [0, 1) that are a function of the seed and of their place."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.rand(tl.load(seed), place), mask=place < many)
