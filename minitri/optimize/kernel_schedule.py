"""The schedule of a kernel on the target of a context.

In: a kernel and a context. Out: a `Schedule`, by the rules of minitri/optimize/schedules/rules.py. Only kernels with 32-bit offsets
on a target that has tensor descriptors use them. Schedules that Triton compiles wrongly are avoided.
"""

from __future__ import annotations

from dataclasses import replace

from minitri.hardware.chips import chip_of
from minitri.kernels.ir import Kernel
from minitri.optimize.index_width import fits_32_bits
from minitri.optimize.schedules.request import Request
from minitri.optimize.schedules.rules import schedule
from minitri.pipeline import Context, simple_schedule
from minitri.tiles.schedule import Schedule
from minitri.triton.workarounds import narrow_factors


def schedule_of(kernel: Kernel, context: Context) -> Schedule:
    """How a kernel runs on the target of a context; without optimisations by its simple schedule."""
    if "all" in context.without:
        return simple_schedule(kernel, context)
    target, wanted = context.target, context.options
    if is_wide(kernel, context) or not target.has_descriptors:
        wanted = replace(wanted, descriptors=bool(wanted.descriptors))
    chosen = schedule(kernel, Request(chip_of(target), target.kind == "interpreter", wanted), context.without)
    if len(kernel.dots) > 1 and (target.kind, target.arch) == ("cuda", "90"):
        chosen = narrow_factors.avoided(kernel, chosen)
    return chosen


def is_wide(kernel: Kernel, context: Context) -> bool:
    """Whether the offsets of a kernel need 64 bits."""
    return context.wide and not fits_32_bits(kernel)
