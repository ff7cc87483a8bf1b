"""`caplore data import KIND PATH --to DIR` and `caplore data check DIR`."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from caplore.cli.parsing import parse
from caplore.errors import ConfigError, InputError, MissingError

if TYPE_CHECKING:
    from caplore.data.dataset import Dataset, Media
    from caplore.data.importers.source import Finding, Source
    from caplore.features.encoder import Encoder
    from caplore.features.importing import Table

Kind = Literal[
    "coco",
    "flickr8k",
    "flickr30k",
    "tgif",
    "msvd",
    "msrvtt",
    "coco-proxy",
    "folder",
    "csv",
    "tsv",
    "jsonl",
    "features",
]
OWN = ("folder", "csv", "tsv", "jsonl")


@dataclass(frozen=True)
class ImportOptions:
    """Turn captions and pictures (or clips) into a data set, and say everything that is wrong with them.

    coco, flickr30k: the official annotation JSON, or Karpathy's JSON. flickr8k: token file and lists (or Karpathy's
    JSON). tgif: TSV and splits. msvd, msrvtt. folder, csv, tsv, jsonl: your own. features: add features that were
    computed elsewhere to the data set at --to.
    """

    kind: Annotated[Kind, tyro.conf.Positional]
    """What it is."""
    path: Annotated[Path, tyro.conf.Positional]
    """The folder or the file it is in (features: an .npy, .npz, .h5, or a folder of them)."""
    to: Path
    """The data set to write: a new folder."""
    media: Path | None = None
    """The folder of the pictures or clips, where it is not found by itself."""
    copy: bool = False
    """Copy the media files; else they are linked to where they are."""
    resplit: bool = False
    """Ignore the splits that came with it; split by a hash of the ids, as is done where there are none."""
    val: float = 0.1
    """Share to select models on, when splitting by hash."""
    test: float = 0.1
    """Share to score on, when splitting by hash."""
    seed: int = 0
    """Another seed, another split by hash."""
    features: tuple[Path, ...] = ()
    """Features computed elsewhere: files or folders, one of pooled vectors and/or one of regions."""
    feature_rows: Path | None = None
    """The ids of the features' rows: one per line, a JSON list, or JSONL with "id"."""
    feature_name: str | None = None
    """What to call them; default: the file's name."""
    feature_scale: float | None = None
    """What to multiply them by (needed for int8)."""


@dataclass(frozen=True)
class CheckOptions:
    """Look a data set over: files, captions, splits, features. Changes nothing; exits 1 where something is wrong."""

    data: Annotated[Path, tyro.conf.Positional]
    """The data set's folder."""
    deep: bool = False
    """Decode every file, instead of reading its first bytes."""
    report: Path | None = None
    """Write everything that was found to this JSON file."""


def main(argv: list[str]) -> int:
    if argv and argv[0] == "check":
        return check_command(argv[1:])
    return import_command(argv[1:] if argv and argv[0] == "import" else argv)


# caplore data import


PROVEN_ON, SAME = 8, 0.999  # pictures encoded again; the cosine from which on features are the same


@dataclass(frozen=True)
class FeatureFiles:
    """Features to import beside the captions."""

    files: tuple[Path, ...]
    rows: Path | None
    name: str
    scale: float | None = None
    encoder: str | None = None
    """The encoder that is said to have made the pooled ones; believed once it is seen to."""


def import_command(argv: list[str]) -> int:
    options = parse(ImportOptions, argv, prog="caplore data import", description=ImportOptions.__doc__ or "")
    if options.feature_scale is not None and not options.feature_scale > 0:
        raise ConfigError(f"--feature-scale is {options.feature_scale}; it must be above 0")
    if options.kind == "features":
        return _features_command(options)
    from caplore.data.importers.checking import check, summary
    from caplore.data.importers.splitting import ByHash
    from caplore.data.importers.writing import REPORT, refuse_existing, write

    refuse_existing(options.to)
    source = read(options.kind, options.path, options.media)
    by_hash = None
    if options.resplit or not any(item.split for item in source.items):
        by_hash = ByHash(options.val, options.test, options.seed)
        source.notes["splits_by"] = (
            f"hash of the ids, seed {options.seed}, val {options.val}, test {options.test}"
        )
    features = feature_files(options)
    needs_media = source.media != "none" and features is None
    checked = check(source, look=glance, needs_media=needs_media, by_hash=by_hash)
    print(summary(checked))
    if checked.inputs and not any(item.split == "train" for item in checked.inputs):
        print(
            "\nno input is in the split train, so nothing can be trained on: --resplit splits all of them anew"
        )
    dataset = write(checked, options.to, copy=options.copy)
    print(f"\n{dataset.path}: {len(dataset.inputs):,} inputs; all that was found: {dataset.path / REPORT}")
    if features is not None:
        _add_features(dataset, features)
    elif dataset.media != "none":
        print(f"next: caplore features {dataset.path}")
    return 0


def read(kind: str, path: Path, media: Path | None) -> "Source":
    """The reader of this kind, called."""
    if not path.exists():
        raise InputError(f"{path} is not there", fix="check the path")
    if media is not None and not media.is_dir():
        raise InputError(f"--media {media} is not a folder")
    from caplore.data.importers.coco import read_coco
    from caplore.data.importers.flickr import read_flickr8k
    from caplore.data.importers.own import read_own
    from caplore.data.importers.proxy import read_coco_proxy
    from caplore.data.importers.tgif import read_tgif
    from caplore.data.importers.video import read_msrvtt, read_msvd

    match kind:
        case "coco" | "flickr30k":
            return read_coco(path, media, name=kind)
        case "flickr8k" if path.is_file() or (path / "dataset_flickr8k.json").is_file():
            return read_coco(path, media, name=kind)
        case "flickr8k":
            return read_flickr8k(path, media)
        case "tgif":
            return read_tgif(path, media)
        case "msvd":
            return read_msvd(path, media)
        case "msrvtt":
            return read_msrvtt(path, media)
        case "coco-proxy":
            return read_coco_proxy(path)
        case _:
            return read_own(path, media)


PACKS = {  # features that are found by themselves: file names inside the folder
    "flickr8k": FeatureFiles(
        (Path("lite2_global_1280.f16.npy"), Path("lite2_grid_9x192.f16.npy")),
        Path("rows.txt"),
        "lite2",
        encoder="efficientnet-lite2",
    ),
    "msvd": FeatureFiles(
        (Path("mean_4096.f16.npy"), Path("segments_8x512.f16.npy")), Path("captions.json"), "vgg"
    ),
    "coco-proxy": FeatureFiles(
        (Path("caption_embedding_384.i8.npy"),), Path("captions.jsonl.gz"), "minilm", scale=1 / 399.533
    ),
}


def feature_files(options: ImportOptions) -> FeatureFiles | None:
    """The features that were named, else those that lie in a pack we know."""
    if options.features:
        name = options.feature_name or options.features[0].stem
        return FeatureFiles(options.features, options.feature_rows, name, options.feature_scale)
    pack = PACKS.get(options.kind)
    if (
        pack is None
        or pack.rows is None
        or not all((options.path / f).is_file() for f in (*pack.files, pack.rows))
    ):
        return None
    files = tuple(options.path / file for file in pack.files)
    return replace(pack, files=files, rows=options.path / pack.rows, name=options.feature_name or pack.name)


def glance(path: Path, media: "Media") -> "Finding | None":
    """What the first bytes of a file say is wrong with it."""
    from caplore.data.importers.source import Finding
    from caplore.features.decoding import Undecodable, count_frames

    try:
        frames = count_frames(path, is_clip=media == "clip")
    except Undecodable as reason:
        return Finding("unreadable-file", "", str(reason))
    return Finding("still", "", "1 frame") if media == "clip" and frames == 1 else None


def _features_command(options: ImportOptions) -> int:
    from caplore.data.dataset import open_dataset

    dataset = open_dataset(options.to)
    files = (options.path, *options.features)
    name = options.feature_name or options.path.stem
    _add_features(dataset, FeatureFiles(files, options.feature_rows, name, options.feature_scale))
    return 0


def _add_features(dataset: "Dataset", given: FeatureFiles) -> None:
    from caplore.features.importing import import_features, open_table, read_ids
    from caplore.features.store import folder_name

    rows = None if given.rows is None else read_ids(given.rows)
    tables = [open_table(file, rows) for file in given.files]
    encoder = _proven_encoder(dataset, given.encoder, tables) if given.encoder else None
    ids = [item.id for item in dataset.inputs]
    to = dataset.store_path(folder_name(given.name))
    store, left = import_features(to, ids, tables, name=given.name, scale=given.scale, encoder=encoder)
    shapes = ", ".join(f"{kind} {' x '.join(map(str, shape))}" for kind, shape in store.shapes.items())
    print(f"{store.path}: {len(store.ids):,} inputs ({shapes})")
    if left:
        print(f"{len(left):,} inputs are not in the features: {_first(left)}; all of them: {store.bad}")


def _proven_encoder(dataset: "Dataset", name: str, tables: "Sequence[Table]") -> "Encoder | None":
    """The encoder, if it gives the imported vectors again on some inputs whose files are there."""
    from caplore.features.choice import encoder_named
    from caplore.features.importing import agreement

    pooled = next(table for table in tables if table.kind == "pooled")
    known = set(pooled.ids)
    files = {i.id: dataset.media_path(i) for i in dataset.inputs if i.file is not None and i.id in known}
    try:
        encoder = encoder_named(name, grid=0)
    except MissingError as error:
        print(f"not checked whether {name} made these features: {error}")
        return None
    lowest = agreement(pooled, encoder, dict(itertools.islice(files.items(), PROVEN_ON)))
    if lowest < SAME:
        print(f"{name} does not give these features (cosine {lowest:.3f}): new pictures cannot be captioned")
        return None
    print(
        f"{name} gives the same pooled features on {min(PROVEN_ON, len(files))} pictures (cosine {lowest:.4f})"
    )
    return encoder


def _first(names: Sequence[str], examples: int = 3) -> str:
    return ", ".join(names[:examples]) + (", ..." if len(names) > examples else "")


# caplore data check


def check_command(argv: list[str]) -> int:
    options = parse(CheckOptions, argv, prog="caplore data check", description=CheckOptions.__doc__ or "")
    from caplore.data.dataset import open_dataset
    from caplore.data.importers.checking import KINDS, NOTICED, check, report, summary
    from caplore.data.importers.source import Finding, Item, Source
    from caplore.features.store import open_store
    from caplore.files import write_json

    dataset = open_dataset(options.data)
    items = [Item(i.id, i.split, i.file, list(i.captions), "captions.jsonl") for i in dataset.inputs]
    source = Source(dataset.name, dataset.media, items, dataset.path)
    look = decode_whole if options.deep else glance
    checked = check(source, look=look, needs_media=any(item.file for item in items))
    for name in dataset.encoders:
        store = open_store(dataset.store_path(name))
        checked.findings += [Finding("no-features", i.id, name) for i in dataset.inputs if i.id not in store]
    features = ", ".join(dataset.encoders) or "none"
    print(f"{dataset.path}: {dataset.name} {dataset.version}, media: {dataset.media}, features: {features}")
    print(summary(checked, imported=False))
    if options.report is not None:
        write_json(options.report, report(checked))
        print(f"\nall that was found: {options.report}")
    return int(any(KINDS[finding.kind][1] != NOTICED for finding in checked.findings))


def decode_whole(path: Path, media: "Media") -> "Finding | None":
    """What decoding all of a file says is wrong with it."""
    from caplore.data.importers.source import Finding
    from caplore.features.decoding import ClipSampling, Preprocessing, Undecodable, decode

    seen = glance(path, media)
    if seen is not None:
        return seen
    try:
        decode(path, Preprocessing(32, 32), ClipSampling() if media == "clip" else None)
    except Undecodable as reason:
        return Finding("unreadable-file", "", str(reason))
    return None
