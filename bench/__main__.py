"""Run bench/bench_<name>.py for the names given, or all: a table of ratios for each, and bench/results/<name>.json.

    python -m bench                 all of them
    python -m bench metrics ptb     some

Each file has `rows()`, which yields bench.Row. Seconds are the fastest of several runs after a warm-up.
"""

import importlib
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from bench import attempted

HERE = Path(__file__).parent
RESULTS = HERE / "results"
UNITS = {"s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))}
COLUMNS = f"{'':58}{'ours':>12}{'reference':>14}{'ratio':>9}{'max |diff|':>12}"


def shown(value: float, unit: str) -> str:
    """In the unit that gives a readable number."""
    for size, name in UNITS.get(unit, ()):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:,.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def line(row: Any) -> str:
    reference, ratio = "not run", "-"
    if row.reference is not None:
        reference, ratio = shown(row.reference, row.unit), f"{row.reference / row.ours:.1f}"
    difference = "-" if row.difference is None else f"{row.difference:.1e}"
    note = getattr(row, "note", "")
    return f"{row.what:58}{shown(row.ours, row.unit):>12}{reference:>14}{ratio:>9}{difference:>12}  {note}".rstrip()


def machine() -> dict[str, Any]:
    """Where and with what: speed means nothing without."""
    model = "unknown"
    if Path("/proc/cpuinfo").is_file():
        named = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    command = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
    return {
        "processor": model or platform.machine(),
        **({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "pycocoevalcap")},
        "commit": subprocess.run(command, capture_output=True, text=True).stdout.strip() or None,
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def run(name: str) -> bool:
    """Print its rows and keep them; whether all of them could be made, or none is to be made here."""
    found: list[Any] = []
    bench = importlib.import_module(f"bench.bench_{name}")
    why = getattr(bench, "obstacle", lambda: None)()
    if why:
        print(f"\n{name}: not run, {why}", flush=True)
        return True
    where = machine()
    print(f"\n{name} · {' · '.join(f'{key} {value}' for key, value in where.items())}\n{COLUMNS}", flush=True)
    for row in attempted(f"{name}: the rest", bench.rows()):
        found.append(row)
        print(line(row), flush=True)
    kept = [r._asdict() for r in found if not math.isnan(r.ours)]
    if kept:  # else what an earlier run kept is still the best there is
        results = RESULTS / f"{name}.json"
        results.parent.mkdir(exist_ok=True)
        results.write_text(json.dumps({"machine": where, "rows": kept}, indent=1) + "\n")
    return len(kept) == len(found)


def main(names: Iterable[str]) -> int:
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    names = list(names) or known
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"there is no bench_{unknown[0]}.py here; there are {', '.join(known)}", file=sys.stderr)
        return 2
    return 0 if all([run(name) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
