"""METEOR by the original program, for those who want proof: the same counts and scores from meteor-1.5.jar.

It is called as coco-caption calls it (English, with normalisation) and fed its own protocol: a line SCORE per
caption is answered by counts, one line EVAL with all of them by the score of each and of the corpus.
"""

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caplore.errors import CaploreError, MissingError
from caplore.metrics.java import end_process, find_java, reason
from caplore.metrics.meteor import COLUMNS, SIGNATURE
from caplore.metrics.meteor.tables import SETUP, program_jar

JAVA_SIGNATURE = SIGNATURE.replace("METEOR|", "METEOR|by:jar|", 1)
HEAP_GIB = 2.0

Tokens = Sequence[str]


class ByJar(NamedTuple):
    """What the program says of some captions."""

    counts: NDArray[np.int32]
    """[captions, COLUMNS], as caplore counts."""
    scores: NDArray[np.float64]
    corpus: float


def meteor_by_jar(candidates: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> ByJar:
    """Counts and score of each caption against its references, and of all together."""
    jar = program_jar()
    if not jar.is_file():
        raise MissingError(f"METEOR's program is not set up (looked for {jar})", fix=SETUP)
    flags = find_java().flags(heap_gib=HEAP_GIB)
    command = [find_java().path, *flags, "-jar", jar, "-", "-", "-stdio", "-l", "en", "-norm"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            answers = _ask(process.stdin, process.stdout, _questions(candidates, references), len(candidates))
            line = " ||| ".join(["EVAL", *answers])
            values = [
                float(x) for x in _ask(process.stdin, process.stdout, iter([line]), len(candidates) + 1)
            ]
        except (OSError, ValueError, EOFError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)  # it may still be saying why
            log.seek(0)
            said = reason(log.read().decode("utf-8", "replace"))
            raise CaploreError(f"METEOR's program stopped before it had answered: {said}") from None
        finally:
            end_process(process)
            for pipe in (process.stdout, process.stdin):
                with contextlib.suppress(OSError):
                    pipe.close()
    return ByJar(_counts(answers), np.array(values[:-1]), values[-1])


def _questions(candidates: Iterable[Tokens], references: Iterable[Sequence[Tokens]]) -> Iterator[str]:
    for candidate, its_references in zip(candidates, references, strict=True):
        sentences = [" ".join(tokens).replace("|||", "") for tokens in (*its_references, candidate)]
        yield " ||| ".join(["SCORE", *sentences])


def _ask(questions: IO[bytes], answers: IO[bytes], lines: Iterator[str], count: int) -> list[str]:
    """Write all lines while reading as many answers: neither side's pipe may fill up."""

    def write() -> None:
        with contextlib.suppress(OSError):  # the program has gone: the reader sees the end of its answers
            for line in lines:
                questions.write(line.encode() + b"\n")
            questions.flush()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    found = []
    for _ in range(count):
        line = answers.readline()
        if not line:
            raise EOFError
        found.append(line.decode().strip())
    writer.join()
    return found


def _counts(answers: Sequence[str]) -> NDArray[np.int32]:
    """The program's columns end with two totals; it forgets the one chunk of a caption that is its reference later."""
    rows = np.array([[float(x) for x in answer.split()] for answer in answers]).reshape(-1, len(COLUMNS) + 2)
    counts = rows[:, : len(COLUMNS)].astype(np.int32)
    whole = (counts[:, 0] == counts[:, 4:20:2].sum(1)) & (counts[:, 1] == counts[:, 5:20:2].sum(1))
    counts[whole & (counts[:, 20] == 1), 20] = 0
    return counts
