"""`minitri bench`: programs against what a user would pick instead, on this machine's GPU.

In: names of cases (parts of names; none: all of them), perhaps a path for JSON. Out: two tables on
stdout, times and errors, and 0 if every program of ours was right.

    case                     minitri  eager  library  compile  best/minitri  of copy
    softmax bf16 16384x8192    0.131  1.102    0.501    0.198          1.51     0.95

How it is measured: every peer in this one process on the same fresh random inputs, larger than the
L2 cache (and do_bench clears it); medians of `triton.testing.do_bench`, warm-up 25 ms, 100 ms of
repetitions; errors against an f64 reference in the same run. `of copy` is the time a copy of the same
bytes would take, at the rate of a 4 GiB copy measured first, over ours; products show TFLOP/s.
torch.compile runs with dynamic=False; of products also, while time is left, tuned:
max-autotune-no-cudagraphs, and ours with measured blocks (runtime/tune.py).

Without a GPU nothing here can be fast or slow: a small table times Triton's interpreter against
numpy on small sizes, and says so.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import minitri as mt
from minitri.bench_cases import Case, Input, cases, torch
from minitri.diagnostics import CompileError
from minitri.runtime.timing import measure
from minitri.runtime.tune import tune
from minitri.table import table
from minitri.types import DTYPES

if TYPE_CHECKING:
    from minitri.program import Program

COPY_BYTES = 2 << 30  # read, and as many written
EXTRAS_UNTIL = 150.0  # seconds from the start in which tuned peers are still begun
WITHIN = {"f32": 1e-5, "bf16": 1e-2}  # relative error of a right answer, by dtype of the inputs

Clock = Callable[[Callable[[], Any]], float]


@dataclass(slots=True)
class Peer:
    """Seconds and relative error; `note` says why there are none."""

    seconds: float | None = None
    error: float | None = None
    note: str = ""


@dataclass(slots=True)
class Row:
    """A case with its peers by name: "minitri" and others. `floor`: what a copy of its bytes takes."""

    name: str
    peers: dict[str, Peer] = field(default_factory=dict)
    bytes: int = 0
    flops: int = 0
    floor: float = 0.0
    ok: bool = False

    def seconds(self, *names: str) -> float | None:
        """The shortest time of some peers."""
        times = [p.seconds for n, p in self.peers.items() if n in names and p.seconds is not None]
        return min(times, default=None)

    def ratio(self, *others: str) -> float | None:
        """How many times faster ours is than the best of the others."""
        own, best = self.seconds("minitri"), self.seconds(*others)
        return best / own if own and best else None
