"""Every stage that runs here against the reference.

In: a program and a call. Out: a `CheckReport`, one row a stage: the largest error, the bound
it must keep, whether it does; the first stage that does not is named. The bound of each
element comes from a running error analysis of the graph (minitri/graph/bounds.py): 0 for
whatever follows exactly from the inputs (integers, data movement, single IEEE operations), a
few roundings for what does not. Elements that rounding can make anything are not compared;
the note says how many.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitri.backend.artifacts import StageUnavailable
from minitri.graph.bounds import bounds, distance
from minitri.runtime.binding import Call
from minitri.tile.evaluate import AccessError

if TYPE_CHECKING:
    from minitri.program import Program

STAGES = ("graph", "graph.simplified", "kernels", "tile", "tile.masked", "triton", "gpu")


@dataclass(frozen=True, slots=True)
class CheckRow:
    """`max_error` and `bound` are of the element that comes nearest to its bound, or passes it."""

    stage: str
    ok: bool
    max_error: float
    bound: float
    note: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckReport:
    rows: list[CheckRow]

    @property
    def ok(self) -> bool:
        return all(r.ok for r in self.rows)

    @property
    def first_bad(self) -> str | None:
        return next((r.stage for r in self.rows if not r.ok), None)

    def __str__(self) -> str:
        head = f"{'stage':18} {'':6} {'max error':>10} {'of bound':>10}  note"
        lines = [
            f"{r.stage:18} {'ok' if r.ok else 'WRONG':6} {r.max_error:10.2e} {r.bound:10.2e}  {r.note}"
            for r in self.rows
        ]
        return "\n".join([head, *lines])


def check(program: Program, call: Call, stages: Sequence[str] = STAGES) -> CheckReport:
    """The stages against the reference; one that cannot run here is noted, not failed.

    An access out of bounds is a row that is wrong, so that the stage which made it is named.
    """
    expected = program.evaluate("ast", call)
    allowed = allowances(program, call)
    return CheckReport([_row(program, call, stage, expected, allowed) for stage in stages])


def allowances(program: Program, call: Call) -> tuple[Any, ...]:
    """For each output how far from the reference each element may lie."""
    inputs = {n: a.numpy() for n, a in call.arrays.items()} | dict(call.scalars)
    return bounds(program.graph(call.instance), inputs, call.sizes)


def _row(program: Program, call: Call, stage: str, expected: tuple[Any, ...], allowed: tuple[Any, ...]) -> CheckRow:
    start = time.perf_counter()
    try:
        results = program.evaluate(stage, call)
    except StageUnavailable as reason:
        return CheckRow(stage, True, 0.0, 0.0, f"not run: {reason.message}", 0.0)
    except AccessError as reason:
        return CheckRow(stage, False, np.inf, 0.0, str(reason), time.perf_counter() - start)
    compared = [compare(*three) for three in zip(results, expected, allowed)]
    ok = all(c[0] for c in compared)
    error, bound, note = max(compared, key=lambda c: (not c[0], c[1]), default=(True, 0.0, 0.0, ""))[1:]
    return CheckRow(stage, ok, error, bound, note, time.perf_counter() - start)


def compare(result: Any, expected: Any, allowed: Any) -> tuple[bool, float, float, str]:
    """(ok, error, its bound, note) of one output, at the element that comes nearest to its bound."""
    result, expected = np.asarray(result), np.asarray(expected)
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return False, np.inf, 0.0, f"{result.dtype}{list(result.shape)} is not {expected.dtype}{list(expected.shape)}"
    if not result.size:
        return True, 0.0, 0.0, ""
    with np.errstate(all="ignore"):
        error = distance(result, expected)
        excess = np.where(error > 0, error / allowed, 0)
    worst = int(np.argmax(np.where(np.isnan(excess), 0, excess)))
    wrong, unknown = int(np.count_nonzero(error > allowed)), int(np.count_nonzero(np.isinf(allowed)))
    where = [int(k) for k in np.unravel_index(worst, error.shape)]
    note = f"{wrong} of {error.size} elements, the worst at {where}" if wrong else ""
    note = note or (f"{unknown} of {error.size} elements can be anything" if unknown else "")
    return not wrong, float(error.flat[worst]), float(np.broadcast_to(allowed, error.shape).flat[worst]), note
