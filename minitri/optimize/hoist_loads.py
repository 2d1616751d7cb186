"""tile → tile: loads small blocks before the loop of a matrix product instead of after the loop ("hoisting").

    for r {                          b = load b[j]
      %y = dot …                     for r {
    }                     becomes      %y = dot …
    b = load b[j]                    }
    %z = add %y, b                   %z = add %y, b

The pass `hoist-loads` changes tile programs whose first loop computes matrix products. The pass moves small loads, such
as the load of a bias, to a place before the first loop. If a grid program starts the load after the loop, the program
has no other work and waits for memory. A load that starts before the loop can finish while the loop runs. Triton does
not move loads across loops. Moving a computation out of a loop is called loop-invariant code motion (Aho, Lam, Sethi
and Ullman, "Compilers", 2006, section 9.5). Unlike loop-invariant code motion, the pass `hoist-loads` moves loads that
come after the loop.

A load of more than 1024 elements is not moved before the loop, because the elements would occupy registers during the
loop. If the first loop carries more than 64 numbers per thread to its next iteration, no load is moved, because few
registers are left. A load is not moved if its index depends on a value that the loop computes. Persistent programs are
not changed, because Triton merges their two nested loops. The loaded values would have to stay in registers during all
iterations of the merged loop.
"""

import math
from dataclasses import replace

from minitri.kernels.ir import Carry, Dot, Load, Op, needed
from minitri.tiles.ir import Program

# The most elements: of a tile that is loaded before the loop, and of the values that a warp passes to the next iteration.
LANES, CARRIED = 1024, 64 * 32  # at most 8 and 64 registers of a thread


def hoist(program: Program) -> Program:
    loops = program.loops
    if not loops or program.persistent or not any(isinstance(op, Dot) for op in loops[0].body):
        return program
    if sum(_lanes(program, carry) for carry, _ in loops[0].carries) > CARRIED * program.warps:
        return program
    first = program.body.index(loops[0])
    before, after = program.body[:first], program.body[first:]
    loads = [s for s in after if isinstance(s, Load) and _lanes(program, s) <= LANES]
    free = [load for load in loads if not any(isinstance(op, Carry) for op in needed(load))]
    moved = {op for load in free for op in needed(load)}
    return replace(program, body=(*before, *sorted(after, key=lambda s: s not in moved)))  # `sorted` is stable


def _lanes(program: Program, op: Op) -> int:
    return math.prod(program.axis(a).lanes for a in op.axes)
