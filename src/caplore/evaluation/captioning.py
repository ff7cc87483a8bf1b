"""Files of yours -> captions: walk, decode, encode, caption, choose. A run folder is all that is needed.

    files -> frames -> features (the run's own encoder) -> candidates (a decoder) -> ranked, distinct, n of them

Everything streams: no more than a few batches of pictures are in memory, in whatever order of millions. What
cannot be captioned comes out as `Skipped`, with the reason, and stops nothing. Axes: images, samples, time.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from caplore.data.importers.own import CLIPS, PICTURES
from caplore.decoding import (
    Captions,
    Forbidding,
    beam,
    consensus,
    diverse_beam,
    first_of_its_kind,
    greedy,
    ranking,
    sample,
)
from caplore.decoding.sampling import Uniforms
from caplore.errors import InputError
from caplore.evaluation.captioner import Beam, Captioner, Draw, as_features, load_captioner
from caplore.features.choice import encoder_from
from caplore.features.encoder import Encoder
from caplore.features.encoding import Row, chunks, encode_files
from caplore.files import digest_of
from caplore.metrics.bleu import pairwise_bleu
from caplore.metrics.cider import CiderD
from caplore.metrics.ngrams import DocumentFrequencies
from caplore.metrics.signature import signature
from caplore.models.protocol import BOS, Features
from caplore.text.vocabulary import UNK, Vocabulary, pack
from caplore.training.examples import TokenLists, tokenised
from caplore.training.run import Run, open_run

BATCH_CPU, BATCH_GPU = 32, 256  # files captioned at once
DOUBLINGS = 5  # of the candidates, while an input has fewer distinct captions than wanted
REFERENCES_AT_ONCE = 4096  # inputs whose training captions are counted at once
NEEDED = ("architecture", "config", "data", "dataset", "encoder")  # of run.json


# What to say


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """The most probable word at each step: one caption."""

    kind: ClassVar[str] = "greedy"
    n: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class Diverse:
    """n beams that avoid each other's words, and the best caption of each."""

    kind: ClassVar[str] = "diverse"
    n: int = 5
    width: int = 5
    """All beams together: a multiple of n."""
    strength: float = 0.5
    """What a word costs that another beam has just taken, in nats."""


Decoder = Beam | Draw | Diverse | Greedy
BEAM = Beam()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to say of each file: the decoder's `n` captions, chosen as the rest says."""

    decoder: Decoder = BEAM
    distinct: bool = False
    """No caption twice; the decoder is asked for more until there are n of them, within reason."""
    rank: Literal["decoder", "consensus"] = "decoder"
    """consensus: by the expected similarity to the model's other captions (minimum Bayes risk)."""
    candidates: int = 0
    """Captions decoded per file, of which n are kept; 0 is n."""
    seed: int = 0
    """Of drawn captions; what is drawn for a file depends on it, the file's name and its features only."""

    def __post_init__(self) -> None:
        if self.candidates and self.candidates < self.decoder.n:
            raise ValueError(f"{self.candidates} candidates for {self.decoder.n} captions are too few")


@dataclass(frozen=True)
class Caption:
    """One caption; `consensus` where captions were ranked by it."""

    text: str
    logprob: float
    consensus: float | None = None


@dataclass(frozen=True)
class File:
    """A file to caption. `id` is its name without suffix (and its folders, where a folder was walked)."""

    path: Path
    id: str


@dataclass(frozen=True)
class Captioned:
    file: File
    captions: tuple[Caption, ...]


@dataclass(frozen=True)
class Skipped:
    path: Path
    reason: str


# The files


def find_files(given: Iterable[str | Path]) -> tuple[list[File], list[Skipped]]:
    """Files as they are named, folders as the pictures and clips in them (hidden ones aside), each once."""
    files: dict[str, File] = {}
    skipped: list[Skipped] = []
    for path in map(Path, given):
        inside = _walk(path, skipped) if path.is_dir() else [File(path, printable(Path(path.stem)))]
        if not inside:
            skipped.append(Skipped(path, "a folder without pictures or clips"))
        for file in inside:
            files.setdefault(os.path.abspath(file.path), file)
    often = Counter(file.id for file in files.values())
    unique = [f if often[f.id] == 1 else replace(f, id=printable(f.path)) for f in files.values()]
    return unique, skipped


def _walk(folder: Path, skipped: list[Skipped]) -> list[File]:
    def refused(error: OSError) -> None:
        skipped.append(Skipped(Path(error.filename), f"the folder cannot be read ({error.strerror})"))

    found = []
    for where, folders, names in os.walk(folder, onerror=refused):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(where, name)
            if not name.startswith(".") and path.suffix.lower() in PICTURES + CLIPS:
                found.append(File(path, printable(path.relative_to(folder).with_suffix(""))))
    return found


def printable(path: Path) -> str:
    """A path as text that any file and terminal takes: names that are no UTF-8 lose what is wrong with them."""
    return os.fsencode(path.as_posix()).decode("utf-8", errors="replace")


# Captions of files


@dataclass(frozen=True)
class FileCaptioner:
    """A run and the encoder it was trained with: files in, captions out."""

    captioner: Captioner
    encoder: Encoder

    def caption(
        self, files: Sequence[File], plan: Plan = Plan(), *, workers: int | None = None
    ) -> Iterator[Captioned | Skipped]:
        """Each file's captions, or why it has none, in the order of the files; `workers` threads decode."""
        size = BATCH_CPU if self.captioner.device.type == "cpu" else BATCH_GPU
        with closing(encode_files((file.path for file in files), self.encoder, workers=workers)) as encoded:  # type: ignore[type-var]
            rows = ((file, row) for file, (_, row) in zip(files, encoded, strict=True))
            for some in chunks(rows, size):
                yield from self._batch(some, plan)

    def _batch(self, rows: Sequence[tuple[File, Row | str]], plan: Plan) -> Iterator[Captioned | Skipped]:
        checked = [(file, row if isinstance(row, str) else _as_stored(row)) for file, row in rows]
        good = [(file, row) for file, row in checked if not isinstance(row, str)]
        said = iter(self._say([f for f, _ in good], _stacked([row for _, row in good]), plan) if good else [])
        for file, row in checked:
            if isinstance(row, str):
                yield Skipped(file.path, self._reason(file, row))
            else:
                yield Captioned(file, tuple(next(said)))

    def _reason(self, file: File, reason: str) -> str:
        is_clip = file.path.suffix.lower() in CLIPS and file.path.is_file()
        return "a clip, and this run was trained on pictures" if is_clip and not self.encoder.clip else reason

    def _say(self, files: Sequence[File], features: Features, plan: Plan) -> list[list[Caption]]:
        """n captions of each file. Where too few are distinct, those files are decoded again for twice as many."""
        n, count = plan.decoder.n, plan.candidates or plan.decoder.n
        said: list[list[Caption]] = [[] for _ in files]
        todo = list(range(len(files)))
        for _ in range(1 + DOUBLINGS if plan.distinct else 1):
            some = Features(*(None if f is None else f[todo].to(self.captioner.device) for f in features))
            found = self._decode(some, plan.decoder, count, [files[i].path.name for i in todo], plan.seed)
            for i, captions in zip(todo, self._chosen(found, plan), strict=True):
                said[i] = max(said[i], captions[:n], key=len)
            todo = [i for i in todo if len(said[i]) < n]
            count *= 2
            if not todo:
                break
        return said

    def _decode(
        self, features: Features, decoder: Decoder, count: int, names: Sequence[str], seed: int
    ) -> Captions:
        max_words = self.captioner.max_words
        match decoder:
            case Greedy():
                return greedy(self._speaker, features, max_words=max_words)
            case Draw(temperature=temperature, top_k=top_k, top_p=top_p):
                return sample(
                    self._speaker,
                    features,
                    samples=count,
                    max_words=max_words,
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    uniforms=_uniforms(names, count, max_words, seed),
                )
            case Beam(width=width, length_penalty=penalty):
                return beam(
                    self._speaker,
                    features,
                    width=max(width, count),
                    n=count,
                    max_words=max_words,
                    length_penalty=penalty,
                )
            case Diverse(n=n, width=width, strength=strength):
                return diverse_beam(
                    self._speaker,
                    features,
                    width=count * (width // n),
                    groups=count,
                    n=count,
                    max_words=max_words,
                    strength=strength,
                )

    @cached_property
    def _speaker(self) -> Forbidding:
        """The run's model without the unknown-word token, and without the empty caption."""
        words = len(self.captioner.vocabulary)
        return Forbidding(
            self.captioner.model, words, words=(BOS, UNK), endings=(BOS,), device=self.captioner.device
        )

    def _chosen(self, found: Captions, plan: Plan) -> list[list[Caption]]:
        """Every caption that there is (a beam may have had too few), best first where captions are ranked."""
        kept = found.logprob > -torch.inf
        if plan.distinct:
            kept &= first_of_its_kind(found.tokens)
        agreed = None
        if plan.rank == "consensus":
            # Samples stand for the model's distribution as they come; the captions of a beam have to be weighed.
            weight = None if isinstance(plan.decoder, Draw) else found.logprob.softmax(dim=1)
            agreed = consensus(self.agreement.among(found.tokens), weight)
            order = ranking(agreed)
            found, kept, agreed = found.select(order), kept.gather(1, order), agreed.gather(1, order)
        return self._as_words(found, kept, agreed)

    def _as_words(
        self, found: Captions, kept: Tensor, agreed: Float[Tensor, "images samples"] | None
    ) -> list[list[Caption]]:
        scores = torch.full_like(found.logprob, torch.nan) if agreed is None else agreed
        columns = (found.tokens, found.logprob, scores, kept)
        images = zip(*(part.tolist() for part in columns), strict=True)
        text = self.captioner.vocabulary.text
        return [
            [
                Caption(text(ids), logprob, None if agreed is None else score)
                for ids, logprob, score, is_kept in zip(*samples, strict=True)
                if is_kept
            ]
            for samples in images
        ]

    @cached_property
    def agreement(self) -> "Agreement":
        """CIDEr-D with the rarity of words in the run's training captions; BLEU where those are not at hand."""
        captioner = self.captioner
        captions = training_captions(captioner.run)
        if captions is None:
            name = signature("BLEU", n=4, level="sentence", smooth="coco")
            return Agreement(
                pairwise_bleu_4, name, f"the run's data set is not at {captioner.run.head()['data']}"
            )
        df = frequencies(captions, captioner.vocabulary, captioner.max_words).to(captioner.device)
        metric = CiderD(df)
        return Agreement(lambda tokens: cider_among(metric, tokens), metric.signature)


def load_file_captioner(run: Path, device: str = "auto") -> FileCaptioner:
    """The run's best model and its encoder; refused where the features cannot be made for new files."""
    head = open_run(run).head()
    lost = [key for key in NEEDED if key not in head]
    if lost:
        raise InputError(f"{run}/run.json has no {lost[0]!r}: it is not as caplore train wrote it")
    try:
        encoder = encoder_from(head["encoder"], device=device)
    except InputError as error:
        raise InputError(f"{run} cannot caption new files: {error.what}", fix=error.fix) from None
    captioner = load_captioner(run, device)
    _try_out(captioner, encoder)
    return FileCaptioner(captioner, encoder)


@torch.no_grad()
def _try_out(captioner: Captioner, encoder: Encoder) -> None:
    """A black picture through both: features that were partly imported show here, not after an hour."""
    frames, size = 1 if encoder.clip is None else encoder.clip.frames, encoder.preprocessing
    black = torch.zeros(frames, size.height, size.width, 3, dtype=torch.uint8)
    seen = {kind: value.to(captioner.device).float() for kind, value in encoder.inputs(black).items()}
    try:
        captioner.model.begin(as_features(seen))
    except InputError as error:
        raise InputError(
            f"{captioner.run.path} cannot caption new files: {error.what} (from the encoder {encoder.name!r}); "
            "what it was trained on was computed elsewhere",
            fix=f"caplore features DATA --encoder {encoder.name} --name all, and train with --encoder all",
        ) from None


def caption_files(
    files: Iterable[str | Path] | str | Path,
    *,
    model: str | Path,
    decoder: Decoder = BEAM,
    distinct: bool = False,
    rank: Literal["decoder", "consensus"] = "decoder",
    candidates: int = 0,
    seed: int = 0,
    device: str = "auto",
) -> Iterator[Captioned | Skipped]:
    """`caplore caption` as a call: captions of files and folders, one after the other, the skipped among them."""
    found, skipped = find_files([files] if isinstance(files, str | Path) else files)
    plan = Plan(decoder=decoder, distinct=distinct, rank=rank, candidates=candidates, seed=seed)
    captioner = load_file_captioner(Path(model), device)

    def stream() -> Iterator[Captioned | Skipped]:
        yield from skipped
        yield from captioner.caption(found, plan)

    return stream()


def _as_stored(row: Row) -> Row | str:
    """Features rounded as a feature store rounds them, so that a file gets the captions its data set would give it."""
    stored = {kind: value.half() for kind, value in row.items()}
    if not all(value.isfinite().all() for value in stored.values()):
        return "the encoder gave numbers that are not finite in 16 bits"
    return {kind: value.float() for kind, value in stored.items()}


def _stacked(rows: Sequence[Row]) -> Features:
    return as_features({kind: torch.stack([row[kind] for row in rows]) for kind in rows[0]})


def _uniforms(names: Sequence[str], samples: int, max_words: int, seed: int) -> Uniforms:
    """A stream of chance for each file, from its name: what is drawn does not depend on the files around it."""

    def stream(name: str) -> Float[Tensor, "time samples"]:
        rng = torch.Generator().manual_seed(int(digest_of(str(seed), os.fsencode(name)), 16) >> 1)
        return torch.rand(max_words, samples, generator=rng)

    words = iter(torch.stack([stream(name) for name in names], dim=1))  # time, images, samples
    return lambda rows: next(words).flatten()


# Which caption do the others agree with?


@dataclass(frozen=True)
class Agreement:
    """How alike the captions of an image are, and the name of the measure."""

    among: Callable[[Int[Tensor, "images samples time"]], Float[Tensor, "images samples samples"]]
    signature: str
    why: str | None = None
    """Why it is not the reward's."""


def pairwise_bleu_4(tokens: Int[Tensor, "images samples time"]) -> Float[Tensor, "images samples samples"]:
    return pairwise_bleu(tokens, orders=(1, 2, 3, 4), count_eos=True)


def cider_among(
    metric: CiderD, tokens: Int[Tensor, "images samples time"]
) -> Float[Tensor, "images samples samples"]:
    """[i, j, k]: caption j, were caption k the reference."""
    there = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
    return metric.similarity(tokens, metric.prepare(tokens, there))


def training_captions(run: Run) -> TokenLists | None:
    """The captions the run was trained on, as words; None where its data set is not there or is another one now."""
    try:
        dataset = run.dataset()
    except InputError:
        return None
    same = dataset.checksum == run.head()["dataset"]["checksum"]
    return tokenised(dataset, "train") if same else None


def frequencies(captions: TokenLists, words: Vocabulary, max_words: int) -> DocumentFrequencies:
    """Of n-grams in the training captions, the end counted as a word, as in the reward."""

    def part(some: TokenLists) -> tuple[Tensor, Tensor]:
        refs = torch.zeros(len(some), max(map(len, some)), max_words, dtype=torch.long)
        there = torch.zeros(refs.shape[:2], dtype=torch.bool)
        for row, of_one in enumerate(some):
            refs[row, : len(of_one)] = pack([words.encode(caption) for caption in of_one], max_words)
            there[row, : len(of_one)] = True
        return refs, there

    described = [of_one for of_one in captions if of_one]
    return DocumentFrequencies.from_chunks(
        lambda: map(part, chunks(described, REFERENCES_AT_ONCE)), vocab=len(words), count_eos=True
    )
