"""caplore doctor: what is installed, what works (each thing is tried), what is missing and how to get it."""

import importlib.metadata
import io
import os
import platform
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from caplore.cli.parsing import parse
from caplore.cli.terminal import WIDEST, page_width
from caplore.errors import CaploreError, MissingError

NAME = 14
ABOUT = """Try everything caplore can use, and say what to type for what is missing.

Nothing is downloaded and nothing is kept. Ends with 2 when something that every
command needs does not work, else with 0: what is only missing is yours to add."""


@dataclass(frozen=True)
class Options:
    slow: bool = False
    """Also start SPICE on two captions (about ten seconds)."""


class Finding(NamedTuple):
    """One thing that was tried. `fix` is what to type when it is not there or does not work."""

    name: str
    state: Literal["works", "missing", "broken"]
    detail: str
    fix: str | None = None


class Check(NamedTuple):
    """A thing to try: `trial` returns what worked, or raises; `needed` by every command or by a few."""

    name: str
    trial: Callable[[], str]
    needed: bool = False


def main(argv: list[str]) -> int:
    options = parse(Options, argv, prog="caplore doctor", description=ABOUT)
    tried = checks(slow=options.slow)
    findings = [examine(check) for check in tried]
    print("\n".join(page(findings, page_width())))
    needed = {check.name for check in tried if check.needed}
    return 2 if any(f.state != "works" and f.name in needed for f in findings) else 0


def examine(check: Check) -> Finding:
    """Whatever a trial raises is a finding; finding it is what this command is for."""
    try:
        return Finding(check.name, "works", check.trial())
    except MissingError as error:
        return Finding(check.name, "missing", error.what, error.fix)
    except CaploreError as error:
        return Finding(check.name, "broken", error.what, error.fix)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:200]
        return Finding(check.name, "broken", f"{type(error).__name__}: {first}")


def page(findings: Iterable[Finding], width: int = WIDEST) -> list[str]:
    """The findings by state."""
    found = list(findings)
    lines = textwrap.wrap(_machine(), width, subsequent_indent="  ")
    for state, title in (
        ("works", "works (each was tried)"),
        ("missing", "missing (add what you want to use)"),
        ("broken", "broken"),
    ):
        rows = [finding for finding in found if finding.state == state]
        if rows:
            lines += ["", title]
        for row in rows:
            lines += _wrapped(f"  {row.name:<{NAME}}", row.detail, width)
            if row.fix is not None:
                lines += _wrapped(" " * (NAME + 2) + "fix: ", row.fix, width)
    return lines


def _wrapped(start: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    ) or [start]


def _machine() -> str:
    from caplore import __version__
    from caplore.metrics.java import memory_gib

    return (
        f"caplore {__version__} | Python {platform.python_version()} | {platform.system()} {platform.machine()} | "
        f"{os.cpu_count()} cores, {memory_gib():.0f} GiB"
    )


def checks(*, slow: bool) -> list[Check]:
    return [
        Check("packages", _packages, needed=True),
        Check("torch", _torch, needed=True),
        Check("GPU", _gpu),
        Check("compiled", _compiled),
        Check("pictures", _pictures, needed=True),
        Check("videos", _videos),
        Check("encoders", _encoder),
        Check("scores", _scores, needed=True),
        Check("METEOR", _meteor),
        Check("Java", _java),
        Check("SPICE", _spice_run if slow else _spice),
        Check("setup", _setup),
        Check("cache", _cache, needed=True),
        Check("TensorBoard", _tensorboard),
    ]


def _packages() -> str:
    """Every package that caplore declares is there, not older than declared."""
    wrong, count = [], 0
    try:
        lines = importlib.metadata.requires("caplore") or []
    except importlib.metadata.PackageNotFoundError:
        raise MissingError(
            "caplore runs from a folder that is not installed", fix="pip install -e ."
        ) from None
    for line in lines:
        declared = re.match(r"([\w.-]+).*?>=([\d.]+)", line)
        if declared is None or "extra ==" in line:
            continue
        count += 1
        name, oldest = declared.groups()
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{name} is not installed")
            continue
        if _numbers(version) < _numbers(oldest):
            wrong.append(f"{name} is {version}, older than {oldest}")
    if wrong:
        raise MissingError("; ".join(wrong), fix="pip install --upgrade caplore")
    return f"the {count} that caplore needs are installed, none too old"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def _torch() -> str:
    import torch

    if not torch.equal(torch.ones(2, 3) @ torch.ones(3, 2), torch.full((2, 2), 3.0)):
        raise RuntimeError("2 x 3 by 3 x 2 is not what it should be")
    return f"{torch.__version__}, {torch.get_num_threads()} threads"


def _gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda
        raise MissingError(
            "torch sees no CUDA device" + ("" if built else " (this torch is built for the CPU)"),
            fix="nothing, if this machine has none: everything runs on the CPU",
        )
    device = torch.device("cuda")
    torch.ones(64, 64, device=device).matmul(torch.ones(64, 64, device=device)).sum().item()
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"CUDA {torch.version.cuda}: {', '.join(names)}"


def _compiled() -> str:
    """The compiled twins, which make scoring fast and change no number."""
    from caplore.native import MODULES, native

    if os.environ.get("CAPLORE_NATIVE") == "0":
        raise MissingError("switched off: scores are the same, and slower", fix="unset CAPLORE_NATIVE")
    lost = [name for name in MODULES if native(name) is None]
    if lost:
        raise MissingError(
            f"not built from these sources: {', '.join(lost)}; scores are the same, and slower",
            fix="install a C++ compiler (g++ or clang) if there is none, then install caplore again",
        )
    return "tokeniser, counts and METEOR's alignment"


def _pictures() -> str:
    from PIL import Image, __version__

    from caplore.features.decoding import Preprocessing, decode

    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.jpg", "a.png", "a.gif", "a.webp"):
            Image.new("RGB", (8, 8), "red").save(Path(folder) / name)
            decode(Path(folder) / name, Preprocessing(8, 8))
    return f"Pillow {__version__}: reads JPEG, PNG, GIF and WebP"


def _videos() -> str:
    try:
        import av
    except ImportError:
        raise MissingError(
            "PyAV is not installed; GIFs work, mp4 and its like do not", fix="pip install 'av>=14'"
        ) from None
    clip = io.BytesIO()
    with av.open(clip, "w", format="mp4") as made:
        stream = made.add_stream("mpeg4", rate=5)
        stream.width = stream.height = 16
        for _ in range(3):
            made.mux(stream.encode(av.VideoFrame(16, 16, "yuv420p")))
        made.mux(stream.encode(None))
    clip.seek(0)
    with av.open(clip, "r") as read:
        frames = len(list(read.decode(video=0)))
    return f"PyAV {av.__version__}: wrote and read an mp4 of {frames} frames"


def _encoder() -> str:
    from caplore.features.choice import encoder_named

    encoder_named("efficientnet-lite0", device="cpu")
    return "efficientnet-lite0 loads its ImageNet weights"


def _meteor() -> str:
    from caplore.metrics.meteor import Meteor, score

    meteor = Meteor.load()
    value = float(score(meteor.statistics(["two", "dogs", "run"], [["two", "dogs", "are", "running"]])))
    if not 0 < value < 1:
        raise RuntimeError(f"two captions that are alike agree by {value}")
    return f"its tables are there: two captions agree by {value:.2f}"


def _java() -> str:
    from caplore.metrics.java import find_java

    java = find_java()
    return f"Java {java.release} from {java.found} ({java.path})"


def _spice() -> str:
    from caplore.metrics.spice_setup import installed_jars

    jars = installed_jars()
    _java()
    return f"{len(jars)} jars are there; `caplore doctor --slow` runs them"


def _spice_run() -> str:
    from caplore.metrics.spice import Pair, Spice, f_scores

    spice = Spice.installed()
    spice.cache = None
    f = f_scores(spice.counts([Pair("a man riding a horse", ("a man rides a horse",))]))[0, 0]
    return f"ran on Java {spice.java.version}: two captions agree by {f:.2f}"


def _setup() -> str:
    from caplore.metrics.wheels import client

    return f"{Path(client()[0]).name} can run pip, which `caplore setup` uses"


def _cache() -> str:
    from caplore.files import cache_folder

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder) as trial:
            trial.write(b"caplore")
    except OSError as error:
        raise MissingError(
            f"{folder} cannot be written to ({error.strerror})", fix="CAPLORE_CACHE=FOLDER names another one"
        ) from None
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{folder}: {used / 1e6:,.0f} MB used, {shutil.disk_usage(folder).free / 1e9:,.0f} GB free"


def _tensorboard() -> str:
    try:
        version = importlib.metadata.version("tensorboard")
    except importlib.metadata.PackageNotFoundError:
        raise MissingError(
            "only needed for `caplore train RECIPE --tensorboard`", fix="pip install 'tensorboard>=2.18'"
        ) from None
    return version


def _scores() -> str:
    from caplore.evaluation import score

    said = {"1": ["a cat on a mat", "two cats"], "2": ["a dog", "dogs run"]}
    result = score(said, said, metrics=["bleu", "rouge_l", "cider_d", "div", "coverage"])
    if result["oracle_rouge_l"] != 1.0:
        raise RuntimeError("a caption that is its own reference does not score 1")
    return "BLEU, ROUGE-L, CIDEr-D and set metrics of four captions"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
