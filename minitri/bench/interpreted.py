"""Without a GPU: Triton's interpreter against numpy, on sizes that are small and ragged.

In: cases. Out: a table on stdout, and what is in it. It shows that the kernels are right; nothing here can be
fast or slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import minitri as mt
from minitri.base.tables import table
from minitri.base.types import DTYPES
from minitri.bench.case import Case, Input
from minitri.bench.clock import Run
from minitri.bench.comparison import several, within
from minitri.bench.report import Peer, Row, number, time_of
from minitri.runtime.timing import measure


def small_table(chosen: Sequence[Case]) -> tuple[list[Row], dict[str, Any]]:
    """Small sizes, numpy's evaluation of the syntax tree as the only peer."""
    random = np.random.default_rng(0)  # the same table every time
    rows = [_small(c, random) for c in chosen]
    print("No GPU here: this is Triton's interpreter against numpy, on sizes that are small and ragged.")
    print("It shows that the kernels are right, not how fast they are.\n")
    lines = [("ms (median)", "interpreter", "numpy", "error", "")]
    for r in rows:
        own = r.peers["minitri"]
        figures = (time_of(own), time_of(r.peers["numpy"]), number(own.error, ".1e"))
        lines.append((r.name, *figures, "ok" if r.ok else "WRONG"))
    print(table(lines))
    return rows, {"device": "interpreter", "minitri": mt.__version__}


def _small(case: Case, random: np.random.Generator) -> Row:
    program = mt.compile(case.program)
    arrays = [array(i, random) for i in case.inputs]
    row = Row(_small_name(case), within(case), case.kind)
    row.peers["numpy"] = Peer(_wall(lambda: program.numpy(*arrays)), 0.0)
    pairs = zip(several(program(*arrays)), several(program.numpy(*arrays)))
    row.peers["minitri"] = Peer(_wall(lambda: program(*arrays)), max(relative(*pair) for pair in pairs))
    return row


def relative(result: Any, reference: Any) -> float:
    wanted = np.asarray(reference, np.float64)
    difference = np.linalg.norm(np.asarray(result, np.float64) - wanted)
    return float(difference / max(float(np.linalg.norm(wanted)), 1e-300))


def _wall(run: Run) -> float:
    return measure(run, "cpu", repeats=5, warmup=1).median


def small(n: int) -> int:
    """16384 → 129: equal sizes stay equal."""
    return n // 128 + 1


def _small_name(case: Case) -> str:
    shapes = " ".join("x".join(str(small(n)) for n in i.shape) for i in case.inputs)
    return f"{case.name.rsplit(' ', 1)[0]} ({shapes})"


def array(given: Input, random: np.random.Generator) -> Any:
    shape, dtype = tuple(map(small, given.shape)), DTYPES[given.dtype].numpy
    if given.below:
        below = given.below if given.signed else small(given.below)  # indices go as far as what they pick from
        return random.integers(given.least, below, shape, dtype=dtype)
    values = random.random(shape) if given.positive else random.standard_normal(shape)
    return values.astype(dtype)
