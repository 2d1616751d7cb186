"""PTX that `ptxas` assembles into wrong code, and other PTX for the same values.

    neg.s16 %rs2, %rs1;          becomes   { .reg .b16 t; not.b16 t, %rs1; add.s16 %rs2, t, 1; }

    neg.s16, abs.s16             The result stays in 32 bits. -(-32768) is 32768 there, and stays so in a conversion to
                                 i32 or i64, which must give -32768.
    add.s16x2 with a constant    If only one half of the result is used, the constant is taken for 0. LLVM makes packed
                                 additions of small indices in unrolled loops, such as those of `argmax`.

`ptxas` 12.8 (Triton 3.6) and 12.9 (Triton 3.9) do both; tests/test_ptxas.py shows it. When neither does any more, this file
can go.

In: the PTX of a kernel. Out: PTX to assemble. Triton's own compile function does not come here; minitri calls it only
if a setting of Triton asks to see or change its stages (minitri/triton/compile.py).
"""

from __future__ import annotations

import re

SCALAR = r"(%rs\d+)"
NEGATION = re.compile(rf"\bneg\.s16\s+{SCALAR}, {SCALAR};")
SIZE = re.compile(rf"\babs\.s16\s+{SCALAR}, {SCALAR};")
ADDITION = re.compile(r"\badd\.[su]16x2\s+(%r\d+), (%r\d+), (%r\d+|-?\w+);")

NEGATED = r"{ .reg .b16 t; not.b16 t, \2; add.s16 \1, t, 1; }"
SIZED = r"{ .reg .b16 t; not.b16 t, \2; add.s16 t, t, 1; max.s16 \1, \2, t; }"
ADDED = (
    r"{ .reg .b16 a, b, c, d; .reg .b32 t; mov.b32 t, \3; mov.b32 {a, b}, \2; mov.b32 {c, d}, t; "
    r"add.s16 a, a, c; add.s16 b, b, d; mov.b32 \1, {a, b}; }"
)


def mended(ptx: str) -> str:
    """The same kernel without instructions that `ptxas` gets wrong."""
    return ADDITION.sub(ADDED, SIZE.sub(SIZED, NEGATION.sub(NEGATED, ptx)))
