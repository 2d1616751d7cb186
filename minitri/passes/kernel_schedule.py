"""The schedule of a kernel on the target of a context.

In: a kernel and a context. Out: a `Schedule`. minitri/tiles/schedule.py chooses it. What depends on the
target is decided here: the chip's shared memory, tensor descriptors, and Triton bugs to avoid.
"""

from __future__ import annotations

from dataclasses import replace

from minitri.hardware.chips import chip_of
from minitri.kernels.ir import Kernel
from minitri.optimize.index_width.kernel_offsets import fits_32_bits
from minitri.passes.context import Context
from minitri.tiles.schedule import Schedule, schedule
from minitri.triton.workarounds import narrow_factors


def schedule_of(kernel: Kernel, context: Context) -> Schedule:
    """How a kernel runs on the target of a context."""
    target, wanted = context.target, context.options
    if is_wide(kernel, context) or not target.has_descriptors:
        wanted = replace(wanted, descriptors=bool(wanted.descriptors))
    chosen = schedule(kernel, target.kind == "interpreter", wanted, chip_of(target))
    chosen = replace(chosen, registers=chosen.registers * (target.kind == "cuda"))  # no other compiler can be told
    return narrow_factors.avoided(kernel, chosen) if (target.kind, target.arch) == ("cuda", "90") else chosen


def is_wide(kernel: Kernel, context: Context) -> bool:
    """Whether the offsets of a kernel need 64 bits."""
    return context.wide and not fits_32_bits(kernel)
