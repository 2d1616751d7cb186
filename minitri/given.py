"""What kernels take as given of sizes and arrays, and what they gain by it.

    x, out: 16 bytes at a time
    y: 2 bytes at a time, rows lie 1554 bytes apart

In: a compilation's context and plan, or a tile program. Out: text for `explain`. A warp reads fastest where each lane
takes 16 bytes at once, from an address that 16 divides. That an array begins there is a guard of the launch; that its
rows do follows from strides: literals, or arguments that a launch looks at. So calls are of one class with others
whose arrays begin there or do not, and whose sizes 16 divides or does not; a kernel is compiled for a class.
"""

from __future__ import annotations

import math

from minitri.diagnostics import listed
from minitri.kernel.ir import Buffer, Plan
from minitri.pipeline import Context
from minitri.tile.ir import Program
from minitri.tile.products import ALIGNMENT


def sizes_given(context: Context, plan: Plan) -> str:
    """Which sizes are literals, and how many bits offsets have."""
    symbols = {s.name: None for b in plan.inputs for e in b.shape for s in e.symbols()}
    names = [name for name in symbols if name not in context.sizes]
    if not names:
        known = "these sizes and strides are literals in the kernels"
    elif context.sizes:
        known = f"{listed(names)} {'is an argument' if len(names) == 1 else 'are arguments'} of the kernels, the rest literals"
    else:
        known = "for any sizes: they are arguments of the kernels"
    layouts = list(context.layouts)
    strided = f"; not row-major: {', '.join(layouts)}" if layouts else ""
    return f"{known}; offsets of {64 if context.wide else 32} bits{strided}"


def arrays_given(program: Program) -> str:
    """How much of each array of a kernel a lane can take at once, and why not more."""
    found: dict[str, list[str]] = {}
    for b in program.buffers:
        found.setdefault(_width(b), []).append(b.name)
    return "; ".join(f"{', '.join(names)}: {what}" for what, names in found.items())


def _width(b: Buffer) -> str:
    kept = [(e, s) for e, s in zip(b.shape, b.strides) if e != 1]
    if not kept:
        return "one element"
    (_, last), steps = kept[-1], [s for _, s in kept[:-1]]
    if last.constant is None:
        return f"16 bytes at a time where {last} is 1"
    if last != 1:
        return f"{b.dtype.bytes} bytes at a time, elements lie {(last.constant or 0) * b.dtype.bytes} bytes apart"
    unknown = [str(s) for s in steps if s.constant is None]
    if unknown:
        return f"16 bytes at a time in calls where 16 divides {listed(list(dict.fromkeys(unknown)))}"
    rows = [(s.constant or 0) * b.dtype.bytes for s in steps]
    width = math.gcd(ALIGNMENT, *rows)
    if width == ALIGNMENT:
        return "16 bytes at a time"
    return f"{width} bytes at a time, rows lie {next(r for r in rows if r % ALIGNMENT)} bytes apart"
