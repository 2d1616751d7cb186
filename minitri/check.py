"""Every stage that runs here against the reference.

In: a program and a call. Out: a `CheckReport`, one row a stage: the largest error, the bound
it must keep, whether it does; the first stage that does not is named. Integers, booleans and
the positions of nan and infinities must be equal. The bound of a float element is
`SLACK` units of its dtype on the scale that the reference's own sensitivity gives: the
reference is evaluated a second time with inputs moved by one unit in the last place, and what
that changes is what rounding may change.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitri.backend.artifacts import StageUnavailable
from minitri.runtime.binding import Call

if TYPE_CHECKING:
    from minitri.program import Program

STAGES = ("graph", "graph.simplified", "kernels", "tile", "tile.masked", "triton", "gpu")
SLACK = 64.0
EPS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
"""Distance of 1.0 to the next number of a dtype."""


@dataclass(frozen=True, slots=True)
class CheckRow:
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
        lines = [f"{r.stage:18} {'ok' if r.ok else 'WRONG':6} {r.max_error:10.2e} {r.bound:10.2e}  {r.note}" for r in self.rows]
        return "\n".join([head, *lines])


def check(program: Program, call: Call) -> CheckReport:
    expected = program.evaluate("ast", call)
    scales = _scales(program, call, expected)
    rows: list[CheckRow] = []
    for stage in STAGES:
        start = time.perf_counter()
        try:
            results = program.evaluate(stage, call)
        except StageUnavailable as reason:
            rows.append(CheckRow(stage, True, 0.0, 0.0, f"not run: {reason.message}", 0.0))
            continue
        compared = [compare(r, e, s) for r, e, s in zip(results, expected, scales)]
        worst = max(compared, key=lambda c: (not c[0], c[1]), default=(True, 0.0, 0.0, ""))
        rows.append(CheckRow(stage, all(c[0] for c in compared), worst[1], worst[2], worst[3], time.perf_counter() - start))
    return CheckReport(rows)


def _scales(program: Program, call: Call, expected: tuple[Any, ...]) -> list[Any]:
    """For each output the size of error that a rounding of the inputs alone can make."""
    arrays = {n: _nudged(a) for n, a in call.arrays.items()}
    moved = program.evaluate("ast", Call(call.instance, call.sizes, arrays, call.scalars))
    scales: list[Any] = []
    with np.errstate(all="ignore"):
        for e, m in zip(expected, moved):
            e64, m64 = np.asarray(e, np.float64), np.asarray(m, np.float64)
            change = np.where(np.isfinite(e64 - m64), np.abs(e64 - m64), 0)
            scales.append(np.maximum(change, change.max(initial=0.0) * 1e-2))
    return scales


def _nudged(a: Any) -> Any:
    from minitri.runtime.arguments import view

    x = a.numpy()
    if not a.dtype.is_float:
        return a
    compute = np.asarray(x, a.dtype.compute.numpy)
    sign = np.where(np.random.default_rng(0).random(compute.shape) < 0.5, -1.0, 1.0).astype(compute.dtype)
    with np.errstate(all="ignore"):
        unit = np.finfo(compute.dtype).eps
        return view((compute * (1 + 4 * sign * unit)).astype(x.dtype), "x")


def compare(result: Any, expected: Any, scale: Any) -> tuple[bool, float, float, str]:
    """(ok, largest error, its bound, note) of one output."""
    result, expected = np.asarray(result), np.asarray(expected)
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return False, np.inf, 0.0, f"{result.dtype}{list(result.shape)} is not {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind in "iub":
        wrong = int(np.count_nonzero(result != expected))
        return wrong == 0, float(wrong), 0.0, f"{wrong} elements differ" if wrong else ""
    r, e = result.astype(np.float64), expected.astype(np.float64)
    if not (np.isnan(r) == np.isnan(e)).all():
        return False, np.inf, 0.0, "nan in other places"
    with np.errstate(all="ignore"):
        unit = float(EPS[{"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}[expected.dtype.name]])
        base = max(unit, EPS["f32"] if unit > EPS["f32"] else unit)
        bound = SLACK * scale + np.abs(e) * (base * SLACK if unit < 1e-6 else 2 * base) + np.finfo(np.float32).tiny
        error = np.where(r == e, 0.0, np.abs(r - e))
        error = np.where(np.isnan(r) & np.isnan(e), 0.0, error)
    if error.size == 0:
        return True, 0.0, 0.0, ""
    worst = int(np.argmax(np.where(error > 0, error / bound, 0)))
    ok = bool((error <= bound).all())
    where = [int(k) for k in np.unravel_index(worst, error.shape)]
    return ok, float(error.flat[worst]), float(np.broadcast_to(bound, error.shape).flat[worst]), "" if ok else f"at {where}"
