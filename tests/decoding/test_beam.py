import math
from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.decoding import beam, diverse_beam, first_of_its_kind, greedy, sample
from caplore.models import build
from caplore.models.protocol import Features

FLOAT32_SUM = {"rtol": 1e-5, "atol": 1e-5}  # up to 8 tokens, log-probabilities of size 10
penalties = st.sampled_from([0.0, 0.5, 1.0])


def slow_search(next_logprob, max_words, *, width, n, penalty=0.0, groups=1, strength=0.0):
    """Beam search as one would explain it: lists of (caption, log p), for one image.

    `next_logprob(prefix)` gives the log-probabilities of the next word. Returns (score, caption, log p) of
    the `n` best of each group.
    """
    live: list[list] = [[((), 0.0)] for _ in range(groups)]
    done: list[list] = [[] for _ in range(groups)]
    for time in range(max_words):
        taken: dict[int, int] = {}
        for group in range(groups):
            children = []
            for prefix, logprob in live[group]:
                for word, step in enumerate(next_logprob(prefix).tolist()):
                    chosen_by = logprob + step - strength * taken.get(word, 0)
                    children.append((chosen_by, (*prefix, word), logprob + step))
            best = sorted(children, reverse=True)[:width]
            live[group] = []
            for _, caption, logprob in best:
                taken[caption[-1]] = taken.get(caption[-1], 0) + 1
                if caption[-1] == 0 or time == max_words - 1:
                    done[group].append((logprob / len(caption) ** penalty, caption, logprob))
                else:
                    live[group].append((caption, logprob))
    return [sorted(leaves, reverse=True)[:n] for leaves in done]


def caption_list(tokens, own_tokens):
    return [own_tokens(row) for row in tokens]


@given(
    seed=st.integers(0, 10_000),
    vocab=st.integers(3, 9),
    max_words=st.integers(1, 6),
    width=st.integers(1, 6),
    penalty=penalties,
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_beam_is_the_slow_beam(toy, own_tokens, seed, vocab, max_words, width, penalty, data) -> None:
    n = data.draw(st.integers(1, width))
    model = toy(images=3, max_words=max_words, vocab=vocab, seed=seed)
    found = beam(model, model.features, width=width, n=n, max_words=max_words, length_penalty=penalty)
    assert found.tokens.shape == (3, n, max_words)
    for image in range(3):

        def step(prefix, image=image):
            return model.next_logprob(image, prefix)

        (expected,) = slow_search(step, max_words, width=width, n=n, penalty=penalty)
        there = len(expected)
        assert caption_list(found.tokens[image], own_tokens)[:there] == [c for _, c, _ in expected]
        logprob = torch.tensor([p for _, _, p in expected])
        torch.testing.assert_close(found.logprob[image, :there], logprob, **FLOAT32_SUM)
        assert (found.logprob[image, there:] == -math.inf).all()
        assert not found.tokens[image, there:].any()


def test_captions_that_do_not_exist_are_empty_and_impossible(toy) -> None:
    """Three words and a limit of one: there are three captions, so the fourth and fifth best are none."""
    model = toy(images=2, max_words=1, vocab=3, seed=0)
    found = beam(model, model.features, width=5, n=5, max_words=1)
    assert found.tokens[:, :3, 0].sort(dim=1).values.tolist() == [[0, 1, 2]] * 2
    assert found.logprob[:, :3].isfinite().all()
    assert found.logprob[:, 3:].tolist() == [[-math.inf] * 2] * 2
    assert not found.tokens[:, 3:].any()


@given(seed=st.integers(0, 10_000), penalty=penalties)
@settings(max_examples=20, deadline=None)
def test_a_wide_beam_finds_the_exact_n_best(toy, own_tokens, seed, penalty) -> None:
    """Nothing is pruned when every caption fits: the answer is the top of the whole list."""
    model = toy(images=2, max_words=3, vocab=4, seed=seed)
    found = beam(model, model.features, width=64, n=8, max_words=3, length_penalty=penalty)
    for image in range(2):
        everything = model.everything(image)
        ranked = sorted(everything, key=lambda c: -everything[c] / len(c) ** penalty)
        assert caption_list(found.tokens[image], own_tokens) == ranked[:8]


@pytest.mark.parametrize("name", ["fc", "att2in", "updown", "transformer"])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_every_models_beam_is_the_slow_beam_over_forward(name, width, own_tokens) -> None:
    """The slow one computes each prefix afresh: reordering states, caches and regions changes nothing."""
    model, features = make(name)
    found = beam(model, features, width=width, n=width, max_words=6)
    for image in range(len(found.tokens)):
        one = Features(features.pooled[image : image + 1], features.regions[image : image + 1])

        def step(prefix, one=one):
            with torch.no_grad():
                return model(one, torch.tensor([[*prefix, 0]])).log_softmax(-1)[0, -1]

        (expected,) = slow_search(step, 6, width=width, n=width)
        assert caption_list(found.tokens[image], own_tokens) == [c for _, c, _ in expected]
        torch.testing.assert_close(
            found.logprob[image], torch.tensor([p for _, _, p in expected]), **FLOAT32_SUM
        )


@given(seed=st.integers(0, 10_000), penalty=penalties, ending=st.floats(-3, 3))
@settings(max_examples=40, deadline=None)
def test_beam_one_is_greedy_whatever_the_penalty(toy, seed, penalty, ending) -> None:
    model = toy(images=4, max_words=6, vocab=8, seed=seed)
    model.table[..., 0] += ending
    narrow = beam(model, model.features, width=1, max_words=6, length_penalty=penalty)
    plain = greedy(model, model.features, max_words=6)
    assert torch.equal(narrow.tokens, plain.tokens)
    torch.testing.assert_close(narrow.token_logprob, plain.token_logprob, **FLOAT32_SUM)


@given(seed=st.integers(0, 10_000), penalty=penalties)
@settings(max_examples=30, deadline=None)
def test_n_best_are_distinct_sorted_and_within_the_limit(toy, seed, penalty) -> None:
    model = toy(images=3, max_words=6, vocab=10, seed=seed)
    found = beam(model, model.features, width=5, n=5, max_words=6, length_penalty=penalty)
    assert first_of_its_kind(found.tokens).all()
    length = ((found.tokens == 0).cumsum(-1) <= 1).sum(-1)  # the first end counts
    score = found.logprob / length**penalty
    assert (score.diff(dim=1) <= 1e-6).all()
    ended = (found.tokens == 0).cummax(-1).values
    assert not found.tokens[ended].any()


def test_a_wider_beam_finds_more_probable_captions_on_the_whole(toy) -> None:
    """Not always for one image (the greedy path may be pruned), but on the average."""
    model = toy(images=400, max_words=6, vocab=12, seed=0)
    mean = [beam(model, model.features, width=w, max_words=6).logprob.mean() for w in (1, 2, 5, 20)]
    assert mean == sorted(mean)
    assert mean[2] > mean[0] + 0.1


@given(seed=st.integers(0, 10_000), penalty=penalties, ending=st.floats(-1, 4))
@settings(max_examples=30, deadline=None)
def test_stopping_early_changes_nothing(toy, seed, penalty, ending) -> None:
    """The CPU stops when no live node can still win; CUDA runs all steps. Both find the same."""
    model = toy(images=2, max_words=7, vocab=8, seed=seed)
    model.table[..., 0] += ending
    knobs = {"width": 4, "n": 3, "max_words": 7, "length_penalty": penalty}
    early = beam(model, model.features, **knobs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("caplore.decoding.beam"), "_settled", lambda *_: False)
        late = beam(model, model.features, **knobs)
    assert torch.equal(early.tokens, late.tokens)
    assert torch.equal(early.token_logprob, late.token_logprob)


def test_a_settled_beam_stops(toy) -> None:
    model = toy(images=2, max_words=7, vocab=8, seed=0)
    model.table[..., 0] += 20  # all end at once
    steps = []
    step = model.step
    model.step = lambda tokens, state: (steps.append(1), step(tokens, state))[1]
    beam(model, model.features, width=3, max_words=7)
    assert len(steps) < 7


def test_no_images_have_no_captions(toy) -> None:
    model = toy(images=1, max_words=4, vocab=5, seed=0)
    none = Features(torch.zeros(0, 1), None)
    assert beam(model, none, width=3, n=2, max_words=4).tokens.shape == (0, 2, 4)
    assert diverse_beam(model, none, width=4, groups=2, n=2, max_words=4).tokens.shape == (0, 2, 4)
    assert greedy(model, none, max_words=4).tokens.shape == (0, 1, 4)
    assert sample(model, none, samples=3, max_words=4).tokens.shape == (0, 3, 4)


def test_images_do_not_see_each_other() -> None:
    model, features = make("updown")
    order = torch.tensor([2, 0, 1])
    together = beam(model, features, width=3, n=3, max_words=6)
    moved = Features(features.pooled[order], features.regions[order])
    assert torch.equal(beam(model, moved, width=3, n=3, max_words=6).tokens, together.tokens[order])
    alone = Features(features.pooled[:1], features.regions[:1])
    assert torch.equal(beam(model, alone, width=3, n=3, max_words=6).tokens, together.tokens[:1])


@given(
    seed=st.integers(0, 10_000),
    groups=st.integers(1, 3),
    per_group=st.integers(1, 3),
    strength=st.sampled_from([0.0, 0.5, 3.0]),
    vocab=st.integers(3, 9),
)
@settings(max_examples=40, deadline=None)
def test_diverse_beam_is_the_slow_one(toy, own_tokens, seed, groups, per_group, strength, vocab) -> None:
    model, width = toy(images=2, max_words=4, vocab=vocab, seed=seed), groups * per_group
    found = diverse_beam(
        model, model.features, width=width, groups=groups, n=width, max_words=4, strength=strength
    )
    for image in range(2):

        def step(prefix, image=image):
            return model.next_logprob(image, prefix)

        expected = slow_search(step, 4, width=per_group, n=per_group, groups=groups, strength=strength)
        leaves = sorted((leaf for group in expected for leaf in group), key=lambda leaf: -leaf[0])
        torch.testing.assert_close(
            found.logprob[image], torch.tensor([p for _, _, p in leaves]), **FLOAT32_SUM
        )
        assert sorted(caption_list(found.tokens[image], own_tokens)) == sorted(c for _, c, _ in leaves)


def test_diverse_beams_have_more_different_captions_the_stronger(toy) -> None:
    model = toy(images=50, max_words=5, vocab=12, seed=0)
    found = [
        diverse_beam(model, model.features, width=6, groups=6, n=6, max_words=5, strength=s)
        for s in (0.0, 0.3, 30.0)
    ]
    different = [first_of_its_kind(f.tokens).float().mean() for f in found]
    assert different[0] == pytest.approx(1 / 6)  # all groups find the greedy caption
    assert different == sorted(different)
    assert different[2] == 1


def make(name: str) -> tuple:
    torch.manual_seed(0)
    sizes = {"heads": 2} if name == "transformer" else {}
    model = build(name, vocab=12, pooled_dim=7, regions=(3, 5), hidden=16, **sizes).eval()
    for weight in model.parameters():
        weight.data.mul_(2)
    return model, Features(torch.randn(3, 7), torch.randn(3, 3, 5))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"n": 4}, "n is 4, but must be between 1 and the beam's width, 3"),
        ({"n": 0}, "n is 0"),
        ({"max_words": 0}, "max_words is 0"),
    ],
)
def test_impossible_knobs_are_named(toy, knobs, message) -> None:
    model = toy(images=1, max_words=2, vocab=3, seed=0)
    with pytest.raises(ValueError, match=message):
        beam(model, model.features, **({"width": 3, "max_words": 2} | knobs))


def test_groups_must_divide(toy) -> None:
    model = toy(images=1, max_words=2, vocab=3, seed=0)
    with pytest.raises(ValueError, match=r"groups \(2\) must divide width \(5\)"):
        diverse_beam(model, model.features, width=5, groups=2, n=2, max_words=2)


@pytest.mark.gpu
def test_cuda_finds_what_the_cpu_finds() -> None:
    model, features = make("transformer")
    here = beam(model, features, width=5, n=5, max_words=6)
    there = beam(
        model.cuda(), Features(features.pooled.cuda(), features.regions.cuda()), width=5, n=5, max_words=6
    )
    assert torch.equal(there.tokens.cpu(), here.tokens)
    torch.testing.assert_close(there.token_logprob.cpu(), here.token_logprob, rtol=1e-4, atol=1e-4)
