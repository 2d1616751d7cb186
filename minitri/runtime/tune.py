"""Block sizes by measurement: compile a few schedules, time each, keep the fastest.

    options = tune(program, x, w, show=True)
    fast = program.configured(options=options)

In: a program, arrays to call it with, perhaps `candidates`. Out: the fastest `Options`. The one
idea: a cost model proposes, the clock decides. `default` is what the program does now, and what
every candidate's answer is held against: one that differs, or that does not compile (too much
shared memory for a tile), is out, and the table says why.

Left out: remembering the choice, and anything cleverer than trying a short list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitri.arrays import EPS
from minitri.kernel.ir import Dot, Kernel
from minitri.runtime.timing import Timing, measure
from minitri.table import milliseconds, table
from minitri.tile.schedule import Options

if TYPE_CHECKING:
    from minitri.program import Program
