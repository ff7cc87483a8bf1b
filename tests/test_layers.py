"""Imports point down, and a few things that two rooms must agree on although neither may import the other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "caplore"

# Each room and what it may import, besides itself and the files everyone may: errors, files, machine, native.
MAY_IMPORT = {
    "errors": set(),
    "files": set(),
    "machine": set(),
    "native": set(),
    "text": set(),
    "data": {"text"},
    "features": {"data"},
    "models": set(),
    "decoding": {"models"},
    "metrics": {"text"},
    "objectives": set(),
    "training": {"text", "data", "features", "models", "decoding", "metrics", "objectives"},
    "evaluation": {"text", "data", "features", "models", "decoding", "metrics", "objectives", "training"},
    "report": set(),
}
LEAVES = {"cli", "integrations", "serve", "__init__", "__main__"}
EVERYONE = {"errors", "files", "machine", "native"}


def rooms_used(path: Path) -> Iterator[tuple[str, int]]:
    """Every caplore room a file imports, lazily or at the top, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            names = [module] if module != "caplore" else [f"caplore.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if (
                parts[0] == "caplore"
                and len(parts) > 1
                and (SRC / parts[1]).with_suffix("").exists() | (SRC / f"{parts[1]}.py").exists()
            ):
                yield parts[1], node.lineno


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(SRC).parts[0].removesuffix(".py")
    if room in LEAVES:
        return
    assert room in MAY_IMPORT, f"{room} is a new room: give it a line in docs/design.md and here"
    for used, line in rooms_used(path):
        assert used in MAY_IMPORT[room] | EVERYONE | {room}, (
            f"{path}:{line} imports {used}, which {room} may not"
        )


def test_no_drawers() -> None:
    drawers = {"utils", "util", "common", "misc", "helpers", "helper"}
    assert not [p for p in SRC.rglob("*") if p.stem in drawers]


def test_nothing_is_unpickled() -> None:
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {a.name.split(".")[0] for a in node.names} & {
                    "pickle",
                    "dill",
                    "shelve",
                    "joblib",
                }, path
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                safe = {k.arg: ast.unparse(k.value) for k in node.keywords}.get("weights_only")
                assert safe == "True", f"{path}:{node.lineno} loads without weights_only=True"
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert ast.unparse(node.value) == "False", f"{path}: allow_pickle"


def test_rooms_agree_on_the_special_ids() -> None:
    from caplore.models import protocol
    from caplore.objectives import policy
    from caplore.text import vocabulary

    assert (vocabulary.EOS, vocabulary.BOS) == (protocol.EOS, protocol.BOS)
    assert policy.EOS == vocabulary.EOS
