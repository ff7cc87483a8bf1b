"""The two steps of `caplore.training.step`, fused and captured. What they compute is written there; this is how.

Each is one function without arguments that reads `Feed` and the examples, and leaves new weights and sums behind.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float, Int
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
from caplore.training.fast.decoding import Decoder
from caplore.training.fast.half import HalfCopy, add_rows
from caplore.training.fast.head import Packed, Slope, pack, push, push_drawn
from caplore.training.fast.recurrent import backward_steps
from caplore.training.fast.rollout import Rollout, roll
from caplore.training.fast.scores import CiderTables, bleu_distance, cider_d
from caplore.training.reward import CiderReward
from caplore.training.step import Stats, _seen, advantages
from caplore.training.streaming import Look, Streamed

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
        self.given = train.features.room(images) if isinstance(train.features, Streamed) else None
        self.vocab, self.max_words, self.world = vocab, max_words, world
        self.tables = CiderTables.of(reward.metric, train.references, reward.references)
        self.half = HalfCopy(model, dtype)
        self.decoder = Decoder(self.half)
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
        look: Look | None = None,
    ) -> None:
        """`seed` decides what is drawn, `noise` which references are shown (see `choose_references`).

        Features that are not resident come by `look`. The step reads a copy of them: it is made after the step
        before, on the same stream, while the next batches arrive elsewhere (`streaming.Slot`).
        """
        self.feed.send(index, rate, seed, noise if self.shows_references else None)
        if self.given is not None:
            assert look is not None
            for mine, come in zip(self.given, look(), strict=True):
                if mine is not None and come is not None:
                    mine.copy_(come)
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
        features = self.train.features_of(index) if self.given is None else self.given
        if isinstance(self.phase, Xe):
            stats = self._cross_entropy(self.phase, features, index)
        else:
            stats = self._sequence(self.phase, features, index)
        self._slopes = self.half.slopes
        if not (self._slopes[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            self.adam.point(self._slopes)
        stats["gradient"] = self.adam(self._slopes)
        self._sums += torch.stack([stats[name] for name in self.sums])

    def _cross_entropy(self, phase: Xe, features: Features, index: Int[Tensor, " images"]) -> Stats:
        self.half.model.train()
        tokens = self._references(index, phase.captions)
        own = own_tokens(tokens).flatten()
        count = self.world.sum_(own.sum().float())
        hidden = self.half.model.hidden(features, tokens).flatten(0, 1)
        weight = (1 / count).expand(len(own)).contiguous()
        packed = pack(hidden.detach(), own, len(own))
        smoothing = phase.label_smoothing
        slope, seen = push(packed, self.half.output, tokens.flatten(), weight, smoothing=smoothing)
        self._back(packed, slope, hidden)
        nats = (1 - smoothing) * seen.logprob.sum() + smoothing * seen.mean_logprob.sum()
        return {"loss": -nats / count * self.world.size}

    def _references(self, index: Int[Tensor, " images"], count: int) -> Int[Tensor, "rows time"]:
        references, there = self.train.references[index], self.train.there[index]
        some = choose_references(references, there, count, noise=self.feed.noise)
        return as_said(some, self.vocab).flatten(0, 1)

    def _sequence(self, phase: Sequence, features: Features, index: Int[Tensor, " images"]) -> Stats:
        objective = phase.objective
        self.half.model.eval()
        rollout = roll(
            self.half, features, samples=objective.samples, max_words=self.max_words, seed=self.feed.seed
        )
        captions = rollout.captions
        samples = captions[:, :-1]
        own = own_tokens(samples)
        count = self.world.sum_(denominator(own, phase.reduction))
        words = count if phase.reduction == "tokens" else self.world.sum_(own.sum().float())
        drawn = Captions(samples, rollout.said.token_logprob[: rollout.drawn].view_as(samples))
        with self.beside():  # while the hidden states meet the output layer
            score = cider_d(captions, index, self.tables)
            distance = bleu_distance(samples)
            advantage = advantages(
                objective, drawn, score[:, :-1], score[:, -1], distance, self.reward, index
            )
            push_of = ((1 - phase.xe_weight) * advantage / count).flatten()  # of every sample
        if rollout.steps is not None and not phase.dropout and not self.shows_references:
            loss = self._push_steps(rollout, features, own.flatten(0, 1), push_of, objective, count)
        else:
            loss = self._push_again(phase, features, index, samples.flatten(0, 1), push_of, count)
        with self.beside():
            stats = _seen(
                drawn, own, score[:, :-1], score[:, -1], advantage, distance, words / self.world.size
            )
        self.beside.join()
        return stats | {"loss": loss * self.world.size}

    def _push_again(
        self,
        phase: Sequence,
        features: Features,
        index: Int[Tensor, " images"],
        samples: Int[Tensor, "rows time"],
        push_of: Float[Tensor, " rows"],
        count: Float[Tensor, ""],
    ) -> Float[Tensor, ""]:
        """Run the model over the samples, all words at once, and over references where they are mixed in."""
        self.half.model.train(phase.dropout)
        hidden = self.half.model.hidden(features, samples).flatten(0, 1)
        own, tokens, weight = own_tokens(samples).flatten(), samples.flatten(), []
        if self.shows_references:
            self.half.model.train()
            said = self._references(index, REFERENCES_MIXED)
            own_said = own_tokens(said).flatten()
            hidden = torch.cat([hidden, self.half.model.hidden(features, said).flatten(0, 1)])
            own, tokens = torch.cat([own, own_said]), torch.cat([tokens, said.flatten()])
            weight = [(phase.xe_weight / self.world.sum_(own_said.sum().float())).expand(said.numel())]
        packed = pack(hidden.detach(), own, len(own))
        self.beside.join()
        pushes = torch.cat([push_of.repeat_interleave(samples.shape[1]), *weight])
        entropy = None
        if isinstance(phase.objective, SllMe):  # of the samples' words, not of the references'
            entropy = torch.zeros_like(pushes)
            entropy[: samples.numel()] = (1 - phase.xe_weight) * phase.objective.entropy_weight / count
        slope, seen = push(packed, self.half.output, tokens, pushes, entropy_weight=entropy)
        self._back(packed, slope, hidden)
        return _loss(pushes, seen.logprob, entropy, seen.entropy)

    def _push_steps(
        self,
        rollout: Rollout,
        features: Features,
        own: Bool[Tensor, "rows time"],
        push_of: Float[Tensor, " rows"],
        objective: object,
        count: Float[Tensor, ""],
    ) -> Float[Tensor, ""]:
        """The same for fc, whose states while it drew are those of a run over the samples. Rows are time first."""
        said, steps, output = rollout.said, rollout.steps, self.half.output
        assert steps is not None
        rows, time, drawn = *said.tokens.shape, rollout.drawn
        own_rows = torch.zeros(time, rows, dtype=torch.bool, device=own.device)
        own_rows[:, :drawn] = own.T
        tokens = said.tokens.T.contiguous().flatten()
        packed = pack(steps.hidden.flatten(0, 1), own_rows.flatten(), time * drawn)
        self.beside.join()
        pushes = torch.zeros(time, rows, device=own.device)
        pushes[:, :drawn] = push_of
        pushes = pushes.flatten()
        entropy = None
        if isinstance(objective, SllMe):
            entropy = (objective.entropy_weight / count).expand(len(pushes)).contiguous()
            slope, seen = push(packed, output, tokens, pushes, entropy_weight=entropy)
            loss = _loss(pushes, seen.logprob, entropy, seen.entropy)
        else:
            slope = push_drawn(packed, output, tokens, pushes, said.log_total.flatten())
            loss = _loss(push_of, said.token_logprob[:drawn].sum(1))
        self._back_through_steps(packed, slope, rollout, features)
        return loss

    def _back(self, packed: Packed, slope: Slope, hidden: Float[Tensor, "rows dim"]) -> None:
        """Gradients of everything, the output layer's beside those that go back in time."""
        out = self.half.model.out
        with self.beside():
            out.weight.grad, out.bias.grad = slope.of_output(packed, self.half.output)
        hidden.backward(slope.of_hidden(packed, self.half.output))
        self.beside.join()

    def _back_through_steps(self, packed: Packed, slope: Slope, rollout: Rollout, features: Features) -> None:
        """The same for fc, through the steps that drew the captions: nothing is computed forward again."""
        half, model, drawn = self.half, self.half.model, rollout.drawn
        assert isinstance(model, Fc)
        assert rollout.steps is not None
        input_weight, weight, input_bias, bias = model.lstm.all_weights[0]
        with self.beside():
            model.out.weight.grad, model.out.bias.grad = slope.of_output(packed, half.output)
        steps = rollout.steps.of_first(drawn)
        of_hidden = slope.of_hidden(packed, half.output).view_as(rollout.steps.hidden)[:, :drawn]
        found = backward_steps(steps, of_hidden, weight)
        gates = found.gates.flatten(0, 1)
        read = shift_right(rollout.said.tokens[:drawn]).T.contiguous().flatten()
        with self.beside():
            words = half.lookup.inside.weight[read]
            input_weight.grad, weight.grad = gates.T @ words, found.of_weight(steps)
            input_bias.grad = bias.grad = gates.sum(0, dtype=torch.float32).to(gates.dtype)
        add_rows(half.lookup.slope, read, gates @ input_weight)
        begun = (
            (found.start + found.first_cell).view(rollout.images, rollout.samples, -1).sum(1).to(gates.dtype)
        )
        image = model.entry(pooled_vector(features))
        model.image.weight.grad, model.image.bias.grad = begun.T @ image, begun.sum(0)
        self.beside.join()


def _loss(
    pushes: Float[Tensor, " rows"],
    logprob: Float[Tensor, " rows"],
    entropy_weight: Float[Tensor, " rows"] | None = None,
    entropy: Float[Tensor, " rows"] | None = None,
) -> Float[Tensor, ""]:
    loss = -(pushes * logprob).sum()
    return loss if entropy_weight is None or entropy is None else loss - (entropy_weight * entropy).sum()
