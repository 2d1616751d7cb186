"""Checks of the schedule options that a caller sets.

In: the plan, its options and the programs made with them. Out: nothing, or a CompileError MT0404
that names the possible axes. The one idea: an option without effect is a mistake that nobody sees.
So an axis that no kernel has is refused.

An axis that only this call's sizes remove is accepted. Its size may be 1, it may be merged into its
neighbour, or it may exist only where a reduction is in parts. Options measured for one shape can
then be written down for all shapes.

Left out: numbers that are wrong for every program; `Options` itself refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.limits import MAX_LANES
from minitri.kernels.ir import Plan, Store
from minitri.tiles.ir import Program
from minitri.tiles.schedule import Options


def check_axes(options: Options, plan: Plan, general: Callable[[], Iterable[Plan]]) -> None:
    """CompileError if a block is for an axis that the program never has. `general`: its plans for other sizes."""
    missing = [name for name in options.blocks if name not in axes(plan)]
    if not missing:
        return
    known = sorted({name for other in general() for name in axes(other)} | set(axes(plan)))
    unknown = next((name for name in missing if name not in known), None)
    if unknown is not None:
        there = f"its axes: {listed([f'`{n}`' for n in known])}" if known else "no kernel has axes"
        help = suggest(str(unknown), known) or f"{there}; `minitri compile --emit=kernels` shows them"
        raise CompileError("MT0404", f"blocks: no kernel has an axis `{str(unknown)[:40]}`", help=help)


def axes(plan: Plan) -> list[str]:
    """The names of the axes of all kernels."""
    return list(dict.fromkeys(a.name for kernel in plan.kernels for a in kernel.axes))


def check_lanes(program: Program) -> None:
    """CompileError if some tile has more elements than Triton allows."""
    block = {a.name: a.block for a in program.axes}
    for op in program.ops():
        stored = {s.name for d in op.index for s in d.symbols()} if isinstance(op, Store) else set[str]()
        axes = [name for name in block if name in op.axes or name in stored]
        lanes = math.prod(1 << (block[name] - 1).bit_length() for name in axes)
        if lanes > MAX_LANES:
            shown = " by ".join(f"{name} = {block[name]:,}" for name in axes)
            message = f"{program.name} has a tile of {shown}: {lanes:,} elements, and Triton takes {MAX_LANES:,}"
            raise CompileError("MT0404", message, help="give one of these axes a smaller block")
