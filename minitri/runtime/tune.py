"""Block sizes by measurement: compile a few schedules, time each, keep the fastest.

    options = tune(program, x, w, show=True)
    fast = program.configured(options=options)

In: a program, arrays to call it with, perhaps `candidates`. Out: the fastest `Options`. The one
idea: a cost model proposes, the clock decides. The first candidate is what the program does now,
and its answer is what every other one's is held against. One that differs, or that does not
compile (too much shared memory for a tile), is out, and the table says why.

Left out: remembering the choice, and anything cleverer than a short list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from minitri.kernel.ir import Dot, Kernel, Plan
from minitri.runtime.arguments import view
from minitri.runtime.timing import Timing, device_of, measure
from minitri.table import milliseconds, table
from minitri.tile.schedule import Options, schedule

if TYPE_CHECKING:
    from minitri.program import Program

SHARED_BYTES = 227 << 10  # what a program may have for its operands on Hopper
HEAD = ("blocks", "warps", "stages", "group", "time", "")

# (rows, columns, depth, warps, stages) of a product's tiles, by bits of its operands.
PRODUCTS = {
    16: (
        (128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 4, 4), (128, 128, 64, 8, 3),
        (64, 256, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4),
    ),
    32: ((128, 64, 32, 8, 2), (64, 64, 32, 8, 2), (64, 64, 32, 4, 2), (64, 64, 16, 4, 3), (32, 64, 32, 4, 3)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trial:
    """One schedule: its time, or (without one) what is wrong with it."""

    options: Options
    timing: Timing | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tuning:
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        timed = [t for t in self.trials if t.timing is not None]
        return min(timed, key=lambda t: t.timing.median if t.timing else 0.0)

    def __str__(self) -> str:
        return table([HEAD, *map(self._row, self.trials)])

    def _row(self, trial: Trial) -> tuple[str, ...]:
        o = trial.options
        blocks = " ".join(f"{name}={block}" for name, block in o.blocks.items()) or "by rule"
        time = milliseconds(trial.timing.median) if trial.timing else "-"
        note = "fastest" if trial is self.best else trial.note
        return (blocks, *(str(n or "rule") for n in (o.warps, o.stages, o.group)), time, note)


def tune(
    program: Program, *arrays: Any, candidates: Sequence[Options] | None = None, repeats: int = 20, show: bool = False
) -> Options:
    """The fastest options for `program(*arrays)`; `show` prints what was tried."""
    tuning = trials(program, *arrays, candidates=candidates, repeats=repeats)
    if show:
        print(tuning)
    return tuning.best.options


def trials(program: Program, *arrays: Any, candidates: Sequence[Options] | None = None, repeats: int = 20) -> Tuning:
    """Every candidate, measured; an error of the program itself is raised."""
    expected = program(*arrays)
    if candidates is None:
        run, _ = program.prepare(*arrays)
        candidates = propose(run.plan, run.interpreted)
    tried = [_try(program, arrays, o, expected, repeats) for o in (program.options, *candidates)]
    return Tuning(tuple(tried))


def _try(program: Program, arrays: Sequence[Any], options: Options, expected: Any, repeats: int) -> Trial:
    candidate = program.configured(options=options)
    try:
        result = candidate(*arrays)
    except Exception as error:  # Triton's compiler and driver raise many kinds
        return Trial(options, None, _first_line(error))
    if not _close(result, expected):
        return Trial(options, None, "a different answer")
    return Trial(options, measure(lambda: candidate(*arrays), device_of(*arrays), repeats, warmup=1))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:70]


def _close(result: Any, expected: Any) -> bool:
    """Equal but for the order of sums."""
    if isinstance(expected, tuple):
        return all(map(_close, result, expected))
    got, wanted = view(result, "result").numpy(), view(expected, "result").numpy()
    if wanted.dtype.kind in "iub":
        return bool(np.array_equal(got, wanted))
    unit = float(ml_dtypes.finfo(wanted.dtype).eps)
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
    return bool(np.allclose(got, wanted, rtol=0, atol=largest * unit * (4 if unit > 1e-4 else 64), equal_nan=True))


# ---- what to try -----------------------------------------------------------------------


def propose(plan: Plan, interpreter: bool) -> list[Options]:
    """A short list for a plan, led by its kernel with most work: a product if there is one."""
    kernel = max(plan.kernels, key=lambda k: (any(isinstance(op, Dot) for op in k.body), len(k.axes), len(k.body)))
    dots = [op for op in kernel.body if isinstance(op, Dot)]
    if dots:
        return _products(dots[0], interpreter)
    return _rows(kernel, interpreter) if kernel.reduced else _elementwise(kernel, interpreter)


def _products(dot: Dot, interpreter: bool) -> list[Options]:
    row, column = dot.tile
    if interpreter:
        return [Options({row: n, column: n, dot.over: n}, stages=1, group=1) for n in (16, 32, 64, 128)]
    bits = max(16, min(32, dot.a.dtype.bits))
    tiles = [t for t in PRODUCTS[bits] if (t[0] + t[1]) * t[2] * bits // 8 * t[4] <= SHARED_BYTES]
    return [Options({row: m, column: n, dot.over: k}, warps, stages, 8) for m, n, k, warps, stages in tiles]


def _rows(kernel: Kernel, interpreter: bool) -> list[Options]:
    """Rows held by few or many warps, one or several a program."""
    last = kernel.parallel[-1].name if kernel.parallel else None
    blocks: list[dict[str, int]] = [{}] if last is None else [{last: 1}, {last: 4}]
    return [Options(b, warps=warps) for b in blocks for warps in ((4,) if interpreter else (2, 4, 8, 16))]


def _elementwise(kernel: Kernel, interpreter: bool) -> list[Options]:
    axes = schedule(kernel, interpreter).axes
    if not axes:
        return []
    widest = max(axes, key=lambda name: axes[name][1])
    sizes = (256, 4096, 65536) if interpreter else (512, 1024, 2048, 4096)
    warps = (4,) if interpreter else (4, 8)
    return [Options({widest: n}, warps=w) for n in sizes for w in warps]
