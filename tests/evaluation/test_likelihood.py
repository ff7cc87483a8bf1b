"""The tree walk equals teacher forcing, caption by caption."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.evaluation.likelihood import caption_likelihoods
from caplore.models.fc import Fc
from caplore.models.protocol import Features, repeat_features
from caplore.objectives.policy import gather_logprob, own_tokens

VOCAB, TIME = 7, 5


def model() -> Fc:
    torch.manual_seed(0)
    fc = Fc(VOCAB, 4, hidden=8, embed=8).eval()
    fc.out.weight.data *= 8  # peaked enough that some prefixes are faint
    return fc


@st.composite
def caption_sets(draw: st.DrawFn) -> list[torch.Tensor]:
    words = st.lists(st.integers(3, VOCAB - 1), max_size=TIME)
    sets = draw(st.lists(st.lists(words, min_size=1, max_size=12, unique_by=tuple), min_size=1, max_size=3))
    return [torch.tensor([w + [0] * (TIME - len(w)) for w in one]) for one in sets]


@given(sets=caption_sets())
@settings(max_examples=40, deadline=None)
def test_equals_teacher_forcing(sets: list[torch.Tensor]) -> None:
    fc = model()
    pooled = torch.randn(len(sets), 4, generator=torch.Generator().manual_seed(1))
    found = caption_likelihoods(fc, Features(pooled, None), sets, threshold=0.0)
    for i, rows in enumerate(sets):
        with torch.no_grad():
            logits = fc(repeat_features(Features(pooled[i : i + 1], None), len(rows)), rows)
        slow = gather_logprob(logits, rows).masked_fill(~own_tokens(rows), 0.0).sum(-1)
        torch.testing.assert_close(found.logprob[i], slow, atol=1e-4, rtol=1e-4)
    assert (found.missed == 0).all()


@given(sets=caption_sets(), threshold=st.sampled_from([1e-4, 1e-2, 0.5]))
@settings(max_examples=40, deadline=None)
def test_what_is_not_followed_is_within_the_bound(sets: list[torch.Tensor], threshold: float) -> None:
    fc = model()
    features = Features(torch.randn(len(sets), 4, generator=torch.Generator().manual_seed(1)), None)
    whole = caption_likelihoods(fc, features, sets, threshold=0.0)
    cut = caption_likelihoods(fc, features, sets, threshold=threshold)
    for i in range(len(sets)):
        lost = (whole.logprob[i].exp().sum() - cut.logprob[i].exp().sum()).item()
        assert -1e-5 <= lost <= cut.missed[i].item() + 1e-5
        kept = cut.logprob[i] > -torch.inf
        torch.testing.assert_close(cut.logprob[i][kept], whole.logprob[i][kept], atol=1e-4, rtol=1e-4)


def test_the_whole_tree_has_mass_one() -> None:
    """All captions over the vocabulary of up to two words, ended or cut, are everything that can be said."""
    fc = model()
    every = [[a, b] for a in range(VOCAB) for b in (range(VOCAB) if a else [0])]
    features = Features(torch.randn(1, 4, generator=torch.Generator().manual_seed(1)), None)
    found = caption_likelihoods(fc, features, [torch.tensor(every)], threshold=0.0)
    assert found.logprob[0].exp().sum().item() == pytest.approx(1.0, abs=1e-5)
