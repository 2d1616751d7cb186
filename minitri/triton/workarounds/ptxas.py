"""Rewrites PTX instructions that `ptxas` assembles into wrong code.

    neg.s16 %rs2, %rs1;          becomes   { .reg .b16 t; not.b16 t, %rs1; add.s16 %rs2, t, 1; }

    neg.s16, abs.s16             `ptxas` keeps the result in 32 bits, so -(-32768) becomes 32768. A conversion to i32 or
                                 i64 should then give -32768, but `ptxas` leaves 32768.
    add.s16x2 with a constant    If only one half of the result is used, `ptxas` treats the constant as 0. LLVM makes
                                 such additions from small indices in unrolled loops, as in `argmax`.

Versions 12.8 (Triton 3.6) and 12.9 (Triton 3.9) of `ptxas` assemble `neg.s16`, `abs.s16` and `add.s16x2` wrongly, as
tests/test_ptxas.py shows. This file can be deleted when all supported versions of `ptxas` assemble 16-bit negations,
absolute values and additions correctly.

The function `mended` takes the PTX of a kernel. It replaces the instructions that `ptxas` assembles wrongly, and
returns the new PTX.

Triton's own function `triton.compile` does not use the rewrites of ptxas.py. minitri calls `triton.compile` only for
two kinds of settings of Triton. Settings of the first kind forbid or move Triton's cache. Settings of the second kind
inspect or change the compilation (minitri/triton/cached_compile.py).
"""

import re

SCALAR = r"(%rs\d+)"
NEGATION = re.compile(rf"neg\.s16\s+{SCALAR}, {SCALAR};")
ABSOLUTE = re.compile(rf"abs\.s16\s+{SCALAR}, {SCALAR};")
ADDITION = re.compile(r"add\.[su]16x2\s+(%r\d+), (%r\d+), (%r\d+|-?\w+);")

NEGATED = r"{ .reg .b16 t; not.b16 t, \2; add.s16 \1, t, 1; }"
ABSOLUTE_VALUE = r"{ .reg .b16 t; not.b16 t, \2; add.s16 t, t, 1; max.s16 \1, \2, t; }"
ADDED = (
    r"{ .reg .b16 a, b, c, d; .reg .b32 t; mov.b32 t, \3; mov.b32 {a, b}, \2; mov.b32 {c, d}, t; "
    r"add.s16 a, a, c; add.s16 b, b, d; mov.b32 \1, {a, b}; }"
)


def mended(ptx: str) -> str:
    """Returns the PTX text, with other instructions in place of the instructions that `ptxas` assembles wrongly."""
    return ADDITION.sub(ADDED, ABSOLUTE.sub(ABSOLUTE_VALUE, NEGATION.sub(NEGATED, ptx)))
