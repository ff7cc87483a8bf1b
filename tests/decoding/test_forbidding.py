import pytest
import torch

from caplore.decoding import Forbidding, beam, greedy, sample
from caplore.models import build
from caplore.models.protocol import Features

VOCAB, MAX_WORDS = 8, 10


@pytest.fixture
def model():
    torch.manual_seed(0)
    return build("fc", vocab=VOCAB, pooled_dim=5, regions=None, hidden=12).eval()


@pytest.fixture
def features() -> Features:
    return Features(torch.randn(20, 5, generator=torch.Generator().manual_seed(0)), None)


def decoded(model, features) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.cat(
        [
            greedy(model, features, max_words=MAX_WORDS).tokens,
            beam(model, features, width=3, n=3, max_words=MAX_WORDS).tokens,
            sample(model, features, samples=8, max_words=MAX_WORDS, generator=rng).tokens,
        ],
        dim=1,
    ).flatten(0, 1)


def test_forbidden_words_are_never_said(model, features) -> None:
    assert {1, 2} <= set(decoded(model, features).unique().tolist())
    assert not {1, 2} & set(decoded(Forbidding(model, VOCAB, words=(1, 2)), features).unique().tolist())


def test_no_word_follows_itself_unless_it_may(model, features) -> None:
    def repeats(tokens: torch.Tensor) -> bool:
        return bool(((tokens[:, 1:] == tokens[:, :-1]) & (tokens[:, 1:] != 0)).any())

    words = (1,)  # an untrained model says "begin", which may follow itself: each caption starts with it
    assert repeats(decoded(Forbidding(model, VOCAB, words=words), features))
    assert not repeats(decoded(Forbidding(model, VOCAB, words=words, repeats=False), features))


def test_no_caption_ends_after_a_bad_ending(model, features) -> None:
    def endings(tokens: torch.Tensor) -> set[int]:
        last_word = (tokens[:, 1:] == 0) & (tokens[:, :-1] != 0)
        return set(tokens[:, :-1][last_word].tolist())

    assert {3, 4} <= endings(decoded(model, features))
    assert not {3, 4} & endings(decoded(Forbidding(model, VOCAB, endings=(3, 4)), features))


def test_steps_and_forward_agree_and_the_rest_sums_to_one(model, features) -> None:
    wrapped = Forbidding(model, VOCAB, words=(2,), endings=(3,), repeats=False)
    rng = torch.Generator().manual_seed(0)
    tokens, logprob = sample(wrapped, features, samples=1, max_words=MAX_WORDS, generator=rng)
    with torch.no_grad():
        expected = wrapped(features, tokens[:, 0]).log_softmax(-1).gather(-1, tokens[:, 0, :, None])
    own = logprob[:, 0] != 0
    torch.testing.assert_close(logprob[:, 0][own], expected.squeeze(-1)[own], rtol=1e-5, atol=1e-5)


def test_the_end_cannot_be_forbidden(model) -> None:
    with pytest.raises(ValueError, match="end of a caption"):
        Forbidding(model, VOCAB, words=(0,))
