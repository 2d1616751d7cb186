"""The schedule of a kernel on the target of a context.

In: a kernel and a context. Out: a `Schedule`. minitri/tiles/schedule.py chooses it, by the rules that the
context does not leave out. What depends on the target is decided here: tensor descriptors, and Triton bugs
to avoid.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from minitri.hardware.chips import chip_of
from minitri.kernels.ir import Kernel
from minitri.optimize.index_width.kernel_offsets import fits_32_bits
from minitri.optimize.schedules import products
from minitri.optimize.schedules.rules import RULES
from minitri.passes.context import Context
from minitri.tiles.schedule import Request, Schedule, schedule
from minitri.triton.workarounds import narrow_factors


def schedule_of(kernel: Kernel, context: Context) -> Schedule:
    """How a kernel runs on the target of a context."""
    target, wanted = context.target, context.options
    if is_wide(kernel, context) or not target.has_descriptors:
        wanted = replace(wanted, descriptors=bool(wanted.descriptors))
    rules = (partial(rule, chip_of(target)) for name, rule in RULES.items() if name not in context.without)
    chosen = schedule(kernel, Request(target.kind == "interpreter", wanted), rules)
    if chosen.descriptors and chosen.persistent:
        chosen = products.with_descriptor_stores(kernel, chosen, chip_of(target))
    if len(kernel.dots) > 1 and (target.kind, target.arch) == ("cuda", "90"):
        chosen = narrow_factors.avoided(kernel, chosen)
    return chosen


def is_wide(kernel: Kernel, context: Context) -> bool:
    """Whether the offsets of a kernel need 64 bits."""
    return context.wide and not fits_32_bits(kernel)
