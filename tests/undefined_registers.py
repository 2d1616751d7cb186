"""Finds reads of uniform registers that no instruction has written, in the cuda:90 machine code of many kernels.

    python tests/undefined_registers.py --products 500 --jobs 2

    UIADD3 UR4, UP0, UR11, 0x20, URZ        no line above writes UR11

Such code shows a bug of the assembler ptxas (minitri/triton/workarounds/ptxas_uninitialised_address.py). The programs
are those of tests/triton_texts.py and random products of 16-bit arrays, several in a kernel. The result depends on the
ptxas that Triton includes. So run this with the Triton that is in use. Code is read from the first line to the last;
branches are not followed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import triton
from triton_texts import Listed, lowered, programs

from minitri.base.diagnostics import CompileError

FAMILIES = (  # a program, and the axes of its arrays
    ("x @ a + y @ b", "x M K, a K N, y M L, b L N"),
    ("x @ a.mT + y @ b", "x M K, a N K, y M L, b L N"),
    ("(x @ a.mT) * (x @ b)", "x M K, a N K, b K N"),
    ("silu(x @ a) * (x @ b)", "x M K, a K N, b K N"),
    ("(x @ a) * (y @ b.mT)", "x M K, a K N, y M L, b N L"),
    ("relu(x @ a) + (x @ b) * (y @ c)", "x M K, a K N, b K N, y M L, c L N"),
    ("relu(x @ a) @ b", "x M K, a K L, b L N"),
    ("gelu(x) @ a + s", "x M K, a K N, s N"),
    ("x @ (a * s)", "x M K, a K N, s N"),
    ("softmax(x @ a.mT, axis=-1) @ b", "x M K, a L K, b L N"),
    ("softmax(x @ a.mT, axis=-1) @ (b * s)", "x M K, a L K, b L N, s N"),
    ("softmax(x @ a, axis=-1) @ b.mT", "x M K, a K L, b N L"),
    ("softmax(where(arange(L) <= arange(M)[:, None], x @ a.mT, -inf), axis=-1) @ b", "x M K, a L K, b L N"),
    ("softmax(x @ a.mT + b @ c, axis=-1)", "x M K, a N K, b M L, c L N"),
    ("softmax(x @ a.mT, axis=-1) @ b * (y @ c)", "x M K, a L K, b L N, y M K, c K N"),
)
ROWS = (48, 64, 100, 200, 256)
SIZES = (5, 8, 16, 17, 24, 32, 33, 48, 64, 65, 96, 100, 128, 200, 300)
UNIFORM = re.compile(r"\bUR(\d+)\b")
PREDICATE = re.compile(r"^@!?U?P\w+\s+")
WRITES = (
    "U",
    "R2UR",
    "S2UR",
    "LDCU",
    "REDUX",
    "VOTEU",
)  # the first letters of instructions that write a uniform register


def products(count: int, seed: int) -> Iterator[Listed]:
    drawn = random.Random(seed)
    for number in range(count):
        text, arrays = drawn.choice(FAMILIES)
        sizes = {"M": drawn.choice(ROWS), **{name: drawn.choice(SIZES) for name in "KLN"}}
        dtype = drawn.choice(("f16", "bf16"))
        for name, size in sizes.items():
            text = text.replace(f"arange({name})", f"arange({size})")
        parts = [p.split() for p in arrays.split(",")]
        typed = ", ".join(f"{name}: {dtype}[{', '.join(str(sizes[a]) for a in axes)}]" for name, *axes in parts)
        yield Listed(f"product {number}", f"def product({typed}):\n    return {text}\n")


def undefined(sass: str) -> list[str]:
    """The instructions that read a uniform register before any instruction has written it."""
    written: set[int] = set()
    found: list[str] = []
    for line in sass.splitlines():
        if not line.rstrip().endswith(";"):
            written = set() if line.startswith("\t.") or "Function" in line else written
            continue
        text = PREDICATE.sub("", line.split("\t")[-1].strip().rstrip(";"))
        name, _, rest = text.partition(" ")
        operands = [o.strip() for o in rest.split(",")]
        writes = name.startswith(WRITES) and bool(UNIFORM.match(operands[0]))
        read = {r for o in operands[writes:] if not o.startswith("gdesc") for r in _registers(o, _read_bits(name))}
        if read - written and name != "MOV":  # such a MOV saves a register that is never used
            found.append(text)
        if writes:
            written.update(_registers(operands[0], _written_bits(name)))
    return found


def _registers(operand: str, bits: int) -> list[int]:
    return [int(first) + k for first in UNIFORM.findall(operand) for k in range(bits // 32)]


def _read_bits(name: str) -> int:
    return 64 if name.startswith("U") and ".64" in name and not name.startswith("ULDC") else 32


def _written_bits(name: str) -> int:
    return 128 if ".128" in name else 64 if ".64" in name or "WIDE" in name else 32


def look(listed: Listed) -> tuple[Listed, list[str]]:
    try:
        return listed, undefined(lowered(listed, "cuda:90")["sass"])
    except CompileError:
        return listed, []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--products", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--listed", action="store_true", help="the programs of tests/triton_texts.py, too")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    asked = [*products(given.products, given.seed), *(programs() if given.listed else ())]
    wrong = 0
    with ProcessPoolExecutor(given.jobs) as pool:
        for listed, found in pool.map(look, asked):
            if found:
                wrong += 1
                print(f"{listed.name}: {found[0]}\n{listed.text}", flush=True)
    print(f"{len(asked):,} programs, Triton {triton.__version__}: {wrong} read a register that nothing has written")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
