"""tile → tile: moves a load that does not depend on a loop from behind the loop to a place before it.

    for r { … }                    b = load b[j]
    b = load b[j]       becomes    for r { … }
    … add %acc, b                  … add %acc, b

In: a program with loops. Out: the same, with small loads (a bias, a label, a scale of a row) before its first loop.
After the loop such a load would start when nothing else is left to do, and the program would wait for memory. Before
the loop the value arrives long before it is needed. Triton keeps loads where they are written.

Left out: large tiles, which would take registers from the loop; loads whose index the loop computes; and persistent
programs. Triton makes one loop of a persistent program's two loops, and that loop would carry the value.
"""

from __future__ import annotations

import math
from dataclasses import replace

from minitri.kernels.ir import Carry, Load, Op, Store, needed, op_operands
from minitri.tiles.ir import Loop, Program

LANES = 1024  # of a tile that is held during a loop: 8 registers of each thread of 4 warps


def early(program: Program) -> Program:
    first = next((n for n, s in enumerate(program.body) if isinstance(s, Loop)), None)
    if first is None or program.persistent:
        return program
    before, after = program.body[:first], program.body[first:]
    moved = _moved(program, [s for s in after if not isinstance(s, Loop)])
    if not moved:
        return program
    return replace(program, body=(*before, *moved, *(s for s in after if s not in moved)))


def _moved(program: Program, tops: list[Op]) -> list[Op]:
    """Of the ops outside of loops: the small reads in which no loop has a part, and what they need."""
    free: list[Op] = []
    waiting: set[Op] = {op for op in program.body if isinstance(op, Carry)}
    for op in tops:
        if waiting.intersection(op_operands(op)) or isinstance(op, (Carry, Store)) or _lanes(program, op) > LANES:
            waiting.add(op)
        else:
            free.append(op)
    wanted = {o for op in free if isinstance(op, Load) for o in needed(op)}
    return [op for op in free if op in wanted]


def _lanes(program: Program, op: Op) -> int:
    return math.prod(program.axis(a).lanes for a in op.axes)
