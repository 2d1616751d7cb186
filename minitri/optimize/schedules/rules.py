"""The schedule rules, in the order in which they are asked: the first that answers wins.

    schedule(kernel, Request(), rules(chip))                                     with all rules
    schedule(kernel, Request(), rules(chip, without={"reduction-schedules"}))    rows get the plain schedule

A rule is a function of a chip, a kernel and a request. It returns None for a kernel that it is not for. Without
any rule minitri/tiles/schedule.py takes its plain schedule. To add a rule, write a function and add a row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from minitri.hardware.chips import Chip
from minitri.kernels.ir import Kernel
from minitri.optimize.schedules.attention import attention
from minitri.optimize.schedules.elementwise import INTERPRETER_LANES, elementwise
from minitri.optimize.schedules.products import product
from minitri.optimize.schedules.reductions import reduction
from minitri.tiles.schedule import Request, Rule, Schedule, TileSizes, plain

INTERPRETER_SIZES = TileSizes(reduced=INTERPRETER_LANES, side=256, depth=256)


def interpreter(chip: Chip, kernel: Kernel, request: Request) -> Schedule | None:
    """The plain schedule with tiles as large as Triton allows: in its interpreter a program costs a millisecond."""
    if not request.interpreter or not kernel.reduced:
        return None
    chosen = plain(kernel, INTERPRETER_SIZES)
    return replace(chosen, group=8) if kernel.dots and not kernel.held else chosen


RULES: Mapping[str, Callable[[Chip, Kernel, Request], Schedule | None]] = {
    "elementwise-schedules": elementwise,
    "interpreter-schedules": interpreter,
    "attention-schedules": attention,
    "product-schedules": product,
    "reduction-schedules": reduction,
}


def rules(chip: Chip, without: Collection[str] = ()) -> tuple[Rule, ...]:
    """The rules for a chip, except those named in `without`."""
    return tuple(partial(rule, chip) for name, rule in RULES.items() if name not in without)
