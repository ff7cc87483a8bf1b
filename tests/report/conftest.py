"""Run folders as training and evaluation write them, with made-up plausible numbers; and a headless browser."""

import contextlib
import json
import math
import os
import random
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from caplore.data.dataset import Input, write_dataset
from caplore.files import write_json, write_jsonl

# CIDEr beam, then rs: CIDEr, oracle, Div-1, Div-2, mBLEU-4; P(Y|x), recall@5, recall@20, peak width; entropy
LEVELS = {
    "xe": (0.912, 0.604, 1.021, 0.52, 0.71, 0.17, 0.412, 0.318, 0.221, 92.4, 1.4),
    "sll": (1.041, 1.012, 1.118, 0.24, 0.31, 0.84, 0.713, 0.152, 0.061, 3.6, 0.15),
    "sll_me": (1.043, 1.009, 1.121, 0.25, 0.33, 0.82, 0.708, 0.160, 0.067, 4.1, 0.2),
    "sll_sle": (1.047, 0.998, 1.174, 0.33, 0.47, 0.58, 0.702, 0.287, 0.158, 22.8, 0.6),
}
KEYS = ("cider_d", "oracle_cider_d", "div_1", "div_2", "mbleu_4")
PLACES = ("on the grass", "in the snow", "under a blue sky", "on a wooden floor")


def score(
    value: float | None, signature: str = "cider_d|tok:ptb|n:4|df:train,4000", **more: str
) -> dict[str, Any]:
    return {"value": value, "signature": signature, **more}


def write_pictures(folder: Path, count: int = 8, suffix: str = "png") -> Path:
    """A data set of simple pictures: a coloured shape or two on a ground."""
    rng = random.Random(0)
    inputs = []
    for i in range(count):
        file = f"media/{i:05}.{suffix}"
        (folder / "media").mkdir(parents=True, exist_ok=True)
        frames = [_draw(rng.randrange(1000)) for _ in range(1 if suffix == "png" else 8)]
        frames[0].save(
            folder / file, **({} if suffix == "png" else {"save_all": True, "append_images": frames[1:]})
        )
        inputs.append(Input(f"test-{i:05}", "test", file, tuple(_references(i))))
    write_dataset(folder, name="scenes", media="image", inputs=inputs)
    return folder


def _draw(seed: int) -> Image.Image:
    rng = random.Random(seed)
    image = Image.new("RGB", (192, 144), (178, 212, 236))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 92, 192, 144), fill=(126, 166, 96))
    for _ in range(2):
        x, y, r = rng.randrange(30, 160), rng.randrange(60, 110), rng.randrange(12, 26)
        fill = rng.choice(((196, 62, 52), (46, 98, 178), (236, 186, 60), (120, 76, 160)))
        (draw.ellipse if rng.random() < 0.5 else draw.rectangle)((x - r, y - r, x + r, y + r), fill=fill)
    return image


def _references(i: int) -> list[str]:
    rng = random.Random(i)
    return [_sentence(i, rng) for _ in range(5)]


def _sentence(i: int, rng: random.Random) -> str:
    scene = random.Random(i)
    colour, kind = scene.choice(("red", "blue", "yellow")), scene.choice(("cat", "dog", "ball", "cube"))
    other, place = scene.choice(("star", "tree", "box")), PLACES[i % len(PLACES)]
    size = scene.choice((("large", "big"), ("small", "little")))
    subject = rng.choice((f"a {colour} {kind}", f"a {rng.choice(size)} {colour} {kind}", f"one {kind}"))
    return rng.choice(
        (
            f"{subject} {place}",
            f"{subject} {rng.choice(('next to', 'beside', 'near'))} a {other}",
            f"{place} there is {subject}",
            f"a {other} and {subject} {place}",
        )
    )


def _set(i: int, objective: str, kind: str, known: bool) -> list[dict[str, Any]]:
    """The sharper the objective, the fewer different sentences it says."""
    rng = random.Random(f"{i}{kind}")
    kinds = {"xe": 5, "sll": 1, "sll_me": 2}.get(objective, 4)
    pool = [_sentence(i, rng) for _ in range(kinds)]
    said = [pool[n % len(pool)] for n in range(1 if kind == "beam" else 5)]
    right = [rng.random() < (0.5 if objective == "xe" else 0.8) for _ in said]
    return [
        {"caption": c, "logprob": -3.2, "cider_d": 0.5 + rng.random(), "correct": r if known else None}
        for c, r in zip(said, right, strict=True)
    ]


def make_result(
    objective: str = "sll_sle",
    seed: int = 0,
    *,
    exact: bool = True,
    dataset: str = "scenes",
    inputs: int = 500,
) -> dict[str, Any]:
    """One results/test.json as a value."""
    rng = random.Random(f"{objective}{seed}")
    beam, *rest = (
        value * (1 + 0.012 * rng.gauss(0, 1)) for value in LEVELS.get(objective, LEVELS["sll_sle"])
    )
    sets, truth = dict(zip(KEYS, rest[:5], strict=True)), rest[5:]
    names = {"xe": "xe", "sll": "sll", "sll_me": "me", "sll_sle": "sle"}
    name = names.get(objective, objective)
    why = "METEOR tables are not set up: caplore setup meteor"
    fields = {
        "cider_d": score(beam),
        **{
            f"bleu_{n}": score(b * beam, "bleu|tok:ptb|eff:closest")
            for n, b in enumerate((0.73, 0.55, 0.4, 0.3), 1)
        },
        "rouge_l": score(0.52 * beam, "rouge_l|beta:1.2"),
        "meteor": score(None, "", note=why),
        "spice": score(None, "", note="SPICE is not set up: caplore setup spice"),
    }
    return {
        "format": "caplore-evaluation-1",
        "run": {
            "name": f"{name}-{seed}",
            "path": f"demo/{name}-{seed}",
            "recipe": f"{dataset}-{name}",
            "objective": objective,
            "model": "fc",
            "seed": seed,
            "dataset": {"name": dataset, "version": "1", "media": "image", "checksum": "8d1f" * 16},
            "encoder": "tiny",
            "commit": "ef5638c0aa11",
        },
        "split": "test",
        "inputs": inputs,
        "references": 5,
        "decoders": {
            "beam": {"settings": {"kind": "beam", "width": 5, "n": 1, "max_words": 20}, "scores": fields},
            "rs": {
                "settings": {"kind": "sample", "n": 5, "temperature": 1.0, "max_words": 20},
                "scores": {k: score(v) for k, v in sets.items()},
            },
            "bs": {
                "settings": {"kind": "beam", "width": 5, "n": 5, "max_words": 20},
                "scores": {k: score(v * (0.55 if k == "div_2" else 0.95)) for k, v in sets.items()},
            },
        },
        "exact": _exact(truth) if exact else None,
        "examples": [
            {
                "id": f"test-{i:05}",
                "file": f"media/{i:05}.png",
                "references": _references(i),
                "sets": {kind: _set(i, objective, kind, exact) for kind in ("beam", "rs", "bs")},
            }
            for i in range(6)
        ],
    }


def _exact(truth: list[float]) -> dict[str, Any]:
    precision, recall_5, recall_20, width = truth[:4]
    ranks = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987]
    scores = {
        "precision": precision,
        "recall_5": recall_5,
        "recall_20": recall_20,
        "peak_width": width,
        "truths": 987.0,
    }
    return {
        "inputs": 200,
        "scores": {k: score(v, "exact|membership:grammar") for k, v in scores.items()},
        "peak": {"ranks": ranks, "mass": [1 - math.exp(-1.6 * r / width) for r in ranks]},
    }


def make_log(objective: str, seed: int) -> list[dict[str, Any]]:
    """log.jsonl as training writes it: cross-entropy in the first run, the sequence-level phase in the others."""
    rng = random.Random(f"log{objective}{seed}")
    level = LEVELS.get(objective, LEVELS["sll_sle"])
    phase = "xe" if objective == "xe" else "sequence"
    begun = 0 if objective == "xe" else 1600  # steps go on over the phases
    lines: list[dict[str, Any]] = []
    for step in range(0, 1600, 20):
        share = 1 - math.exp(-step / 400)
        where = {"phase": phase, "epoch": step // 63, "step": begun + step, "seconds": step / 30}
        line = {"lr": 1e-4, "loss": 4 - 2.6 * share}
        if objective != "xe":
            line |= {
                "reward": 0.54 + (level[1] - 0.54) * share + rng.gauss(0, 0.015),
                "entropy": 1.4 + (level[-1] - 1.4) * share,
                "length": 8.1 - 0.8 * share + rng.gauss(0, 0.05),
                "distance": 0.8 + (1 - level[5] - 0.8) * share + rng.gauss(0, 0.01),
            }
        if step:
            lines.append(where | line)
        if step % 120 == 0:
            start = 0.2 if objective == "xe" else LEVELS["xe"][0]
            cider = start + (level[0] - start) * share + rng.gauss(0, 0.008)
            lines.append({"event": "validation"} | where | {"cider_d": cider, "best": True})
    return lines


def write_run(folder: Path, result: dict[str, Any], *, data: Path | None = None, **config: Any) -> Path:
    """A run folder with this result; `config` are settings that run.json records."""
    run = result["run"]
    write_json(
        folder / "run.json",
        {
            "format": "caplore-run-1",
            **{key: run[key] for key in ("name", "recipe", "objective", "model", "seed", "commit")},
            "data": str(data or "data/scenes"),
            "config": {"data": str(data or "data/scenes"), "to": str(folder), "seed": run["seed"], **config},
        },
    )
    write_jsonl(folder / "log.jsonl", make_log(run["objective"], run["seed"]))
    write_json(folder / "results" / f"{result['split']}.json", result)
    return folder


@pytest.fixture(scope="session")
def result_of() -> Callable[..., dict[str, Any]]:
    """`make_result` for tests, which cannot import a conftest."""
    return make_result


@pytest.fixture(scope="session")
def run_of() -> Callable[..., Path]:
    return write_run


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("scenes"))


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    """A folder with four objectives times three seeds on the made world."""
    folder = tmp_path_factory.mktemp("demo")
    for objective in LEVELS:
        for seed in range(3):
            write_run(folder / f"{objective}-{seed}", make_result(objective, seed), data=pictures)
    return folder


class Browser:
    """Headless Chromium over the DevTools protocol on a pair of pipes: no driver, no port, no package."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        flags = shlex.split(
            "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
            "--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe"
        )
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}',
                program,
                *flags,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.events = b"", 0, []
        target = self("Target.createTarget", session=False, url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", session=False, targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, session: bool = True, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its answer; events that come meanwhile are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        os.write(
            self.write,
            json.dumps(message | ({"sessionId": self.session} if session else {})).encode() + b"\0",
        )
        while True:
            found = self._next()
            if found.get("id") == self.number:
                assert "error" not in found, found
                return found["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            chunk = os.read(self.read, 1 << 20)
            assert chunk, "the browser ended"
            self.buffer += chunk
        raw, self.buffer = self.buffer.split(b"\0", 1)
        found = json.loads(raw)
        if "method" in found:
            self.events.append(found)
        return found

    def open(self, page: Path, *, width: int, dark: bool = False) -> None:
        """Show a page at this width (a phone below 600) in light or dark, and wait until it has loaded."""
        self.events.clear()
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])
        self("Page.navigate", url=page.resolve().as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._next()

    def evaluate(self, script: str) -> Any:
        found = self("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def problems(self) -> list[str]:
        """Script errors, console errors, refused loads and requests to anywhere but the page itself."""
        found = [
            str(e["params"])
            for e in self.events
            if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")
        ]
        sent = (
            e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"
        )
        return found + [url for url in sent if not url.startswith(("file:", "data:"))]

    def close(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self("Browser.close", session=False)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        os.close(self.write)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium: apt install chromium")
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
