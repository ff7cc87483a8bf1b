"""Training steps on a CPU: ours against the same step written in the standard way, on the made world.

The standard way is a loop over words with an LSTMCell, sampling with the gradient on, a second loop for the greedy
caption, captions as strings to the scorers of pycocoevalcap (which pip installs), and their losses as the field writes
them. Both get the same weights and the same random numbers, so that they draw the same captions; `max |diff|` is
|ours - theirs| / |theirs| of the whole gradient. Rows of growth have 16 times the time of the small size as their
`reference`: a ratio of 1 is linear growth, more is better.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from bench import Row, attempted, in_turns
from bench.bench_metrics import END, slow_cider, slow_distance, slow_frequencies
from caplore import models
from caplore.data.dataset import open_dataset
from caplore.data.scenes.make import Plan, make_scenes
from caplore.features.choice import encoder_named
from caplore.features.encoding import encode
from caplore.features.store import open_store
from caplore.models import Model
from caplore.models.entry import fit_entries
from caplore.models.protocol import BOS, Features, pooled_vector, shift_right
from caplore.objectives.policy import own_tokens
from caplore.text.vocabulary import Vocabulary
from caplore.training import examples
from caplore.training.config import Precision, Sequence, Sll, SllSle
from caplore.training.distributed import ALONE
from caplore.training.examples import Examples
from caplore.training.recipes import RECIPES
from caplore.training.reward import CiderReward
from caplore.training.step import Update, sequence_step, xe_step

IMAGES, SAMPLES, TIMES = 64, 5, 16
RECIPE = RECIPES["scenes-sle"][1]


def rows() -> Iterator[Row]:
    yield from attempted("scenes, steps", step_rows())
    yield from growth_rows()
    yield from precision_rows()


def step_rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        data = scenes(Path(folder) / "scenes")
    yield from xe_rows(data)
    yield from sequence_rows("SLL step", Sequence(objective=Sll(samples=SAMPLES)), data)
    yield from sequence_rows("SLL-SLE step", Sequence(objective=SllSle(samples=SAMPLES)), data)


@dataclass(frozen=True)
class Data:
    """A made world, and a captioner that has seen it a few times: it draws captions, not noise."""

    train: Examples
    reward: CiderReward
    vocabulary: Vocabulary
    model: Model


def scenes(folder: Path) -> Data:
    make_scenes(folder, Plan(train=1000, val=10, test=10))
    dataset = open_dataset(folder)
    encode(dataset, encoder_named("tiny"), name="tiny")
    tokens = examples.tokenised(dataset, "train")
    words = Vocabulary.from_captions((c for some in tokens for c in some), min_count=1)
    train = examples.load_examples(
        dataset, "train", tokens, words, store=open_store(dataset.store_path("tiny")),
        max_words=RECIPE.max_words, device=torch.device("cpu"),
    )  # fmt: skip
    torch.manual_seed(0)
    assert isinstance(train.features, Features)
    assert train.features.pooled is not None
    sizes = {**RECIPE.model.sizes, "dropout": 0.0}
    model = models.build(
        "fc", vocab=len(words), pooled_dim=train.features.pooled.shape[1], regions=None, **sizes
    )
    fit_entries(model, [train.features])
    update = Update(model, torch.optim.Adam(model.parameters(), lr=4e-3), 5.0, ALONE)
    for epoch in range(4):
        for index in torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch)).split(IMAGES):
            xe_step(
                model, train.features_of(index), train.references[index], label_smoothing=0.0, update=update
            )
    return Data(train, CiderReward(train, vocab=len(words)), words, model)


# The standard way.


class Standard:
    """The same model word by word, its captions as strings to scorers in Python."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.model = model = data.model
        self.cell = nn.LSTMCell(model.lstm.input_size, model.lstm.hidden_size)
        parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for part, weight in zip(parts, model.lstm.all_weights[0], strict=True):
            setattr(self.cell, part, weight)
        references = data.train.references.tolist()
        self.references = [[self.text(r) for r in some] for some in references]
        self.frequencies = slow_frequencies(self.references)

    def text(self, ids: list[int]) -> list[str]:
        """Words before the end."""
        words = data_words(self.data.vocabulary)
        return [words[i] for i in (ids[: ids.index(0)] if 0 in ids else ids)]

    def begin(self, features: Features) -> tuple[Tensor, Tensor]:
        start = self.model.image(self.model.entry(pooled_vector(features)))
        return start, start

    def say(self, tokens: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden, cell = self.cell(self.model.embedding(tokens), state)
        return self.model.out(hidden).log_softmax(-1), (hidden, cell)

    def draw(
        self, features: Features, samples: int, uniforms: Callable[[int], Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Captions and the log-probabilities of their words; without `uniforms` the most probable words."""
        state = tuple(part.repeat_interleave(samples, 0) for part in self.begin(features))
        rows, time = len(state[0]), RECIPE.max_words
        tokens, logprobs = torch.zeros(rows, time, dtype=torch.long), []
        word, ended = torch.full((rows,), BOS), torch.zeros(rows, dtype=torch.bool)
        for t in range(time):
            logprob, state = self.say(word, state)  # type: ignore[arg-type]
            if uniforms is None:
                word = logprob.argmax(-1)
            else:
                mass = logprob.detach().exp().cumsum(-1)
                target = uniforms(rows)[:, None] * mass[:, -1:]
                word = torch.searchsorted(mass, target, right=True).squeeze(1)
            word = word.masked_fill(ended, 0)
            tokens[:, t] = word
            logprobs.append(logprob.gather(1, word[:, None]).squeeze(1).masked_fill(ended, 0))
            ended = ended | (word == 0)
            if bool(ended.all()):
                break
        return tokens, torch.stack(logprobs, 1)

    def scores(self, tokens: Tensor, index: Tensor) -> Tensor:
        """CIDEr-D of [images, captions], the end a word of each caption that has one."""
        said = [[self.text(caption) for caption in some] for some in tokens.tolist()]
        wanted = [self.references[i] for i in index.tolist()]
        found = slow_cider(said, wanted, self.frequencies, len(self.references))
        return torch.from_numpy(found).float()

    def sequence_step(
        self,
        features: Features,
        index: Tensor,
        phase: Sequence,
        update: Update,
        uniforms: Callable[[int], Tensor],
    ) -> None:
        objective = phase.objective
        with torch.no_grad():
            greedy, _ = self.draw(features, 1, None)
        tokens, logprob = self.draw(features, SAMPLES, uniforms)
        sets = tokens.view(len(index), SAMPLES, -1)
        reward = self.scores(torch.cat([sets, greedy[:, None]], 1), index)
        advantage = reward[:, :-1] - reward[:, -1:]
        if isinstance(objective, SllSle):
            distance = slow_distance([[self.text(c) for c in some] for some in sets.tolist()]).float()
            diversity = 2 * (distance.mean(2) - distance.mean((1, 2))[:, None])
            advantage = objective.alpha * advantage + (1 - objective.alpha) * diversity
        mask = own_tokens(tokens)[:, : logprob.shape[1]]
        update(-(advantage.flatten()[:, None] * logprob * mask).sum() / mask.sum())

    def xe_step(self, features: Features, tokens: Tensor, update: Update) -> None:
        flat = tokens.flatten(0, 1)
        state = tuple(part.repeat_interleave(tokens.shape[1], 0) for part in self.begin(features))
        mask = own_tokens(flat)
        logprobs = []
        for word in shift_right(flat).unbind(1):
            logprob, state = self.say(word, state)  # type: ignore[arg-type]
            logprobs.append(logprob)
        chosen = torch.stack(logprobs, 1).gather(2, flat[..., None]).squeeze(2)
        update(-(chosen * mask).sum() / mask.sum())


def data_words(vocabulary: Vocabulary) -> list[str]:
    """A string for each id; the end is said by the scorers' own word for it."""
    return [END, *(vocabulary.decode([i])[0] if i >= 3 else f"<{i}>" for i in range(1, len(vocabulary)))]


# Rows.


def still(model: Model) -> Update:
    """An update that leaves the weights where they are, at the price of one that does not."""
    return Update(model, torch.optim.Adam(model.parameters(), lr=0.0, fused=True), 5.0, ALONE)


def gradient(model: Model) -> Tensor:
    return torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])


def compared(
    what: str, ours: Callable[[], object], theirs: Callable[[], object], model: Model
) -> Iterator[Row]:
    """By one thread and by all: scorers in Python have one, and products of matrices have what there is."""
    ours()
    slope = gradient(model)
    theirs()
    apart = float((slope - gradient(model)).norm() / gradient(model).norm())
    before = torch.get_num_threads()
    for threads in sorted({1, before}):
        torch.set_num_threads(threads)
        took = in_turns([ours, theirs], 8)
        mine, other = in_turns([ours, theirs], 3, time.process_time)
        note = f"processor: {mine * 1e3:.0f} and {other * 1e3:.0f} ms, {other / mine:.1f}"
        yield Row(f"scenes, {what}, {threads} thread(s)", *took, difference=apart, note=note)
    torch.set_num_threads(before)


def xe_rows(data: Data) -> Iterator[Row]:
    standard, update, index = Standard(data), still(data.model), torch.arange(IMAGES)
    features, tokens = data.train.features_of(index), data.train.references[index]
    return compared(
        f"XE step, {IMAGES} x {tokens.shape[1]} captions",
        partial(xe_step, data.model, features, tokens, label_smoothing=0.0, update=update),
        partial(standard.xe_step, features, tokens, update),
        data.model,
    )


def sequence_rows(what: str, phase: Sequence, data: Data) -> Iterator[Row]:
    standard, update, index = Standard(data), still(data.model), torch.arange(IMAGES)
    features = data.train.features_of(index)

    def chance() -> Callable[[int], Tensor]:
        rng = torch.Generator().manual_seed(7)
        return lambda rows: torch.rand(rows, generator=rng)

    def ours() -> None:
        sequence_step(
            data.model, features, index, data.reward, phase,
            max_words=RECIPE.max_words, update=update, uniforms=chance(),
        )  # fmt: skip

    def theirs() -> None:
        standard.sequence_step(features, index, phase, update, chance())

    return compared(f"{what}, {IMAGES} x {SAMPLES} samples", ours, theirs, data.model)


# Growth.


def growth_rows() -> Iterator[Row]:
    """SLL-SLE steps of a small size, and of 16 times as many images, samples, or words in the vocabulary."""
    small = {"images": 8, "samples": 4, "words of vocabulary": 1_000}
    sizes = [small, *(small | {what: TIMES * count} for what, count in small.items())]
    base, *larger = in_turns([made_step(**_sizes(size))[0] for size in sizes], 5)
    for what, took in zip(small, larger, strict=True):
        yield Row(
            f"SLL-SLE step, {small[what]:,} -> {TIMES * small[what]:,} {what}", took, TIMES * base,
            note=f"{took / base:.1f} times the time of the small one, {base * 1e3:.1f} ms",
        )  # fmt: skip


def _sizes(named: dict[str, int]) -> dict[str, int]:
    return {key.split()[0]: value for key, value in named.items()}


def precision_rows() -> Iterator[Row]:
    """The paper's width and Flickr8k's vocabulary: products in bfloat16, with those in float32 as the reference."""
    kinds: tuple[Precision, ...] = ("bfloat16", "float32")
    for what, xe in (("XE", True), ("SLL-SLE", False)):
        steps = [
            made_step(images=64, samples=5, words=2_500, width=512, precision=kind, xe=xe) for kind in kinds
        ]
        took = in_turns([step for step, _ in steps], 4)
        slopes = []
        for step, model in steps:
            step()
            slopes.append(gradient(model))
        apart = float((slopes[0] - slopes[1]).norm() / slopes[1].norm()) if xe else None
        note = "" if xe else "other words are drawn, so gradients are not compared"
        yield Row(f"{what} step, LSTM-512, 2,500 words: bfloat16", *took, difference=apart, note=note)


def made_step(
    *,
    images: int,
    samples: int,
    words: int,
    width: int = 128,
    precision: Precision = "float32",
    xe: bool = False,
) -> tuple[Callable[[], None], Model]:
    """A step of a random model on random references: what it costs does not depend on what is said."""
    rng = torch.Generator().manual_seed(0)
    inputs, dim, time = 256, 128, 16
    references = torch.randint(3, words, (inputs, 5, time), generator=rng)
    there = torch.ones(inputs, 5, dtype=torch.bool)
    features = Features(torch.rand(inputs, dim, generator=rng), None)
    train = Examples(tuple(map(str, range(inputs))), features, references, there)
    reward = CiderReward(train, vocab=words)
    torch.manual_seed(0)
    sizes = {"hidden": width, "embed": width, "dropout": 0.0}
    model = models.build("fc", vocab=words, pooled_dim=dim, regions=None, **sizes)
    update, index = still(model), torch.arange(images)
    phase = Sequence(objective=SllSle(samples=samples))

    def step() -> None:
        shown = train.features_of(index)
        if xe:
            said = references[index]
            xe_step(model, shown, said, label_smoothing=0.0, update=update, precision=precision)
            return
        chance = torch.Generator().manual_seed(1)
        sequence_step(
            model, shown, index, reward, phase, max_words=time, update=update, precision=precision,
            uniforms=lambda rows: torch.rand(rows, generator=chance),
        )  # fmt: skip

    return step, model
