"""`caplore caption FILES --model RUN`: captions for pictures and clips, on the terminal or in a file."""

import contextlib
import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import tyro

from caplore.cli.parsing import parse
from caplore.errors import ConfigError, InputError

if TYPE_CHECKING:
    from caplore.evaluation.captioning import Captioned, Decoder, Plan, Skipped

Format = Literal["text", "jsonl", "csv", "coco"]
SUFFIXES: dict[str, Format] = {".txt": "text", ".jsonl": "jsonl", ".csv": "csv", ".json": "coco"}
SHOWN = 20  # skipped files on the terminal; a file has them all
DRAWS = 20  # candidates that consensus chooses among, where they are drawn


@dataclass(frozen=True)
class Options:
    """Caption pictures and clips with a run.

    caplore caption photo.jpg --model runs/own-sle
    caplore caption photos --model runs/own-sle -n 5 --decoder sample --distinct --out captions.jsonl

    Files that cannot be read are skipped, and listed with the reason. See docs/caption.md.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES ...")]
    """Pictures and clips; a folder stands for all that are in it."""
    model: Path
    """The run folder (caplore train)."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1
    """Captions per file."""
    decoder: Literal["beam", "sample", "diverse", "greedy"] = "beam"
    """beam: the most probable; sample: drawn; diverse: beams that avoid each other's words; greedy: one, fast."""
    width: int | None = None
    """beam, diverse: width of the search. Default: 5, or n if that is more; diverse: n."""
    strength: float | None = None
    """diverse: what a word costs that another beam has just taken, in nats. Default: 0.5."""
    temperature: float | None = None
    """sample: below 1 likelier words are drawn more often, above 1 less often. Default: 1."""
    top_k: int | None = None
    """sample: only the k likeliest words. Default: all."""
    top_p: float | None = None
    """sample: only the likeliest words that make up this share. Default: 1, all."""
    distinct: bool = False
    """No caption twice: more are drawn or searched until there are n."""
    rank: Literal["decoder", "consensus"] = "decoder"
    """consensus: first the caption that the model's other captions agree with (minimum Bayes risk)."""
    candidates: int | None = None
    """Captions to choose n from. Default: n; with --rank consensus the beam's width, or 20 draws."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Write to this file: .jsonl, .csv, .txt, or .json for COCO results."""
    format: Format | None = None
    """Default: by the name of --out; on the terminal, the captions under each file's name."""
    seed: int = 0
    """Seed of drawn captions."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    workers: int | None = None
    """Decoding threads; default: one per core."""

    def __post_init__(self) -> None:
        _require("n", self.n, self.n >= 1, "1 or more")
        for knob in ("width", "candidates", "workers"):
            value = getattr(self, knob)
            _require(knob, value, value is None or value >= 1, "1 or more")
        for knob, kinds in KNOBS.items():
            value = getattr(self, knob)
            if value is not None and self.decoder not in kinds:
                raise ConfigError(
                    f"--{_dashed(knob)} is for --decoder {' or '.join(kinds)}, not for {self.decoder}",
                    fix=f"--decoder {kinds[0]}, or leave --{_dashed(knob)} out",
                )


KNOBS = {  # which decoder has which knob
    "width": ("beam", "diverse"),
    "strength": ("diverse",),
    "temperature": ("sample",),
    "top_k": ("sample",),
    "top_p": ("sample",),
}


def _dashed(knob: str) -> str:
    return knob.replace("_", "-")


def _require(knob: str, value: Any, holds: bool, needs: str) -> None:
    if not holds:
        raise ConfigError(f"--{_dashed(knob)} is {value}; it needs to be {needs}")


def main(argv: list[str]) -> int:
    options = parse(Options, argv, prog="caplore caption", description=Options.__doc__ or "")
    if not options.files:
        raise ConfigError("no file was named", fix="caplore caption photo.jpg --model RUN")
    style = _format(options)
    from caplore.evaluation.captioning import find_files, load_file_captioner

    plan = _plan(options)
    files, skipped = find_files(options.files)
    if not files:
        raise InputError(
            f"{skipped[0].path}: {skipped[0].reason}", fix="name pictures, clips or a folder of them"
        )
    captioner = load_file_captioner(options.model, options.device)
    if plan.rank == "consensus":
        why = f" ({captioner.agreement.why})" if captioner.agreement.why else ""
        print(f"ranked by consensus: {captioner.agreement.signature}{why}", file=sys.stderr)
    tally = Tally(len(files), skipped)
    write = FORMATS[style] if style else _page(alone=len(files) == 1)
    with _progress_bar(len(files), shown=options.out is not None) as advance:
        found = tally.captioned(captioner.caption(files, plan, workers=options.workers), advance)
        if options.out is None:
            write(found, sys.stdout)
        else:
            _write_file(options.out, found, write)
    if options.out is not None:
        print(f"wrote {options.out}: {tally.captions} captions of {tally.good} files", file=sys.stderr)
    _list_skipped(tally.skipped, SHOWN if options.out else None)
    if options.out is not None:
        _keep_skipped(tally.skipped, options.out)
    return 0


# What was asked for


def _format(options: Options) -> Format | None:
    """The format of what is written; None is the terminal's."""
    out = options.out
    if out is not None and out.is_dir():
        raise InputError(f"--out {out} is a folder", fix=f"name a file: --out {out / 'captions.jsonl'}")
    if options.format is not None or out is None:
        return options.format
    if out.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"--out {out}: its name says no format", fix=f"end it in {', '.join(SUFFIXES)}, or give --format"
        )
    return SUFFIXES[out.suffix.lower()]


def _plan(options: Options) -> "Plan":
    from caplore.evaluation.captioner import Beam, Draw
    from caplore.evaluation.captioning import Plan

    decoder, most = _decoder(options), options.n
    if options.rank == "consensus":
        usual = decoder.width if isinstance(decoder, Beam) else DRAWS if isinstance(decoder, Draw) else 0
        most = max(options.n, usual)
    candidates = options.candidates or most
    if candidates < options.n:
        raise ConfigError(
            f"--candidates {candidates} are too few to choose -n {options.n} captions from",
            fix=f"--candidates {options.n} or more",
        )
    if options.rank == "consensus" and candidates < 2:
        raise ConfigError(
            "--rank consensus compares captions, and here is only one", fix="-n 5, or --candidates 20"
        )
    return Plan(
        decoder=decoder,
        distinct=options.distinct,
        rank=options.rank,
        candidates=candidates,
        seed=options.seed,
    )


def _decoder(options: Options) -> "Decoder":
    from caplore.evaluation.captioner import Beam, Draw
    from caplore.evaluation.captioning import Diverse, Greedy

    n = options.n
    match options.decoder:
        case "greedy":
            if max(n, options.candidates or 1) > 1:
                raise ConfigError(
                    "--decoder greedy gives one caption", fix="--decoder beam, sample or diverse"
                )
            return Greedy()
        case "beam":
            width = options.width or max(5, n)
            if width < n:
                raise ConfigError(f"--width {width} cannot give -n {n} captions", fix=f"--width {n} or more")
            return Beam(width=width, n=n)
        case "diverse":
            width = options.width or n
            if width % n:
                raise ConfigError(
                    f"--width {width} cannot be shared out evenly to {n} captions", fix=f"--width {2 * n}"
                )
            strength = 0.5 if options.strength is None else options.strength
            _require("strength", strength, strength >= 0, "0 or more")
            return Diverse(n=n, width=width, strength=strength)
        case "sample":
            temperature = 1.0 if options.temperature is None else options.temperature
            top_k, top_p = options.top_k or 0, 1.0 if options.top_p is None else options.top_p
            _require("temperature", temperature, 0 < temperature < float("inf"), "above 0")
            _require("top-k", top_k, top_k >= 0, "0 or more")
            _require("top-p", top_p, 0 < top_p <= 1, "above 0 and at most 1")
            return Draw(n=n, temperature=temperature, top_k=top_k, top_p=top_p)


# What is written

Write = Callable[[Iterable["Captioned"], TextIO], None]


def _page(*, alone: bool) -> Write:
    """For people: one file's captions as they are; of several files, each under its name."""

    def write(found: "Iterable[Captioned]", out: TextIO) -> None:
        for one in found:
            if not alone:
                out.write(f"{_name(one)}\n")
            out.writelines(f"{'' if alone else '  '}{caption.text}\n" for caption in one.captions)
            out.flush()

    return write


def write_text(found: "Iterable[Captioned]", out: TextIO) -> None:
    """file<tab>caption, a line per caption."""
    for one in found:
        name = re.sub(r"[\t\r\n]", " ", _name(one))
        out.writelines(f"{name}\t{caption.text}\n" for caption in one.captions)


def write_jsonl(found: "Iterable[Captioned]", out: TextIO) -> None:
    """A line per file: id, file, and its captions with log-probability (and consensus)."""
    for one in found:
        captions = []
        for caption in one.captions:
            agreed = {} if caption.consensus is None else {"consensus": round(caption.consensus, 4)}
            captions.append({"caption": caption.text, "logprob": round(caption.logprob, 4), **agreed})
        row = {"id": one.file.id, "file": _name(one), "captions": captions}
        out.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_csv(found: "Iterable[Captioned]", out: TextIO) -> None:
    """A header, then a line per caption, the best first: id, file, rank, caption, logprob, consensus."""
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["id", "file", "rank", "caption", "logprob", "consensus"])
    for one in found:
        for rank, caption in enumerate(one.captions, start=1):
            agreed = "" if caption.consensus is None else round(caption.consensus, 4)
            table.writerow([one.file.id, _name(one), rank, caption.text, round(caption.logprob, 4), agreed])


def write_coco(found: "Iterable[Captioned]", out: TextIO) -> None:
    """COCO's results: [{"image_id": 42, "caption": "..."}, ...], a row per caption."""
    before = "[\n"
    for one in found:
        for caption in one.captions:
            row = {"image_id": image_id(one.file.id), "caption": caption.text}
            out.write(before + json.dumps(row, ensure_ascii=False))
            before = ",\n"
    out.write("\n]\n")


FORMATS: dict[Format, Write] = {
    "text": write_text,
    "jsonl": write_jsonl,
    "csv": write_csv,
    "coco": write_coco,
}


def image_id(name: str) -> int | str:
    """COCO's number of a picture: 42 for 000000000042 and COCO_val2014_000000000042; other names stay names."""
    found = re.fullmatch(r"(?:COCO_[a-z]+\d{4}_)?(\d{1,18})", name.rsplit("/", 1)[-1])
    return int(found[1]) if found else name


def _name(one: "Captioned") -> str:
    from caplore.evaluation.captioning import printable

    return printable(one.file.path)


def _write_file(path: Path, found: "Iterable[Captioned]", write: Write) -> None:
    from caplore.files import replacing

    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as out:
        write(found, out)


# What is said about it


class Tally:
    """Passes captions on and counts them; keeps what was skipped, and stops with an error where that was everything."""

    def __init__(self, files: int, skipped: "list[Skipped]") -> None:
        self.files, self.skipped = files, skipped
        self.good = self.captions = 0

    def captioned(
        self, found: "Iterable[Captioned | Skipped]", advance: Callable[[int], None]
    ) -> "Iterator[Captioned]":
        from caplore.evaluation.captioning import Captioned

        for one in found:
            if isinstance(one, Captioned):
                self.good += 1
                self.captions += len(one.captions)
                yield one
            else:
                self.skipped.append(one)
            advance(len(self.skipped))
        if not self.good:
            _list_skipped(self.skipped, SHOWN)
            raise InputError(f"none of the {self.files} files could be captioned")


def _list_skipped(skipped: "list[Skipped]", most: int | None) -> None:
    from caplore.evaluation.captioning import printable

    if skipped:
        print(f"skipped: {len(skipped)}", file=sys.stderr)
    for one in skipped[:most]:
        print(f"  {printable(one.path)}: {one.reason}", file=sys.stderr)
    if most is not None and len(skipped) > most:
        print("  ...", file=sys.stderr)


def _keep_skipped(skipped: "list[Skipped]", out: Path) -> None:
    """All of them beside the file that was written; a list of an earlier time goes."""
    from caplore.evaluation.captioning import printable
    from caplore.files import write_jsonl

    beside = out.with_name(out.name + ".skipped.jsonl")
    if skipped:
        write_jsonl(beside, ({"file": printable(one.path), "reason": one.reason} for one in skipped))
        print(f"  all of them: {beside}", file=sys.stderr)
    else:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def _progress_bar(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Files done, skipped and time left, on stderr; nothing where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[bad]} skipped"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("", total=total, bad=0)
        yield lambda bad: bar.update(task, advance=1, bad=bad)
