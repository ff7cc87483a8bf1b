"""The truth about an input of a made world: the complete set Y of its correct captions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from caplore.data.dataset import Dataset
from caplore.data.scenes.grammar import Frame, Phrase, frames_of
from caplore.data.scenes.world import Scene
from caplore.errors import InputError
from caplore.files import digest_of_file, read_json, read_jsonl

VERSION = "1"  # of the world and its grammar; a data set of another version is told from another truth


@dataclass(frozen=True)
class Truth:
    """What may be said of one input; a caption is a tuple of words, lower case, without punctuation."""

    id: str
    scene: Scene

    @property
    def count(self) -> int:
        """|Y|, without enumerating."""
        return sum(frame.count for frame in _frames(self.scene))

    def captions(self) -> list[Phrase]:
        """Y: every correct caption once, always in the same order; those of the last 256 scenes are kept."""
        return list(_captions(self.scene))

    def preference(self) -> list[float]:
        """How often people say each of `captions()`; sums to 1. The references are drawn from it."""
        return [weight for frame in _frames(self.scene) for weight in frame.weights()]

    def contains(self, words: Sequence[str]) -> bool:
        """Whether these words are a correct caption, decided by the grammar, without enumerating."""
        caption = tuple(words)
        return any(frame.matches(caption) for frame in _frames(self.scene))


@lru_cache(maxsize=1024)
def _frames(scene: Scene) -> tuple[Frame, ...]:
    return frames_of(scene)


@lru_cache(maxsize=256)
def _captions(scene: Scene) -> tuple[Phrase, ...]:
    return tuple(caption for frame in _frames(scene) for caption in frame.captions())


def load_truths(dataset: Dataset, ids: Sequence[str]) -> list[Truth]:
    """The truth of each of these inputs, in this order; the data set must be a made world of this version."""
    path = dataset.path / "scenes.jsonl"
    if not path.is_file():
        raise InputError(
            f"{dataset.path} ({dataset.name}) has no scenes.jsonl: its complete truth is not known",
            fix="exact figures are for made worlds only; caplore data scenes --to DIR makes one",
        )
    if dataset.version != VERSION:
        raise InputError(
            f"{dataset.path} is version {dataset.version} of the made world; this caplore has {VERSION}",
            fix=f"caplore data scenes --to {dataset.path} --replace, or the caplore that made it",
        )
    if read_json(dataset.path / "dataset.json").get("scenes_sha256") not in (None, digest_of_file(path)):
        raise InputError(
            f"{path} is not the file that dataset.json describes: its checksum differs",
            fix=f"caplore data scenes --to {dataset.path} --replace",
        )
    rows = {str(row.get("id")): (number, row) for number, row in read_jsonl(path, "scenes")}
    missing = [name for name in ids if name not in rows]
    if missing:
        raise InputError(
            f"{path} has no scene for {len(missing)} of {len(ids)} inputs (first: {missing[0]!r})"
        )
    truths = []
    for name in ids:
        number, row = rows[name]
        try:
            truths.append(Truth(name, Scene.from_record(row)))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}, line {number} is not a scene ({error})") from None
    return truths
