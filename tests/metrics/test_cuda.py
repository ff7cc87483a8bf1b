"""On a CUDA device: the same numbers, no waiting for the device, and one graph for the whole reward.

python -m pytest tests/metrics/test_cuda.py -m gpu
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from caplore.metrics.bleu import Bleu, bleu_distance
from caplore.metrics.cider import Cider, CiderD
from caplore.metrics.ngrams import DocumentFrequencies
from caplore.metrics.rouge import RougeL

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none here"),
]
FLOAT32 = 2e-6


def rows(*shape: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 40, (*shape, 16), generator=rng)
    return tokens * (torch.arange(16) < torch.randint(0, 17, (*shape, 1), generator=rng))


def metrics(device: str) -> dict[str, Callable[[Tensor], Tensor]]:
    """Every score of captions, on a device, with its references prepared there."""
    refs, there = rows(30, 5, seed=1).to(device), torch.ones(30, 5, dtype=torch.bool, device=device)
    df = DocumentFrequencies.from_references(refs, there, vocab=40)
    found: dict[str, Callable[[Tensor], Tensor]] = {"distance": bleu_distance}
    for metric in (CiderD(df), Cider(df), Bleu(), RougeL()):
        prepared = metric.prepare(refs, there)
        found[type(metric).__name__] = lambda captions, m=metric, p=prepared: m.score(captions, p)  # type: ignore[misc]
    return found


@pytest.mark.parametrize("name", ["distance", "CiderD", "Cider", "Bleu", "RougeL"])
def test_the_device_gives_the_cpus_numbers_without_waiting(name: str) -> None:
    captions = rows(30, 4, seed=2)
    wanted, on_device = metrics("cpu")[name](captions), metrics("cuda")[name]
    moved = captions.cuda()
    on_device(moved)  # the first call may load kernels
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        got = on_device(moved)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (got.cpu() - wanted).abs().max() < FLOAT32


@pytest.mark.parametrize("name", ["distance", "CiderD", "Cider", "Bleu", "RougeL"])
def test_a_graph_replays_the_score_of_other_captions(name: str) -> None:
    score, captions = metrics("cuda")[name], rows(30, 4, seed=2).cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            score(captions)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = score(captions)
    for seed in (3, 4):
        others = rows(30, 4, seed=seed).cuda()
        captions.copy_(others)
        graph.replay()
        assert torch.equal(out, score(others))


def test_frequencies_built_on_the_device_are_the_cpus() -> None:
    refs = rows(200, 5, seed=5)
    on_cpu = DocumentFrequencies.from_references(refs, vocab=40)
    on_device = DocumentFrequencies.from_references(refs.cuda(), vocab=40)
    assert on_device.digest == on_cpu.digest == on_cpu.to("cuda").digest
