"""The two steps of `caplore.training.step`, fused and captured. What they compute is written there; this is how.

Each is one function without arguments that reads `Feed` and the examples, and leaves new weights and sums behind.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.decoding.captions import Captions
from caplore.models import Model
from caplore.models.fc import Fc
from caplore.models.protocol import Features, pooled_vector, shift_right
from caplore.objectives.policy import denominator, own_tokens
from caplore.training.config import Sequence, SllMe, Xe
from caplore.training.distributed import World
from caplore.training.examples import Examples, as_said, choose_references
from caplore.training.fast.adam import FusedAdam
from caplore.training.fast.capture import Beside, Feed, captured
from caplore.training.fast.half import HalfCopy, add_rows
from caplore.training.fast.head import Packed, Pushed, pack, push
from caplore.training.fast.recurrent import Steps, backward_steps
from caplore.training.fast.rollout import Rollout, roll
from caplore.training.fast.scores import CiderTables, bleu_distance, cider_d
from caplore.training.reward import CiderReward
from caplore.training.step import Stats, _seen, advantages

SEEN = ("loss", "gradient")
SEEN_OF_SAMPLES = ("reward", "baseline", "advantage", "entropy", "length", "distance", "ended")
REFERENCES_MIXED = 5  # references of each image shown per step where cross-entropy is mixed in


class FastStep:
    """One phase's step: calling it does one, `sums` has what was seen since `restart`."""

    def __init__(
        self,
        model: Model,
        optimizer: torch.optim.Adam,
        phase: Xe | Sequence,
        train: Examples,
        reward: CiderReward,
        *,
        images: int,
        vocab: int,
        max_words: int,
        clip: float,
        world: World,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        device = train.references.device
        self.phase, self.train, self.reward = phase, train, reward
        self.vocab, self.max_words, self.world = vocab, max_words, world
        self.tables = CiderTables.of(reward.metric, train.references, reward.references)
        self.half = HalfCopy(model, dtype)
        self.adam = FusedAdam(optimizer, self.half.weights, self.half.copies, clip=clip, world=world)
        self.shows_references = isinstance(phase, Xe) or phase.xe_weight > 0
        self.feed = Feed(images, train.there.shape[1] if self.shows_references else 0, device)
        self.beside = Beside(device)
        names = SEEN if isinstance(phase, Xe) else SEEN + SEEN_OF_SAMPLES
        self._sums = torch.zeros(len(names), dtype=torch.float64, device=device)
        self.sums = dict(zip(names, self._sums.unbind(), strict=True))
        self._run: Callable[[], None] = self._body
        if device.type == "cuda":
            any_noise = torch.rand(images, train.there.shape[1]) if self.shows_references else None
            self.feed.send(torch.arange(images) % len(train), 0.0, 0, any_noise)
            self._run = captured(self._body, [*self.adam.state, self._sums], device)
            self.adam.point(self._slopes)

    def __call__(
        self,
        index: Int[Tensor, " images"],
        rate: float,
        *,
        seed: int,
        noise: Float[Tensor, "images refs"] | None = None,
    ) -> None:
        """`seed` decides what is drawn, `noise` which references are shown (see `choose_references`)."""
        self.feed.send(index, rate, seed, noise if self.shows_references else None)
        self._run()

    def restart(self, sums: Mapping[str, float]) -> None:
        """Open a log window, with the sums of one that was interrupted."""
        self._sums.copy_(torch.tensor([sums.get(name, 0.0) for name in self.sums], dtype=torch.float64))

    def _body(self) -> None:
        for half in self.half.copies:
            half.grad = None
        self.half.lookup.slope.zero_()
        self.adam.rate.copy_(self.feed.rate)
        index = self.feed.index
        features = Features(*(None if f is None else f.index_select(0, index) for f in self.train.features))
        if isinstance(self.phase, Xe):
            stats = self._cross_entropy(self.phase, features, index)
        else:
            stats = self._sequence(self.phase, features, index)
        self._slopes = self.half.slopes
        if not (self._slopes[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            self.adam.point(self._slopes)
        stats["gradient"] = self.adam(self._slopes)
        self._sums += torch.stack([stats[name] for name in self.sums])

    def _cross_entropy(
        self, phase: Xe, features: Features, index: Int[Tensor, " images"]
    ) -> Stats:
        self.half.model.train()
        tokens = self._references(index, phase.captions)
        own = own_tokens(tokens)
        count = self.world.sum_(own.sum().float())
        hidden = self.half.model.hidden(features, tokens)
        smoothing = phase.label_smoothing
        packed = pack(hidden.detach().flatten(0, 1), self.half.output, own.flatten())
        weight = (1 / count).expand(own.numel())
        pushed = push(packed, self.half.output, tokens.flatten(), weight.contiguous(), smoothing=smoothing)
        self._back(packed, pushed, hidden)
        nats = (1 - smoothing) * pushed.logprob.sum() + smoothing * pushed.mean_logprob.sum()
        return {"loss": -nats / count * self.world.size}

    def _references(self, index: Int[Tensor, " images"], count: int) -> Int[Tensor, "rows time"]:
        references, there = self.train.references[index], self.train.there[index]
        some = choose_references(references, there, count, noise=self.feed.noise)
        return as_said(some, self.vocab).flatten(0, 1)

    def _sequence(
        self, phase: Sequence, features: Features, index: Int[Tensor, " images"]
    ) -> Stats:
        objective = phase.objective
        self.half.model.eval()
        rollout = roll(self.half, features, samples=objective.samples, max_words=self.max_words, seed=self.feed.seed)
        captions = rollout.captions
        samples = captions[:, :-1]
        own = own_tokens(samples)
        count = self.world.sum_(denominator(own, phase.reduction))
        words = count if phase.reduction == "tokens" else self.world.sum_(own.sum().float())
        logprob = rollout.said.token_logprob[: rollout.drawn].view_as(samples)
        with self.beside():  # while the hidden states meet the output layer
            score = cider_d(captions, index, self.tables)
            distance = bleu_distance(samples)
            drawn = Captions(samples, logprob)
            advantage = advantages(objective, drawn, score[:, :-1], score[:, -1], distance, self.reward, index)
            pushes = ((1 - phase.xe_weight) * advantage / count).repeat_interleave(self.max_words).contiguous()
        own_rows, tokens = own.flatten(), samples.flatten()
        reused = rollout.steps is not None and not phase.dropout and not self.shows_references
        if reused:
            hidden = _hidden_of(rollout)
        else:
            self.half.model.train(phase.dropout)
            hidden = self.half.model.hidden(features, samples.flatten(0, 1)).flatten(0, 1)
        if self.shows_references:
            self.half.model.train()
            said = self._references(index, REFERENCES_MIXED)
            own_said = own_tokens(said)
            count_said = self.world.sum_(own_said.sum().float())
            hidden = torch.cat([hidden, self.half.model.hidden(features, said).flatten(0, 1)])
            own_rows, tokens = torch.cat([own_rows, own_said.flatten()]), torch.cat([tokens, said.flatten()])
        packed = pack(hidden.detach(), self.half.output, own_rows)
        self.beside.join()
        if self.shows_references:
            pushes = torch.cat([pushes, (phase.xe_weight / count_said).expand(said.numel())])
        entropy = None
        if isinstance(objective, SllMe):  # of the samples' words, not of the references'
            weight = (1 - phase.xe_weight) * objective.entropy_weight / count
            entropy = torch.zeros_like(pushes)
            entropy[: samples.numel()] = weight
        pushed = push(packed, self.half.output, tokens, pushes, entropy_weight=entropy)
        with self.beside():
            stats = _seen(drawn, own, score[:, :-1], score[:, -1], advantage, distance, words / self.world.size)
            stats["loss"] = -(pushes * pushed.logprob).sum() * self.world.size
            if entropy is not None:
                stats["loss"] -= (entropy * pushed.entropy).sum() * self.world.size
        if reused:
            self._back_through_steps(packed, pushed, rollout, features)
        else:
            self._back(packed, pushed, hidden)
        return stats

    def _back(self, packed: Packed, pushed: Pushed, hidden: Float[Tensor, "... dim"]) -> None:
        """Gradients of everything, the output layer's beside those that go back in time."""
        out = self.half.model.out
        with self.beside():
            out.weight.grad, out.bias.grad = pushed.of_output(packed, self.half.output)
        hidden.backward(pushed.of_hidden(packed, self.half.output).view_as(hidden))
        self.beside.join()

    def _back_through_steps(self, packed: Packed, pushed: Pushed, rollout: Rollout, features: Features) -> None:
        """The same for fc, through the steps that drew the captions: nothing is computed forward again."""
        half, model = self.half, self.half.model
        assert isinstance(model, Fc) and rollout.steps is not None
        input_weight, weight, input_bias, bias = model.lstm.all_weights[0]
        with self.beside():
            model.out.weight.grad, model.out.bias.grad = pushed.of_output(packed, half.output)
        steps, drawn = rollout.steps, rollout.drawn
        walked = Steps(steps.hidden[:, :drawn], steps.cell[:, :drawn], steps.gates[:, :drawn])
        slope = pushed.of_hidden(packed, half.output).view(drawn, self.max_words, -1).transpose(0, 1)
        found = backward_steps(walked, slope.contiguous(), weight)
        gates = found.gates.flatten(0, 1)
        read = shift_right(rollout.said.tokens[:drawn]).T.reshape(-1)
        with self.beside():
            words = half.lookup.inside.weight[read]
            input_weight.grad, weight.grad = gates.T @ words, gates.T @ walked.hidden[:-1].flatten(0, 1)
            input_bias.grad = bias.grad = gates.sum(0, dtype=torch.float32).to(gates.dtype)
        add_rows(half.lookup.slope, read, gates @ input_weight)
        begun = (found.start.float() + found.cell).view(rollout.images, rollout.samples, -1).sum(1)
        start = begun.to(gates.dtype)
        seen_image = model.entry(pooled_vector(features))
        model.image.weight.grad, model.image.bias.grad = start.T @ seen_image, start.sum(0)
        self.beside.join()


def _hidden_of(rollout: Rollout) -> Float[Tensor, "rows dim"]:
    """The states that drew the samples' tokens, caption by caption."""
    assert rollout.steps is not None
    return rollout.steps.hidden[1:, : rollout.drawn].transpose(0, 1).flatten(0, 1)
