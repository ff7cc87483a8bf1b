"""What every captioner promises, checked on every captioner, in float64."""

import json

import pytest
import torch

from caplore.errors import InputError
from caplore.models import Model, build
from caplore.models.protocol import Features, repeat_features, repeat_state, select_state, spread

VOCAB, IMAGES, TIME = 23, 4, 7
POOLED, REGIONS = 6, (5, 8)
SAME = {"rtol": 1e-9, "atol": 1e-11}  # float64, a few hundred terms summed in another order
SIZES = {
    "fc": {"hidden": 16, "embed": 12},
    "att2in": {"hidden": 16, "embed": 12, "attention": 10},
    "updown": {"hidden": 16, "embed": 12, "attention": 10},
    "transformer": {"hidden": 16, "heads": 4, "encoder_layers": 2, "layers": 2},
}
KINDS = [
    ("fc", POOLED, None),
    ("fc", None, REGIONS),
    ("att2in", POOLED, REGIONS),
    ("updown", None, REGIONS),
    ("updown", POOLED, REGIONS),
    ("transformer", POOLED, None),
    ("transformer", None, REGIONS),
    ("transformer", POOLED, REGIONS),
]


def make(kind: tuple[str, int | None, tuple[int, int] | None]) -> tuple[Model, Features]:
    torch.manual_seed(0)
    name, pooled, regions = kind
    model = build(name, vocab=VOCAB, pooled_dim=pooled, regions=regions, **SIZES[name]).double()
    for weight in model.parameters():
        weight.data.mul_(2)  # far enough from uniform for a mistake to show
    features = Features(
        None if pooled is None else torch.randn(IMAGES, pooled, dtype=torch.float64),
        None if regions is None else torch.randn(IMAGES, *regions, dtype=torch.float64),
    )
    return model, features


def captions(rows: int = IMAGES) -> torch.Tensor:
    return torch.randint(2, VOCAB, (rows, TIME), generator=torch.Generator().manual_seed(1))


def stepwise(model: Model, state: tuple[torch.Tensor, ...], tokens: torch.Tensor) -> torch.Tensor:
    previous, logits = torch.ones_like(tokens[:, 0]), []
    for word in tokens.unbind(dim=1):
        now, state = model.step(previous, state)
        logits.append(now)
        previous = word
    return torch.stack(logits, dim=1)


each_model = pytest.mark.parametrize("kind", KINDS, ids=str)


@each_model
def test_step_equals_forward(kind) -> None:
    model, features = make(kind)
    model.eval()
    tokens = captions()
    expected = model(features, tokens)
    torch.testing.assert_close(stepwise(model, model.begin(features), tokens), expected, **SAME)
    assert expected.shape == (IMAGES, TIME, VOCAB)
    assert expected.std(dim=0).max() > 1e-3, "the images make no difference: the test would see nothing"


@each_model
def test_step_is_never_dropped_and_forward_is_in_train_mode_only(kind) -> None:
    model, features = make(kind)
    tokens = captions()
    expected = model.eval()(features, tokens)
    model.train()
    torch.testing.assert_close(stepwise(model, model.begin(features), tokens), expected, **SAME)
    assert (model(features, tokens) - expected).abs().max() > 1e-3


@each_model
def test_repeated_and_reordered_states_are_those_of_repeated_and_reordered_rows(kind) -> None:
    """Half-way through the captions, so that caches have something in them."""
    model, features = make(kind)
    model.eval()
    tokens = captions()
    state = model.begin(features)
    for word in [torch.ones(IMAGES, dtype=torch.long), *tokens[:, :3].unbind(dim=1)]:
        _, state = model.step(word, state)
    rows = torch.tensor([2, 0, 0, 3, 1])
    moved = select_state(state, rows)
    torch.testing.assert_close(
        model.step(tokens[rows, 3], moved)[0], model.step(tokens[:, 3], state)[0][rows], **SAME
    )
    twice = repeat_state(state, 2)
    torch.testing.assert_close(
        model.step(tokens[:, 3].repeat_interleave(2), twice)[0],
        model.step(tokens[:, 3], state)[0].repeat_interleave(2, dim=0),
        **SAME,
    )


@each_model
def test_a_state_can_be_used_twice(kind) -> None:
    """Stepping does not write into the state it is given: two continuations of one beginning are possible."""
    model, features = make(kind)
    model.eval()
    _, state = model.step(torch.ones(IMAGES, dtype=torch.long), model.begin(features))
    first, _ = model.step(torch.full((IMAGES,), 5), state)
    model.step(torch.full((IMAGES,), 6), state)
    again, _ = model.step(torch.full((IMAGES,), 5), state)
    assert torch.equal(first, again)


@each_model
def test_words_to_come_and_padding_are_invisible(kind) -> None:
    model, features = make(kind)
    model.eval()
    tokens = captions()
    changed = tokens.clone()
    changed[:, 3:] = 0
    torch.testing.assert_close(
        model(features, changed)[:, :4], model(features, tokens)[:, :4], **SAME
    )  # logits of token 3 depend on tokens 0..2
    assert (model(features, changed)[:, 4:] - model(features, tokens)[:, 4:]).abs().max() > 1e-3


@each_model
def test_permuting_images_permutes_logits(kind) -> None:
    model, features = make(kind)
    model.eval()
    tokens, order = captions(), torch.tensor([3, 1, 0, 2])
    moved = Features(*(None if f is None else f[order] for f in features))
    torch.testing.assert_close(model(moved, tokens[order]), model(features, tokens)[order], **SAME)


@each_model
def test_captions_of_one_image_may_share_its_features(kind) -> None:
    model, features = make(kind)
    model.eval()
    tokens = captions(3 * IMAGES)
    expected = model(repeat_features(features, 3), tokens)
    torch.testing.assert_close(model(features, tokens), expected, **SAME)


@each_model
def test_every_weight_gets_a_gradient(kind) -> None:
    model, features = make(kind)
    model(features, captions()).square().mean().backward()
    without = [name for name, w in model.named_parameters() if w.grad is None or not w.grad.abs().any()]
    if kind == ("transformer", POOLED, None):  # attention over a single token has no choice to learn
        without = [name for name in without if ".look." not in name and ".look_norm." not in name]
    assert without == []


@each_model
def test_config_as_json_builds_the_same_architecture(kind) -> None:
    model, features = make(kind)
    again = build(**json.loads(json.dumps(model.config))).double()
    again.load_state_dict(model.state_dict())
    tokens = captions()
    assert torch.equal(again.eval()(features, tokens), model.eval()(features, tokens))
    assert again.config == model.config


@each_model
def test_features_of_another_encoder_are_refused_by_name(kind) -> None:
    model, features = make(kind)
    wider = Features(*(None if f is None else torch.cat([f, f], dim=-1) for f in features))
    with pytest.raises(InputError, match=r"built for (pooled|region) features of shape"):
        model.begin(wider)


@pytest.mark.gpu
@each_model
def test_cuda_agrees_with_the_cpu(kind) -> None:
    """Other kernels (cuDNN, a fused LSTM cell), the same numbers and the same gradients."""
    model, features = make(kind)
    model.eval()
    tokens = captions()
    expected = model(features, tokens)
    expected.square().mean().backward()
    there, on_device = make(kind)[0].cuda().eval(), [None if f is None else f.cuda() for f in features]
    logits = there(Features(*on_device), tokens.cuda())
    torch.testing.assert_close(logits.cpu(), expected, **SAME)
    logits.square().mean().backward()
    for (name, ours), theirs in zip(model.named_parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(theirs.grad.cpu(), ours.grad, **SAME, msg=name)
    steps = stepwise(there, there.begin(Features(*on_device)), tokens.cuda())
    torch.testing.assert_close(steps.cpu(), expected, **SAME)


def test_half_precision_features_are_read() -> None:
    model, features = make(("transformer", POOLED, REGIONS))
    assert features.pooled is not None
    assert features.regions is not None
    model.float().begin(Features(features.pooled.half(), features.regions.half()))


def test_features_that_are_missing_are_an_error() -> None:
    model, features = make(("updown", POOLED, REGIONS))
    with pytest.raises(InputError, match="these have none"):
        model.begin(Features(None, features.regions))


def test_captions_that_do_not_share_out_are_an_error() -> None:
    with pytest.raises(ValueError, match="5 captions cannot be shared out evenly to 4 images"):
        spread((torch.zeros(4, 1),), 5)


def test_a_caption_beyond_the_transformers_positions_is_an_error() -> None:
    model, features = make(("transformer", POOLED, None))
    with pytest.raises(ValueError, match="longer than the model's limit"):
        model(features, torch.full((IMAGES, 300), 3))
