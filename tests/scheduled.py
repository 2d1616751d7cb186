"""The schedule of a kernel by all rules, for tests that compile no program."""

from __future__ import annotations

from minitri.hardware.chips import H200, Chip
from minitri.kernels.ir import Kernel
from minitri.optimize.schedules.products import with_descriptor_stores
from minitri.optimize.schedules.rules import rules
from minitri.tiles.schedule import Options, Request, Schedule, schedule


def scheduled(kernel: Kernel, interpreter: bool = False, options: Options = Options(), chip: Chip = H200) -> Schedule:
    """The schedule for a chip, with the caller's options."""
    chosen = schedule(kernel, Request(interpreter, options), rules(chip))
    persistent = chosen.descriptors and chosen.persistent
    return with_descriptor_stores(kernel, chosen, chip) if persistent else chosen
