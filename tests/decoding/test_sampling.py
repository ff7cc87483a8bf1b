import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.decoding import greedy, sample, sampling
from caplore.decoding.sampling import draw, truncated
from caplore.models import build
from caplore.models.protocol import Features

FLOAT32_SOFTMAX = {"rtol": 1e-5, "atol": 1e-5}  # logits of size 10, 30 words, one addition per word
IMAGES, SAMPLES, MAX_WORDS, VOCAB = 6, 4, 9, 30
KNOBS = [
    {},
    {"temperature": 0.7},
    {"temperature": 1.6},
    {"top_k": 5},
    {"top_p": 0.8},
    {"temperature": 1.3, "top_k": 12, "top_p": 0.9},
]


def make(name: str, seed: int = 0) -> tuple:
    torch.manual_seed(seed)
    sizes = {"heads": 2} if name == "transformer" else {}
    model = build(name, vocab=VOCAB, pooled_dim=7, regions=(3, 5), hidden=16, **sizes).eval()
    for weight in model.parameters():
        weight.data.mul_(3)  # peaked: greedy captions differ, and some end early
    return model, Features(torch.randn(IMAGES, 7), torch.randn(IMAGES, 3, 5))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mask(tokens: torch.Tensor) -> torch.Tensor:
    """Words and the first end, by looking at each row."""
    keep = torch.ones_like(tokens, dtype=torch.bool)
    for row, words in zip(keep.view(-1, tokens.shape[-1]), tokens.view(-1, tokens.shape[-1]), strict=True):
        if 0 in words.tolist():
            row[words.tolist().index(0) + 1 :] = False
    return keep


def slow_truncated(logits: list[float], temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> list:
    """Log-probabilities after temperature, top-k and nucleus, one word at a time."""
    weight = {w: math.exp(x / temperature) for w, x in enumerate(logits)}
    kept = sorted(weight, key=lambda w: -weight[w])[: top_k or None]
    total = math.fsum(weight[w] for w in kept)
    nucleus, mass = [], 0.0
    for w in kept:
        if mass >= top_p:
            break
        nucleus.append(w)
        mass += weight[w] / total
    total = math.fsum(weight[w] for w in nucleus)
    return [math.log(weight[w] / total) if w in nucleus else -math.inf for w in range(len(logits))]


@pytest.mark.parametrize("name", ["fc", "att2in", "updown", "transformer"])
@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_the_logprob_kept_is_that_of_the_distribution_sampled_from(name, knobs) -> None:
    """Computed again from one teacher-forced pass: what the policy gradient relies on."""
    model, features = make(name)
    tokens, logprob = sample(
        model, features, samples=SAMPLES, max_words=MAX_WORDS, generator=generator(0), **knobs
    )
    flat = tokens.flatten(0, 1)
    with torch.no_grad():
        logits = model(features, flat)
    expected = torch.tensor([[slow_truncated(x, **knobs) for x in row] for row in logits.tolist()])
    chosen = expected.gather(-1, flat[..., None]).squeeze(-1).view_as(tokens)
    own = mask(tokens)
    assert logprob.isfinite().all()
    torch.testing.assert_close(logprob[own], chosen[own], **FLOAT32_SOFTMAX)
    assert not logprob[~own].any()
    assert not tokens[~own].any()


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_greedy_rows_beside_samples_are_greedy_search(knobs) -> None:
    model, features = make("transformer")
    alone = greedy(model, features, max_words=MAX_WORDS)
    samples, beside = sample(
        model, features, samples=3, max_words=MAX_WORDS, with_greedy=True, generator=generator(0), **knobs
    )
    assert torch.equal(beside.tokens, alone.tokens)
    torch.testing.assert_close(beside.token_logprob, alone.token_logprob)
    assert samples.tokens.shape == (IMAGES, 3, MAX_WORDS)
    assert alone.tokens.shape == (IMAGES, 1, MAX_WORDS)


@pytest.mark.parametrize("name", ["fc", "updown", "transformer"])
def test_greedy_takes_the_most_probable_word_each_time(name) -> None:
    model, features = make(name)
    captions = greedy(model, features, max_words=MAX_WORDS)
    tokens = captions.tokens[:, 0]
    with torch.no_grad():
        logprob = model(features, tokens).log_softmax(-1)
    own = mask(tokens)
    assert torch.equal(tokens[own], logprob.argmax(-1)[own])
    torch.testing.assert_close(captions.token_logprob[:, 0][own], logprob.amax(-1)[own], **FLOAT32_SOFTMAX)


def test_samples_come_as_often_as_they_are_probable(toy, own_tokens) -> None:
    """Chi-square over every caption the toy can say, for each image."""
    model, draws = toy(images=2, max_words=3, vocab=4, seed=3), 20_000
    captions = sample(model, model.features, samples=draws, max_words=3, generator=generator(0))
    for image in range(2):
        seen: dict = {}
        for row in captions.tokens[image]:
            seen[own_tokens(row)] = seen.get(own_tokens(row), 0) + 1
        expected = {c: draws * math.exp(p) for c, p in model.everything(image).items()}
        assert set(seen) <= set(expected)
        common = [c for c in expected if expected[c] >= 5]
        assert len(common) >= 10
        pairs = [(seen.get(c, 0), expected[c]) for c in common]
        rest = draws - sum(o for o, _ in pairs), draws - sum(e for _, e in pairs)
        chi_square = sum((o - e) ** 2 / e for o, e in [*pairs, rest])
        freedom = len(common)
        # Mean `freedom`, deviation sqrt(2 freedom): 4 deviations up is one run in some ten thousand.
        assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


def test_a_word_without_probability_is_never_drawn() -> None:
    """Also where it is the first or the last, and when the random number is as large as it gets."""
    logits = torch.tensor([-math.inf, 2.0, -math.inf, 0.5, 0.3, -math.inf, -math.inf]).repeat(200_000, 1)
    tokens, logprob = draw(logits, generator(0))
    assert set(tokens.tolist()) == {1, 3, 4}
    expected = logits[0].log_softmax(-1)
    torch.testing.assert_close(logprob, expected[tokens])
    logits = logits[:2000] + torch.randn(2000, 7, generator=generator(1))  # masses that round differently
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", lambda *shape, **_: torch.full(shape, 1 - 2**-24))
        assert set(draw(logits)[0].tolist()) == {4}
        patch.setattr(torch, "rand", lambda *shape, **_: torch.zeros(shape))
        assert set(draw(logits)[0].tolist()) == {1}


def test_the_generator_decides_all(toy) -> None:
    model = toy(images=3, max_words=5, vocab=9, seed=0)

    def draw(seed: int) -> torch.Tensor:
        return sample(model, model.features, samples=4, max_words=5, generator=generator(seed)).tokens

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


@pytest.mark.parametrize("name", ["fc", "att2in", "updown", "transformer"])
@pytest.mark.parametrize("with_greedy", [False, True])
def test_captions_that_have_ended_leave_and_change_nothing(
    name: str, with_greedy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, features = make(name)
    model.out.bias.data[0] += 12 if name == "transformer" else 2  # captions of all lengths
    rows, step = [], model.step

    def counted(tokens: torch.Tensor, state: tuple) -> tuple:
        rows.append(len(tokens))
        return step(tokens, state)

    monkeypatch.setattr(model, "step", counted)
    knobs = {"samples": 20, "max_words": 30, "with_greedy": with_greedy}
    found = []
    for share in (sampling.LEAVE, -1.0):
        monkeypatch.setattr(sampling, "LEAVE", share)
        rows.clear()
        out = sample(model, features, **knobs, generator=generator(0))
        found.append((out if with_greedy else (out,), rows[1:]))
    (left, few), (stayed, many) = found
    assert few[0] == many[0] == IMAGES * (20 + with_greedy)
    assert sum(few) < 0.8 * sum(many)
    for a, b in zip(left, stayed, strict=True):
        assert torch.equal(a.tokens, b.tokens)
        torch.testing.assert_close(a.token_logprob, b.token_logprob, **FLOAT32_SOFTMAX)


def test_dropout_never_reaches_the_samples() -> None:
    model, features = make("transformer")
    knobs = {"samples": SAMPLES, "max_words": MAX_WORDS}
    still = sample(model.eval(), features, **knobs, generator=generator(0))
    training = sample(model.train(), features, **knobs, generator=generator(0))
    assert torch.equal(still.tokens, training.tokens)


@given(
    seed=st.integers(0, 10_000),
    samples=st.integers(1, 4),
    max_words=st.integers(1, 6),
    vocab=st.integers(2, 7),
    ending=st.floats(-5, 5),
)
@settings(max_examples=40, deadline=None)
def test_captions_are_words_then_zeros_within_the_limit(toy, seed, samples, max_words, vocab, ending) -> None:
    model = toy(images=3, max_words=max_words, vocab=vocab, seed=seed)
    model.table[..., 0] += ending
    drawn, best = sample(
        model,
        model.features,
        samples=samples,
        max_words=max_words,
        with_greedy=True,
        generator=generator(seed),
    )
    for captions, count in ((drawn, samples), (best, 1)):
        assert captions.tokens.shape == captions.token_logprob.shape == (3, count, max_words)
        ended = (captions.tokens == 0).cummax(-1).values
        assert not captions.tokens[ended].any()
        assert not captions.token_logprob[~mask(captions.tokens)].any()
        assert (captions.token_logprob <= 0).all()
        torch.testing.assert_close(captions.logprob, captions.token_logprob.sum(-1))


@given(
    seed=st.integers(0, 10_000),
    temperature=st.floats(0.2, 3.0),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_truncation_keeps_the_words_a_slow_one_keeps(seed, temperature, top_k, top_p) -> None:
    logits = torch.randn(2, 10, generator=generator(seed)) * 2
    knobs = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    ours = truncated(logits, **knobs).log_softmax(-1)
    slow = torch.tensor([slow_truncated(row, **knobs) for row in logits.tolist()])
    torch.testing.assert_close(ours, slow, **FLOAT32_SOFTMAX)


def test_permuting_images_permutes_greedy_captions() -> None:
    model, features = make("updown")
    order = torch.tensor([4, 2, 5, 0, 1, 3])
    moved = Features(features.pooled[order], features.regions[order])
    captions = greedy(model, features, max_words=MAX_WORDS)
    assert torch.equal(greedy(model, moved, max_words=MAX_WORDS).tokens, captions.tokens[order])


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"samples": 0}, "samples is 0"),
        ({"max_words": 0}, "max_words 0"),
        ({"temperature": 0.0}, "temperature is 0.0.*use greedy"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
    ],
)
def test_impossible_knobs_are_named(toy, knobs, message) -> None:
    model = toy(images=1, max_words=2, vocab=3, seed=0)
    with pytest.raises(ValueError, match=message):
        sample(model, model.features, **({"samples": 2, "max_words": 2} | knobs))


@pytest.mark.gpu
def test_a_cuda_graph_captures_the_loop_and_samples_as_eager_does_not_differ_in_kind() -> None:
    """On CUDA no step asks the host; replays draw anew, and greedy rows stay what they are."""
    model, features = make("transformer")
    model, features = model.cuda(), Features(features.pooled.cuda(), features.regions.cuda())
    knobs = {"samples": SAMPLES, "max_words": MAX_WORDS, "with_greedy": True}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        sample(model, features, **knobs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        samples, best = sample(model, features, **knobs)
    graph.replay()
    first = samples.tokens.clone()
    graph.replay()
    assert not torch.equal(first, samples.tokens)
    assert torch.equal(best.tokens, greedy(model, features, max_words=MAX_WORDS).tokens)
