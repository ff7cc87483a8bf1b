import torch

from caplore.decoding import Captions, first_of_its_kind


def test_a_caption_said_before_is_not_the_first_of_its_kind() -> None:
    tokens = torch.tensor([[[3, 4, 0], [3, 0, 0], [3, 4, 0], [3, 4, 5], [3, 0, 0]], [[3, 4, 0]] * 5])
    expected = [[True, True, False, True, False], [True, False, False, False, False]]
    assert first_of_its_kind(tokens).tolist() == expected


def test_select_takes_captions_with_their_logprobs() -> None:
    tokens = torch.tensor([[[3, 0], [4, 0], [5, 5]], [[6, 0], [7, 0], [8, 0]]])
    logprob = -tokens.float()
    chosen = Captions(tokens, logprob).select(torch.tensor([[2, 0], [1, 1]]))
    assert chosen.tokens.tolist() == [[[5, 5], [3, 0]], [[7, 0], [7, 0]]]
    assert torch.equal(chosen.token_logprob, -chosen.tokens.float())
    assert chosen.logprob.tolist() == [[-10, -3], [-7, -7]]
