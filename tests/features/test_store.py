"""The feature store: what goes in comes out, row by row, also after a kill; what is broken says so."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caplore.errors import InputError
from caplore.features.store import StoreWriter, folder_name, open_store, quantised, remove_store, write_store

ENCODER = {"name": "test", "weights": "1"}
HALF = 2**-10  # relative rounding of fp16


def rows(count: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def write(path: Path, pooled: torch.Tensor, regions: torch.Tensor, sizes: list[int]) -> list[str]:
    ids = [f"picture {i}" for i in range(len(pooled))]

    def chunks() -> Iterator[dict[str, torch.Tensor]]:
        start = 0
        for size in sizes:
            yield {"pooled": pooled[start : start + size], "regions": regions[start : start + size]}
            start += size

    write_store(path, ids, chunks(), encoder=ENCODER)
    return ids


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
@settings(deadline=None, max_examples=8)
def test_any_rows_come_back_in_any_order(
    sizes: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pooled, regions = rows(sum(sizes), 7), rows(sum(sizes), 3, 5, seed=1)
    path = tmp_path_factory.mktemp("store") / "features"
    ids = write(path, pooled, regions, sizes)
    wanted = data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=12))
    found = open_store(path).load([ids[i] for i in wanted])
    assert found["pooled"].dtype == torch.float16
    torch.testing.assert_close(found["pooled"].float(), pooled[wanted], rtol=HALF, atol=1e-6)
    torch.testing.assert_close(found["regions"].float(), regions[wanted], rtol=HALF, atol=1e-6)


@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=25)
def test_int8_is_within_half_a_step_of_each_row(seed: int, scale: float) -> None:
    values = rows(4, 3, 5, seed=seed) * scale
    stored = quantised(values, "regions")
    back = stored["regions"].float() * stored["regions.scale"].view(-1, 1, 1)
    step = values.abs().amax((1, 2)) / 127
    assert stored["regions"].dtype == torch.int8
    assert ((back - values).abs() <= step.view(-1, 1, 1) * 0.5001).all()


def test_int8_rows_are_read_as_numbers(tmp_path: Path) -> None:
    values = rows(6, 8)
    writer = StoreWriter(tmp_path, ENCODER)
    writer.add(list("abcdef"), quantised(values, "pooled"))
    found = writer.finish().load(["f", "a"])["pooled"].float()
    assert (found - values[[5, 0]]).abs().max() < values.abs().max() / 200


def test_an_input_without_features_is_counted_and_named(tmp_path: Path) -> None:
    write(tmp_path, rows(2, 4), rows(2, 1, 4), [2])
    with pytest.raises(InputError, match=r"no features for 2 of 3 inputs \(first: 'x'\)"):
        open_store(tmp_path).load(["x", "picture 0", "y"])


def test_a_writer_goes_on_where_one_was_killed(tmp_path: Path) -> None:
    values = rows(6, 4)
    first = StoreWriter(tmp_path, ENCODER)
    first.add(["a", "b"], {"pooled": values[:2]}, [10, 11])
    with pytest.raises(InputError, match="no features at"):  # killed here: half a store is no store
        open_store(tmp_path)
    second = StoreWriter(tmp_path, ENCODER)
    assert second.done == {"a": 10, "b": 11}
    second.add(["c", "d", "e", "f"], {"pooled": values[2:]})
    found = second.finish().load(list("fedcba"))["pooled"].float()
    torch.testing.assert_close(found, values.flip(0), rtol=HALF, atol=1e-6)


def test_features_made_in_another_way_are_not_mixed(tmp_path: Path) -> None:
    StoreWriter(tmp_path, ENCODER).add(["a"], {"pooled": rows(1, 4)})
    with pytest.raises(InputError, match="made in another way"):
        StoreWriter(tmp_path, {**ENCODER, "weights": "2"})


@pytest.mark.parametrize(
    ("ids", "tensors", "message"),
    [
        (["a"], {"pooled": torch.zeros(2, 3)}, "1 ids, but"),
        (["a"], {"words": torch.zeros(1, 3)}, "not words"),
        (["a"], {}, "pooled and/or regions"),
        (["a"], {"pooled": torch.zeros(1, 4)}, "one shape"),
    ],
)
def test_a_wrong_chunk_is_refused(
    ids: list[str], tensors: dict[str, torch.Tensor], message: str, tmp_path: Path
) -> None:
    writer = StoreWriter(tmp_path, ENCODER)
    writer.add(["first"], {"pooled": torch.zeros(1, 3)})
    with pytest.raises(ValueError, match=message):
        writer.add(ids, tensors)


def test_ids_and_rows_must_match(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 ids, but 2 rows"):
        write_store(tmp_path, list("abc"), iter([{"pooled": torch.zeros(2, 3)}]), encoder=ENCODER)


def damage(path: Path, how: str) -> None:
    index, shard = path / "index.json", path / "part-00000.safetensors"
    content = json.loads(index.read_text())
    match how:
        case "no index":
            index.unlink()
        case "other format":
            index.write_text(json.dumps({"format": "something"}))
        case "half an index":
            index.write_text(index.read_text()[:50])
        case "index without ids":
            index.write_text(json.dumps({k: v for k, v in content.items() if k != "ids"}))
        case "no shard":
            shard.unlink()
        case "half a shard":
            shard.write_bytes(shard.read_bytes()[:-20])
        case "another shard":
            content["shards"] = [["part-00000.safetensors", 7]]
            index.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "how",
    [
        "no index",
        "other format",
        "half an index",
        "index without ids",
        "no shard",
        "half a shard",
        "another shard",
    ],
)
def test_a_damaged_store_says_what_to_do(how: str, tmp_path: Path) -> None:
    write(tmp_path, rows(2, 4), rows(2, 1, 4), [2])
    damage(tmp_path, how)
    with pytest.raises(InputError):
        open_store(tmp_path).load(["picture 0"])


def test_the_bad_are_listed_beside_the_features_and_forgotten_when_mended(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, ENCODER)
    writer.add(["a"], {"pooled": rows(1, 4)})
    store = writer.finish([{"id": "b", "file": "b.jpg", "reason": "an empty file"}])
    assert json.loads(store.bad.read_text())["reason"] == "an empty file"
    assert not StoreWriter(tmp_path, ENCODER).finish().bad.exists()


def test_removing_a_store_leaves_other_files(tmp_path: Path) -> None:
    write(tmp_path, rows(2, 4), rows(2, 1, 4), [1, 1])
    (tmp_path / "notes.txt").write_text("mine")
    remove_store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("openai/clip-vit-base", "openai-clip-vit-base"),
        ("my.module:f", "my.module-f"),
        ("../../etc", "etc"),
        ("//", "features"),
    ],
)
def test_an_encoder_s_name_as_a_folder(name: str, folder: str) -> None:
    assert folder_name(name) == folder
