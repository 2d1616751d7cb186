"""Schedules one kernel by all rules, for tests that compile no whole program."""

from __future__ import annotations

from minitri.hardware.chips import H200, Chip
from minitri.kernels.ir import Kernel
from minitri.optimize.schedules.rule_arguments import Request
from minitri.optimize.schedules.rule_table import schedule
from minitri.tiles.schedule import Options, Schedule


def scheduled(kernel: Kernel, interpreter: bool = False, options: Options = Options(), chip: Chip = H200) -> Schedule:
    """The schedule for a chip, with the given options."""
    return schedule(kernel, Request(chip, interpreter, options))
