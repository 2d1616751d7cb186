"""What kernels assume about sizes and arrays, and what they gain by it.

    x, out: 16 bytes at a time
    y: 2 bytes at a time, rows lie 1554 bytes apart

In: a compilation's context and plan, or a tile program for its target. Out: text for `explain`.

A warp reads fastest if each thread reads 16 bytes at once, from an address that is a multiple of 16
(hardware/vector_width.py). A launch checks that an array begins at such an address. Whether its rows
do follows from the strides, which are literals or arguments that the launch checks. A kernel is
compiled for one class of calls: the answers to these checks, and which sizes 16 divides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from minitri.base.diagnostics import listed
from minitri.hardware.targets import ALIGNMENT, Target
from minitri.hardware.vector_width import ALONE, Width, widths
from minitri.kernels.ir import Buffer, Plan
from minitri.pipeline import Context
from minitri.tiles.ir import Program


def sizes_given(context: Context, plan: Plan, wide: bool) -> str:
    """Which sizes are literals, and how many bits offsets have (`wide`: of some kernel 64)."""
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
    return f"{known}; offsets of {64 if wide else 32} bits{strided}"


def arrays_given(program: Program, target: Target, odd: Collection[str] = ()) -> str:
    """How many bytes of each array a thread takes at once, and why not more.

    For an array with several accesses, the least counts. `odd`: arrays that do not begin at a multiple of
    16 bytes.
    """
    if any(a.tiles == 0 for a in program.grid):
        return "none is read or written, no program runs"
    program = program.without_descriptors() if odd else program
    each: dict[Buffer, list[Width]] = {}
    for op, width in widths(program, target.warp).items():
        each.setdefault(op.buffer, []).append(width)
    found: dict[str, list[str]] = {}
    for b, own in each.items():
        anywhere = [Width(b.dtype.bytes, f"it begins at no multiple of {ALIGNMENT}")] if b.name in odd else []
        found.setdefault(_said([*own, *anywhere]), []).append(b.name)
    return "; ".join(f"{', '.join(names)}: {what}" for what, names in found.items())


def _said(own: Sequence[Width]) -> str:
    least = min(own, key=lambda w: ALIGNMENT + 1 if w.bytes is None else w.bytes)
    if least.bytes is None:
        return "blocks through a tensor descriptor"
    if least.why == ALONE:
        return "one element at a time"
    given = list(dict.fromkeys(str(d) for w in own if w.bytes == least.bytes for d in w.given))
    calls = f" in calls where {ALIGNMENT} divides {listed(given)}" if given else ""
    return f"{least.bytes} bytes at a time{calls}{f', {least.why}' if least.why else ''}"
