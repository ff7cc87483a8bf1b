"""One word after the other: the most probable (greedy) or a drawn one (sample).

Everything stays on the device. On CUDA the loops run `max_words` steps without asking the host anything, so
a CUDA graph can capture them; on the CPU captions that have ended leave the batch, and the loop stops with the last.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.decoding.captions import Captions
from caplore.models.protocol import BOS, EOS, Captioner, Features, State, repeat_state, select_state

Choice = tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]
Uniforms = Callable[[int], Float[Tensor, " rows"]]
"""Numbers from [0, 1) for so many rows, asked for once per word: who gives them decides what is drawn."""
Choose = Callable[[Float[Tensor, "rows vocab"], Int[Tensor, " rows"] | None], Choice]
"""A word for each row of logits; and which rows they are, None for all."""

LEAVE = 0.75  # captions that have ended leave when at most this share is still being said


def greedy(model: Captioner, features: Features, *, max_words: int) -> Captions:
    """The most probable word at each step; one caption per image (`samples` is 1)."""
    _check(max_words=max_words)
    with torch.no_grad():
        logits, *state = _first_step(model, features)
        tokens, logprob = _roll(
            model, logits, tuple(state), lambda logits, _: most_probable(logits), max_words
        )
    return Captions(tokens[:, None], logprob[:, None])


@overload
def sample(
    model: Captioner,
    features: Features,
    *,
    samples: int,
    max_words: int,
    temperature: float = ...,
    top_k: int = ...,
    top_p: float = ...,
    generator: torch.Generator | None = ...,
    uniforms: Uniforms | None = ...,
    with_greedy: Literal[False] = ...,
) -> Captions: ...


@overload
def sample(
    model: Captioner,
    features: Features,
    *,
    samples: int,
    max_words: int,
    temperature: float = ...,
    top_k: int = ...,
    top_p: float = ...,
    generator: torch.Generator | None = ...,
    uniforms: Uniforms | None = ...,
    with_greedy: Literal[True],
) -> tuple[Captions, Captions]: ...


def sample(
    model: Captioner,
    features: Features,
    *,
    samples: int,
    max_words: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    uniforms: Uniforms | None = None,
    with_greedy: bool = False,
) -> Captions | tuple[Captions, Captions]:
    """Draw `samples` captions per image from p(y|x), or from p `truncated` where a knob says so.

    The log-probability kept is that of the distribution sampled from. `with_greedy` decodes the greedy
    caption (self-critical training's baseline) in the same loop, as further rows, and returns
    (samples, greedy); its log-probability is the model's own, whatever the knobs. Chance comes from
    `uniforms` where they are given (rows: the samples of an image side by side), else from `generator`.
    """
    _check(samples=samples, max_words=max_words, temperature=temperature, top_k=top_k, top_p=top_p)
    with torch.no_grad():
        first = _first_step(model, features)
        images = len(first[0])
        drawn = images * samples
        rows = repeat_state(first, samples)
        if with_greedy:
            rows = tuple(torch.cat(parts) for parts in zip(rows, first, strict=True))

        numbers = uniforms
        if numbers is None and first[0].device.type == "cpu":
            numbers = partial(torch.rand, generator=generator)

        def choose(logits: Float[Tensor, "rows vocab"], which: Int[Tensor, " rows"] | None) -> Choice:
            here, uniform = drawn, None if numbers is None else numbers(drawn)
            if which is not None and uniform is not None:  # who has left takes nobody's chance along
                which = which[which < drawn]
                here, uniform = len(which), uniform[which]
            kept = truncated(logits[:here], temperature=temperature, top_k=top_k, top_p=top_p)
            tokens, logprob = draw(kept, generator, None if uniform is None else lambda _: uniform)
            if not with_greedy:
                return tokens, logprob
            best, best_logprob = most_probable(logits[here:])
            return torch.cat([tokens, best]), torch.cat([logprob, best_logprob])

        tokens, logprob = _roll(model, rows[0], rows[1:], choose, max_words)
    shape = (images, samples, max_words)
    sampled = Captions(tokens[:drawn].view(shape), logprob[:drawn].view(shape))
    if not with_greedy:
        return sampled
    return sampled, Captions(tokens[drawn:, None], logprob[drawn:, None])


def most_probable(logits: Float[Tensor, "rows vocab"]) -> Choice:
    best, tokens = logits.max(dim=-1)
    return tokens, best - logits.logsumexp(dim=-1)


def draw(
    logits: Float[Tensor, "rows vocab"],
    generator: torch.Generator | None = None,
    uniforms: Uniforms | None = None,
) -> Choice:
    """One token per row from softmax(logits).

    On a GPU by the Gumbel trick: argmax(logits + g) is such a draw, and fuses well. On a CPU, and wherever the
    `uniforms` are given, by inverting the distribution function, which takes one random number per row instead
    of one per word.
    """
    if uniforms is None and logits.device.type == "cpu":
        uniforms = partial(torch.rand, generator=generator)
    if uniforms is not None:
        mass = logits.softmax(dim=-1).cumsum(dim=-1)
        # At most 1 - 2^-24, so the target is below the whole mass however the product is rounded, and the
        # first word whose mass exceeds it has some.
        uniform = uniforms(len(logits)).to(logits.device)[:, None]
        tokens = torch.searchsorted(mass, uniform * mass[:, -1:], right=True).squeeze(-1)
        tokens.clamp_(
            max=mass.shape[-1] - 1
        )  # logits of nan have no such word; they must not end in an index error
    else:
        exponential = torch.empty_like(logits).exponential_(generator=generator)
        tokens = (logits - exponential.log_()).argmax(dim=-1)  # g = -log(exponential)
    chosen = logits.gather(-1, tokens[:, None]).squeeze(-1)
    return tokens, chosen - logits.logsumexp(dim=-1)


def truncated(
    logits: Float[Tensor, "rows vocab"], *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> Float[Tensor, "rows vocab"]:
    """Logits of the distribution that is sampled from; words that are out have -inf.

    First the temperature; then the `top_k` best words stay (0: all; words that tie with the last one stay
    too); then of these the fewest whose probabilities reach `top_p` (nucleus; 1: all).
    """
    if temperature != 1.0:
        logits = logits / temperature
    if 0 < top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True)
        probability = ordered.softmax(dim=-1)
        before = probability.cumsum(dim=-1) - probability  # mass of the better words: 0 for the best
        ordered = ordered.masked_fill(before >= top_p, -torch.inf)
        logits = torch.empty_like(logits).scatter_(-1, order, ordered)
    return logits


def _first_step(model: Captioner, features: Features) -> tuple[Tensor, ...]:
    """The logits of the first word, then the state: the same for all captions of an image, so made once."""
    state = model.begin(features)
    logits, state = model.step(torch.full((len(state[0]),), BOS, device=state[0].device), state)
    return logits, *state


def _roll(
    model: Captioner, logits: Float[Tensor, "rows vocab"], state: State, choose: Choose, max_words: int
) -> tuple[Int[Tensor, "rows time"], Float[Tensor, "rows time"]]:
    """Choose from the logits and step on, `max_words` times, or until all have ended where looking is free."""
    rows, device = len(logits), logits.device
    ended = torch.zeros(rows, dtype=torch.bool, device=device)
    tokens = torch.full((rows, max_words), EOS, device=device)
    logprobs = torch.zeros(rows, max_words, device=device)
    which: Tensor | None = None
    for time in range(max_words):
        token, logprob = choose(logits.float(), which)
        token = token.masked_fill(ended, EOS)
        at = slice(None) if which is None else which
        tokens[at, time] = token
        logprobs[at, time] = logprob.masked_fill(ended, 0.0)
        ended = ended | (token == EOS)
        if time == max_words - 1:
            break
        if device.type == "cpu":
            said = (~ended).nonzero().squeeze(1)
            if len(said) == 0:
                break
            if len(said) <= LEAVE * len(ended):
                which = said if which is None else which[said]
                token, state, ended = token[said], select_state(state, said), ended[said]
        logits, state = model.step(token, state)
    return tokens, logprobs


def _check(
    *, max_words: int, samples: int = 1, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> None:
    if samples < 1 or max_words < 1:
        raise ValueError(f"samples is {samples} and max_words {max_words}; both must be at least 1")
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, but must be above 0; for the limit 0 use greedy")
    if top_k < 0:
        raise ValueError(f"top_k is {top_k}, but must be at least 0 (0: all words)")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}, but must be above 0 and at most 1 (1: all words)")
