"""Compile each kernel of caplore.training.fast: `python compiler.py 90`. Sizes of the bench, and the largest allowed.

Arguments in order, a letter each: pointers to l(ong), f(loat32), h(alf, bf16), b(yte), o (bool), w (int32); numbers
i(nt32), L(ong), r(eal).
"""

import inspect
import sys
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from caplore.training import fast
from caplore.training.fast import adam, attend, decoding, half, head, recurrent, rollout, scores

KINDS = {
    "l": "*i64",
    "f": "*fp32",
    "h": "*bf16",
    "b": "*i8",
    "o": "*i1",
    "w": "*i32",
    "i": "i32",
    "L": "i64",
    "r": "fp32",
}
SHARED = {80: 163 * 1024, 90: 227 * 1024}  # bytes of a block
CELL = {"DIM": 512, "UNITS": 256}
HEAD = {"DIM": 512, "STEP": 64}
REGIONS = {"WIDTH": 512, "REGIONS": fast.MOST_REGIONS, "CHUNK": attend.CHUNK}
ROW = {"ENTROPY": True, "SMOOTH": True}

KERNELS: list[tuple[Any, str, dict[str, Any], int]] = [  # the last is its warps
    (head._logits_in_tiles, "hhhfffiii", {**HEAD, "ROWS": 64, "WORDS": 128}, 4),
    (head._logits_in_tiles, "hhhfffiii", {"ROWS": 64, "WORDS": 64, "DIM": 48, "STEP": 16}, 4),
    (head._draw, "fffflfflbiiiii", {"TILES": 128, "WORDS": 128}, 1),
    (head._draw, "fffflfflbiiiii", {"TILES": 512, "WORDS": 64}, 1),
    (head._push_tiles, "hhhhllfflii", {**HEAD, "ROWS": 128, "WORDS": 128}, 8),
    (head._push_rows, "fhhllflffiiir", {**ROW, "MANY": 8192, "REST": 2048}, 4),
    (head._push_rows, "fhhllflffiiir", {**ROW, "MANY": 16384, "REST": 16384}, 16),
    (head._push_rows, "fhhllflffiiir", {**ROW, "MANY": fast.MOST_WORDS, "REST": 64}, 16),
    (head._own_first, "olli", {"ROWS": head.MOST_ROWS}, 32),
    (recurrent._forward, "hlffhfh", {**CELL, "INDEXED": True}, 2),
    (recurrent._backward, "hfhfffh", {**CELL, "CARRIED": True}, 2),
    (attend._ask, "hihhhhfi", {**REGIONS, "DIM": 512}, 4),
    (attend._of_query, "hihhhfhhfi", {**REGIONS, "DIM": 512}, 4),
    (attend._of_keys, "hhhfhfi", {**REGIONS, "TIME": 16}, 4),
    (attend._maxout, "hihihhhhh", CELL, 2),
    (attend._maxout_back, "hhhhhhh", CELL, 2),
    (attend._dot, "hiihiiihiiihir", {"PLACES": 37, "BLOCK": 64, "DIM": 64, "UNITS": 64}, 2),
    (attend._dot, "hiihiiihiiihir", {"PLACES": 1, "BLOCK": 1, "DIM": 12, "UNITS": 16}, 2),
    (
        scores._cider_d,
        "lllffflwfiiiiLrrr",
        {"REFS": 5, "EOS": True, "TIME": 64, "LONGEST": scores.LONGEST},
        1,
    ),
    (scores._bleu_distance, "lfii", {"TIME": scores.LONGEST}, 1),
    (adam._square, "lf", {"COLUMNS": adam.COLUMNS, "BLOCK": adam.BLOCK}, 8),
    (adam._update, "lfffrrrrrr", {"COPY": tl.bfloat16, "COLUMNS": adam.COLUMNS, "BLOCK": adam.BLOCK}, 8),
    (half._add_rows, "flhi", {"DIM": 512}, 4),
    (decoding._best_words, "fffflfi", {"WIDTH": 5, "TILES": 128, "WORDS": 128}, 1),
    (decoding._best_nodes, "fflfllff", {"BEAMS": 5, "WIDTH": 5, "BLOCK": 32}, 1),
    (rollout._uniform, "fli", {"BLOCK": 1024}, 4),
]


def compiled(kernel: Any, letters: str, constants: dict[str, Any], warps: int, capability: int) -> int:
    """Bytes of shared memory."""
    names = [name for name in inspect.signature(kernel.fn).parameters if name not in constants]
    signature = {name: KINDS[letter] for name, letter in zip(names, letters, strict=True)}
    signature |= {name: "constexpr" for name in constants}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
    return int(made.metadata.shared)


def main(capability: int) -> int:
    wrong = 0
    for kernel, letters, constants, warps in KERNELS:
        try:
            shared = compiled(kernel, letters, constants, warps, capability)
            problem = "" if shared <= SHARED[capability] else f"{shared} bytes of shared memory"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            print(f"{kernel.fn.__name__} {constants}: {problem}")
        wrong += bool(problem)
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
