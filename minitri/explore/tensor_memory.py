"""Tensor memory of Blackwell: its allocation serves the instructions that compute in it.

In: the rows of one kernel's PTX or SASS (places.py), and its text. Out: the same rows. Rows that allocate tensor memory
define a name, `TENSOR`, and rows that access it use that name. So def-use (origins.py) leads from an allocation to the
products, as it leads from an address to a load.

    UTCATOMSWS.FIND_AND_SET UP0, UR4, UR8      takes columns: defines TENSOR
    ATOMS.OR RZ, [UR6+0x14], R3                keeps the books of it: defines TENSOR
    UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR9]  uses TENSOR; without a line of its own (Triton before 3.7) it is there
                                               for who reads what it writes, and defines it too

One `tcgen05.alloc` becomes thirty instructions, and the code that frees the memory has traps for columns that were
never allocated. None has a line of the source. They are found as the neighbours of an instruction of the allocator, up
to the next row with a line. Entering and leaving the kernel is no part of it. Left out: which columns belong to what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from minitri.explore.places import Row

TENSOR = "tensor memory"
_ALLOCATOR = re.compile(r"tcgen05\.(alloc|dealloc|relinquish)|\bUTCATOMSWS|\bUVIRTCOUNT|\bBPT\.TRAP")
_WRITER = re.compile(r"tcgen05\.(mma|st|cp)\b|\bUTC\w*MMA|\b(STTM|UTCCP)\b")
_USER = re.compile(r"tcgen05\.(mma|ld|st|cp|shift)\b|\bUTC\w*MMA|\b(LDTM|STTM|UTCCP|UTCSHIFT)\b")
_FRAME = re.compile(r"\b(EXIT|ret|LDC R1)\b")  # R1 is the stack


def with_tensor_memory(rows: Sequence[Row], text: str, head: int) -> list[Row]:
    """`head`: the line of the generated source that the kernel begins in, which stands for no line."""
    lines = text.split("\n")
    made = list(rows)
    if not any(map(_USER.search, lines)):
        return made
    for k in _of_the_allocator(rows, lines, head):
        made[k] = replace(rows[k], defines=(*rows[k].defines, TENSOR))
    for k, (row, line) in enumerate(zip(rows, lines)):
        if row.operation and _USER.search(line):
            written = (TENSOR,) if _WRITER.search(line) and set(row.lines) <= {head} else ()
            made[k] = replace(row, defines=(*row.defines, *written), uses=(*row.uses, TENSOR))
    return made


def _of_the_allocator(rows: Sequence[Row], lines: Sequence[str], head: int) -> Iterator[int]:
    """Instructions without a line, in runs that hold one of the allocator."""
    run: list[int] = []
    for k, (row, line) in enumerate(zip((*rows, None), (*lines, ""))):
        if row is not None and (not row.operation or (set(row.lines) <= {head} and not _FRAME.search(line))):
            run += [k] * row.operation
            continue
        if any(_ALLOCATOR.search(lines[n]) for n in run):
            yield from run
        run = []
