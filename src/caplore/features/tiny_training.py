"""How weights for `tiny` are made and measured.

    python -m caplore.features.tiny_training --check     how much can be read off the weights that are there
    python -m caplore.features.tiny_training             make new ones; about 20 minutes on one core

Draws scenes of its own (seeds that no data set uses), and learns to say from one frame what is in them:
place, arrangement, what moves, and of each of the two groups kind, colour, size, texture and count. One
linear layer reads every answer from the pooled vector, so whatever is learned can be read off linearly,
which is what a captioner's first layer does. Then batch normalisation is folded in and the weights are
rounded to int8.

The check is a linear probe: ridge regression from the pooled vector to each answer, fitted on 6,000 new
scenes and scored on 2,000 more. It needs nothing of the training but the weights.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
import tyro
from jaxtyping import Float, Int, UInt8
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, relu

from caplore.data.scenes import draw, world
from caplore.features.decoding import fit
from caplore.features.encoder import Encoder
from caplore.features.store import quantised
from caplore.features.tiny import LAYERS, PREPROCESSING, QUERIES, VALUES, WEIGHTS, Tiny, unpacked
from caplore.files import replacing

SEED = 770_000_000  # of the first scene; data sets use small seeds
CHECKED, FITTED, RIDGE = 8000, 6000, 30.0  # scenes of the check, those it is fitted on, and its regulariser
FIRST_CHECKED = 100_000_000  # the number of its first scene: far from those that are trained on
UNKNOWN = -100  # a question that this scene does not answer
GROUP = {
    "kind": world.KINDS,
    "colour": world.COLOURS,
    "size": world.SIZES,
    "texture": world.TEXTURES,
    "count": world.COUNTS,
}
QUESTIONS: dict[str, tuple[object, ...]] = {
    "place": world.PLACES,
    "arrangement": (None, *world.ARRANGEMENTS),
    "motion": (None, *world.MOTIONS),
    "moved": (0, 1),
    **{f"{group}.{name}": values for group in (0, 1) for name, values in GROUP.items()},
}


@dataclass(frozen=True)
class Options:
    """Train the encoder `tiny` again, or measure the one that is there."""

    check: bool = False
    """Train nothing: measure the weights at --to."""
    scenes: int = 40_000
    """Scenes to learn from; every fourth is a frame of a clip."""
    epochs: int = 24
    """Times each scene is seen."""
    batch: int = 128
    """Scenes per step."""
    rate: float = 4e-3
    """The highest learning rate; it rises to it and falls to zero."""
    to: Path = WEIGHTS
    """Where the weights go."""


def drawn(number: int) -> tuple[UInt8[np.ndarray, "height width 3"], list[int]]:
    """A scene as tiny sees it, and the answers to QUESTIONS about it."""
    rng = Random(SEED + number)
    scene = world.random_scene(rng, moving=number % 4 == 3)
    if scene.motion is None:
        image = draw.picture(scene, rng)
    else:
        frames = list(draw.frames(scene, rng))
        # Half of a blinking thing's frames show nothing of it: one of the first two does.
        image = frames[rng.randrange(2 if scene.motion.kind == "blink" else len(frames))]
        image = image.quantize(128).convert("RGB")  # as a GIF has it
    return np.asarray(fit(image, PREPROCESSING)), [_answer(scene, question) for question in QUESTIONS]


def _answer(scene: world.Scene, question: str) -> int:
    values, motion = QUESTIONS[question], scene.motion
    if "." in question:
        group, name = question.split(".")
        return (
            values.index(getattr(scene.groups[int(group)], name))
            if int(group) < len(scene.groups)
            else UNKNOWN
        )
    if question == "moved":
        return UNKNOWN if motion is None or len(scene.groups) < 2 else motion.group
    return values.index(motion and motion.kind if question == "motion" else getattr(scene, question))


class Learner(nn.Module):
    """Tiny with batch normalisation after each convolution, and a linear layer per question."""

    def __init__(self) -> None:
        super().__init__()
        self.tiny = Tiny()
        self.norms = nn.ModuleList(nn.BatchNorm2d(outer) for _, outer, _, _ in LAYERS)
        self.readers = nn.ModuleList(
            nn.Linear(QUERIES * VALUES, len(values)) for values in QUESTIONS.values()
        )

    def forward(
        self, pixels: Float[Tensor, "frames 3 height width"]
    ) -> list[Float[Tensor, "frames answers"]]:
        cells = pixels
        for convolution, norm in zip(self.tiny.convolutions, self.norms, strict=True):
            cells = relu(norm(convolution(cells)))
        pooled = self.tiny.summary(cells)
        return [reader(pooled) for reader in self.readers]

    @torch.no_grad()
    def fold(self) -> Tiny:
        """norm(w x + b) = g w x + (g (b - mean) + beta), with g = gamma / sqrt(var + eps)."""
        for convolution, norm in zip(self.tiny.convolutions, self.norms, strict=True):
            assert isinstance(convolution, nn.Conv2d)
            assert isinstance(norm, nn.BatchNorm2d)
            assert convolution.bias is not None
            assert norm.running_mean is not None
            assert norm.running_var is not None
            gain = norm.weight / (norm.running_var + norm.eps).sqrt()
            convolution.weight.mul_(gain.view(-1, 1, 1, 1))
            convolution.bias.sub_(norm.running_mean).mul_(gain).add_(norm.bias)
        return self.tiny


def train(
    pixels: UInt8[Tensor, "scenes height width 3"], answers: Int[Tensor, "scenes questions"], options: Options
) -> Learner:
    learner = Learner().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.AdamW(learner.parameters(), weight_decay=1e-3)
    steps = options.epochs * (len(pixels) // options.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.rate, total_steps=steps)
    for epoch in range(options.epochs):
        total = 0.0
        for rows in torch.randperm(len(pixels)).split(options.batch)[: len(pixels) // options.batch]:
            loss = torch.stack(
                [
                    cross_entropy(said, answers[rows, question], ignore_index=UNKNOWN)
                    for question, said in enumerate(learner(_scaled(pixels[rows])))
                ]
            ).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch + 1}: loss {total / len(pixels):.2f}", flush=True)
    return learner.eval()


def _scaled(pixels: UInt8[Tensor, "scenes height width 3"]) -> Float[Tensor, "scenes 3 height width"]:
    mean, std = PREPROCESSING.mean[0], PREPROCESSING.std[0]
    return (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std


def packed(tiny: Tiny) -> dict[str, Tensor]:
    """Weights as int8 with a scale per row; biases and places as they are."""
    stored: dict[str, Tensor] = {}
    for name, value in tiny.state_dict().items():
        stored |= quantised(value, name) if name.endswith("weight") else {name: value}
    return {name: value.contiguous() for name, value in stored.items()}


def scenes(first: int, count: int) -> tuple[UInt8[Tensor, "scenes h w 3"], Int[Tensor, "scenes questions"]]:
    """Drawn by all cores."""
    with ProcessPoolExecutor() as pool:
        made = list(pool.map(drawn, range(first, first + count), chunksize=100))
    return torch.from_numpy(np.stack([image for image, _ in made])), torch.tensor([said for _, said in made])


def readable(
    pooled: Float[Tensor, "scenes pooled"], answers: Int[Tensor, "scenes questions"], fitted: int
) -> dict[str, float]:
    """How often a linear probe, fitted on the first scenes, answers each question about the others rightly."""
    x = (pooled - pooled[:fitted].mean(0)) / (pooled[:fitted].std(0) + 1e-3)
    x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    right = {}
    for number, (question, values) in enumerate(QUESTIONS.items()):
        known = answers[:, number] != UNKNOWN
        seen, new = known.clone(), known.clone()
        seen[fitted:], new[:fitted] = False, False
        targets = one_hot(answers[seen, number], len(values)).float()
        gram = x[seen].T @ x[seen] + RIDGE * torch.eye(x.shape[1])
        said = (x[new] @ torch.linalg.solve(gram, x[seen].T @ targets)).argmax(1)
        right[question] = (said == answers[new, number]).float().mean().item()
    return right


def check(path: Path) -> None:
    """Print the probe's answers for the weights at `path`."""
    network = Tiny()
    network.load_state_dict(unpacked(load_file(path)))
    encoder = Encoder("tiny", "tiny", network.eval(), PREPROCESSING, "")
    pixels, answers = scenes(FIRST_CHECKED, CHECKED)
    pooled = torch.cat([encoder(some)["pooled"] for some in pixels.split(256)])
    for question, share in readable(pooled, answers, FITTED).items():
        print(f"{question:<12} {share:.3f}")


def main() -> None:
    options = tyro.cli(Options, description=Options.__doc__)
    if not options.check:
        torch.manual_seed(0)
        learner = train(*scenes(0, options.scenes), options)
        with replacing(options.to) as temporary:
            save_file(packed(learner.fold()), temporary)
    check(options.to)


if __name__ == "__main__":
    main()
