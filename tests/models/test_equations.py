"""The recurrent models against their equations, written out slowly, one word and one row at a time."""

import pytest
import torch
from torch import Tensor

from caplore.models import build
from caplore.models.protocol import Features

VOCAB, TIME, POOLED, REGIONS = 9, 4, 5, (3, 6)
SAME = {"rtol": 1e-10, "atol": 1e-12}  # float64
SIZES = {"hidden": 4, "embed": 7}


def make(name: str, **sizes: int) -> tuple:
    torch.manual_seed(0)
    model = build(name, vocab=VOCAB, pooled_dim=POOLED, regions=REGIONS, **SIZES, **sizes).double().eval()
    pooled, regions = torch.randn(1, POOLED), torch.randn(1, *REGIONS)
    tokens = torch.randint(2, VOCAB, (1, TIME))
    logits = model(Features(pooled.double(), regions.double()), tokens)[0]
    return model, pooled[0].double(), regions[0].double(), [1, *tokens[0, :-1].tolist()], logits


def slow_lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    write, keep, new, show = gates.chunk(4)
    cell = keep.sigmoid() * cell + write.sigmoid() * new.tanh()
    return show.sigmoid() * cell.tanh(), cell


def slow_attention(model, query: Tensor, values: list[Tensor]) -> Tensor:
    scores = torch.stack([model.attend.score.weight[0] @ torch.tanh(model.key(v) + query) for v in values])
    return sum(w * v for w, v in zip(scores.softmax(0), values, strict=True))


def zeros() -> Tensor:
    return torch.zeros(SIZES["hidden"], dtype=torch.float64)


def test_fc() -> None:
    model, pooled, _, words, logits = make("fc")
    hidden = cell = model.image.weight @ pooled + model.image.bias
    lstm = model.lstm
    for time, word in enumerate(words):
        gates = lstm.weight_ih_l0 @ model.embedding.weight[word] + lstm.bias_ih_l0
        hidden, cell = slow_lstm(gates + lstm.weight_hh_l0 @ hidden + lstm.bias_hh_l0, cell)
        torch.testing.assert_close(logits[time], model.out(hidden), **SAME)


def test_att2in() -> None:
    model, _, regions, words, logits = make("att2in", attention=8)
    values = [model.value(x).relu() for x in regions]
    query_of, recurrent = model.recurrent.weight.split([8, 20])
    hidden, cell = zeros(), zeros()
    for time, word in enumerate(words):
        seen = slow_attention(model, query_of @ hidden, values)
        sums = model.word(model.embedding.weight[word]) + recurrent @ hidden
        write, keep, show, one, other = sums.chunk(5)
        a, b = model.context(seen).chunk(2)
        cell = keep.sigmoid() * cell + write.sigmoid() * torch.maximum(one + a, other + b)
        hidden = show.sigmoid() * cell.tanh()
        torch.testing.assert_close(logits[time], model.out(hidden), **SAME)


def test_updown() -> None:
    model, pooled, regions, words, logits = make("updown", attention=8)
    values = [model.value(x).relu() for x in regions]
    glimpse = model.glimpse.weight @ model.image(pooled).relu()
    query_of, look_to_say = model.from_look.weight.split([8, 16])
    look, look_cell, say, say_cell = zeros(), zeros(), zeros(), zeros()
    for time, word in enumerate(words):
        gates = model.word(model.embedding.weight[word]) + glimpse
        look, look_cell = slow_lstm(gates + model.look.weight @ torch.cat([look, say]), look_cell)
        seen = slow_attention(model, query_of @ look, values)
        say, say_cell = slow_lstm(look_to_say @ look + model.say(torch.cat([seen, say])), say_cell)
        torch.testing.assert_close(logits[time], model.out(say), **SAME)


@pytest.mark.parametrize("name", ["fc", "updown"])
def test_the_mean_region_stands_in_for_a_pooled_vector(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, vocab=VOCAB, pooled_dim=None, regions=REGIONS, **SIZES).eval()
    regions, tokens = torch.randn(2, *REGIONS), torch.randint(2, VOCAB, (2, TIME))
    given = build(name, vocab=VOCAB, pooled_dim=REGIONS[1], regions=REGIONS, **SIZES).eval()
    given.load_state_dict(model.state_dict(), strict=False)  # but for the statistics of the pooled vector
    expected = given(Features(regions.mean(1), regions), tokens)
    torch.testing.assert_close(model(Features(None, regions), tokens), expected)
