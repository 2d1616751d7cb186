"""The fastest schedule, found by measuring.

    f = mt.compile(…, effort="quick")             measures at the first call of each shape on a GPU
    options = mt.tune(f, x, w, show=True)         measures now; the options can be written into a program

In: how to build a program under given options, candidates, what the right answer is. Out: a `Tuning`,
one trial a candidate. The one idea: a cost model proposes, the clock decides. The first candidate is
what the model chose. All are compiled side by side, in threads; then one after the other runs, and
only an answer that is close to the reference's may win. One that differs, or does not compile (too
much shared memory for a tile), is out, and the table says why.

What has won is kept on the disk (minitri/base/disk_cache.py). Left out: anything cleverer than a short list.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from minitri.base.tables import milliseconds, table
from minitri.hardware.chips import H200, Chip
from minitri.kernels.ir import Dot, Kernel, Plan
from minitri.optimize.schedules import attention, products
from minitri.optimize.schedules.block_sizes import contiguity, filled, innermost
from minitri.optimize.schedules.request import Request
from minitri.optimize.schedules.rules import schedule
from minitri.runtime.arguments import view
from minitri.runtime.timing import Timing, measure
from minitri.tiles.schedule import Options, Schedule

QUICK, QUICK_SECONDS = 8, 8.0  # candidates, and for how long they may compile
REPEATS = {"quick": 10, "full": 50}
HEAD = ("blocks", "warps", "stages", "group", "descriptors", "persistent", "registers", "time", "")

Run = Callable[[], Any]
Build = Callable[[Options], Run]  # compiles; what it returns launches
Tell = Callable[[int, int], None]  # how many candidates are done, of how many


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
        """The fastest; the first if nothing could be measured."""
        timed = [t for t in self.trials if t.timing is not None]
        return min(timed, key=lambda t: t.timing.median if t.timing else 0.0, default=self.trials[0])

    @property
    def summary(self) -> str:
        """`8 schedules, fastest 0.120 ms, 1.31 times as fast as the first; 2 failed, 1 was wrong`."""
        best, first = self.best.timing, self.trials[0].timing
        parts = [f"{len(self.trials)} schedules"]
        if best is not None:
            parts.append(f"fastest {milliseconds(best.median)}")
        if best is not None and first is not None:
            parts.append(f"{first.median / best.median:.2f} times as fast as the model's")
        wrong = sum(t.note == DIFFERENT for t in self.trials)
        failed = sum(t.timing is None for t in self.trials) - wrong
        faults = [f"{failed} failed"] * bool(failed) + [f"{wrong} gave a different answer"] * bool(wrong)
        return "; ".join([", ".join(parts), *faults])

    def __str__(self) -> str:
        return table([HEAD, *map(self._row, self.trials)])

    def _row(self, trial: Trial) -> tuple[str, ...]:
        o = trial.options
        blocks = " ".join(f"{name}={block}" for name, block in o.blocks.items()) or "by rule"
        time = milliseconds(trial.timing.median) if trial.timing else "-"
        note = "fastest" if trial is self.best and trial.timing else trial.note
        descriptors = "rule" if o.descriptors is None else "yes" if o.descriptors else "no"
        counts = [str(n or "rule") for n in (o.warps, o.stages, o.group)]
        return (blocks, *counts, descriptors, str(o.persistent or "rule"), str(o.registers or "rule"), time, note)


DIFFERENT = "a different answer"


def trials(
    build: Build, candidates: Sequence[Options], expected: Any, device: str, repeats: int = 20,
    seconds: float = float("inf"), tell: Tell = lambda done, of: None, scale: Any = None,
) -> Tuning:  # fmt: skip
    """Every candidate that is compiled within `seconds` and right (`close`), measured. What still compiles then goes
    on by itself; a process waits for it when it ends."""
    is_right = partial(close, expected=expected, scale=scale)
    deadline = time.monotonic() + seconds
    tried: list[Trial] = []
    one_by_one = device == "cpu"  # where what is made would be in the way of what runs
    pool = ThreadPoolExecutor(1 if one_by_one else min(len(candidates), os.cpu_count() or 1))
    try:
        submitted = (pool.submit(build, o) for o in candidates)
        built = submitted if one_by_one else list(submitted)
        for o, future in zip(candidates, built):
            if tried and time.monotonic() > deadline and not future.done():
                future.cancel()
                continue
            left = max(deadline - time.monotonic(), 0.0) if tried else None
            tried.append(_try(o, partial(_made, future, left), is_right, device, repeats))
            tell(len(tried), len(candidates))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # what still compiles is not waited for
    return Tuning(tuple(tried))


def _made(future: Future[Run], seconds: float | None) -> Run:
    try:
        return future.result(None if seconds is None or math.isinf(seconds) else seconds)
    except TimeoutError:
        raise RuntimeError("compiles for too long") from None


def _try(
    options: Options, made: Callable[[], Run], is_right: Callable[[Any], bool], device: str, repeats: int
) -> Trial:
    try:
        run = made()
        if not is_right(run()):
            return Trial(options, None, DIFFERENT)
        return Trial(options, measure(run, device, repeats, warmup=1))
    except Exception as error:  # Triton's compiler and driver raise many kinds
        return Trial(options, None, first_line(error))


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:70]


def close(result: Any, expected: Any, scale: Any = None) -> bool:
    """Equal except for rounding errors.

    The tolerance is a few units of an element, and of the root of its row's mean square. If known, it also covers
    `scale`, the size of the operands (trust/magnitudes.py).
    """
    if isinstance(expected, tuple):
        scales = scale if scale is not None else (None,) * len(expected)
        return all(map(close, result, expected, scales))
    import torch

    got, wanted = _tensor(result), _tensor(expected)
    if got.shape != wanted.shape or not wanted.numel() or not wanted.is_floating_point():
        return torch.equal(got, wanted)
    units = _units(torch.finfo(wanted.dtype).eps)
    if wanted.dtype != torch.float64:
        got, wanted = got.float(), wanted.float()
    size = torch.nan_to_num(wanted, 0.0, 0.0, 0.0).abs()
    rows = size.reshape(-1, size.shape[-1] if size.dim() else 1)
    most = rows.amax(dim=-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    rows = rows + most * (rows / most).square().mean(dim=-1, keepdim=True).sqrt()
    apart = units * rows.reshape(size.shape)
    if scale is not None:
        made = _tensor(scale)
        apart += _units(torch.finfo(made.dtype).eps) * torch.nan_to_num(made, 0.0, 0.0)
    same = (got == wanted) | (got.isnan() & wanted.isnan())  # inf too
    return bool((same | ((got - wanted).abs() <= apart)).all())


def _tensor(array: Any) -> Any:
    """A result as a tensor on its own device: to bring a large one to the CPU takes longer than all measurements."""
    import torch

    if isinstance(array, torch.Tensor):
        return array
    found = np.ascontiguousarray(view(array, "result").numpy())
    bits = found.view(np.int16) if found.dtype == ml_dtypes.bfloat16 else found  # torch does not know this dtype
    return torch.from_numpy(bits).view(torch.bfloat16) if bits is not found else torch.from_numpy(found)


def _units(eps: float) -> float:
    """What the order of sums may change, as a part of what is summed up."""
    return eps * (4 if eps > 1e-4 else 64)


# ---- what to try -----------------------------------------------------------------------


def propose(plan: Plan, interpreter: bool, effort: str = "quick", chip: Chip = H200) -> list[Options]:
    """A short list for a plan, led by its kernel with most work: a product if there is one. `chip`: what it runs on."""
    if not plan.kernels:
        return []
    kernel = max(plan.kernels, key=lambda k: (any(isinstance(op, Dot) for op in k.body), len(k.axes), len(k.body)))
    dots = kernel.dots
    if kernel.shared_loop is not None:
        found = _looped(kernel, dots[0], interpreter, chip)
    elif dots:
        found = _products(kernel, dots, interpreter, chip)
    else:
        found = _rows(kernel, interpreter, chip) if kernel.reduced else _elementwise(kernel, interpreter, chip)
    return found[: QUICK - 1] if effort == "quick" else found


def _products(kernel: Kernel, dots: Sequence[Dot], interpreter: bool, chip: Chip) -> list[Options]:
    dot = dots[0]
    row, column = dot.tile
    if interpreter:
        return [Options({row: n, column: n, dot.over: n}, stages=1, group=1) for n in (16, 32, 64, 128)]
    chosen = schedule(kernel, Request(chip))
    rows = chosen.axes[row][1]
    many = rows > products.FEW_ROWS and dot.on_tensor_cores and products.are_described(dot)
    described = many or products.is_transposed(kernel)  # else descriptors read no factors
    made = [_tiled(dot, t, described) for t in products.candidates(kernel, rows, chip)]
    turns = products.turning(kernel, chip) if many and not chosen.persistent else None
    first = [replace(_tiled(dot, turns.tile, True), persistent=turns.persistent)] if turns else []
    return first + [o for o in made if not _is(chosen, o)]


def _tiled(dot: Dot, tile: products.Tile, described: bool) -> Options:
    row, column = dot.tile
    blocks = {row: tile.rows, column: tile.columns, dot.over: tile.depth}
    return Options(blocks, tile.warps, tile.stages, 8, descriptors=described or None)


def _looped(kernel: Kernel, dot: Dot, interpreter: bool, chip: Chip) -> list[Options]:
    """Rows of a program, and elements of the loop in an iteration."""
    row, loop = dot.tile[0], kernel.shared_loop or ""
    if interpreter:
        return [Options({row: n, loop: n}) for n in (16, 32, 64, 128)]
    made = [Options({row: r.rows, loop: r.block}, r.warps, r.stages, descriptors=r.descriptors or None,
                    registers=r.registers or None)
            for r in attention.CANDIDATES]  # fmt: skip
    chosen = schedule(kernel, Request(chip))
    return [o for o in made if not _is(chosen, o)]


def _is(chosen: Schedule, options: Options) -> bool:
    """Whether these options are what the model chose: that is measured in any case."""
    if chosen.persistent:
        return False
    same = all(chosen.axes[name][1] == block for name, block in options.blocks.items())
    how = (chosen.warps, chosen.stages, chosen.descriptors, chosen.registers)
    return same and how == (options.warps, options.stages, bool(options.descriptors), options.registers or 0)


def _rows(kernel: Kernel, interpreter: bool, chip: Chip) -> list[Options]:
    """More and fewer warps than the model takes; a quarter of its rows a program, and four times as many; a looped
    axis in larger and smaller blocks."""
    chosen = schedule(kernel, Request(chip, interpreter))
    looped = {name: block for name, (role, block) in chosen.axes.items() if role == "loop" and block > 1}
    blocks: list[dict[str, int]] = [{}]
    if looped:
        blocks += [{name: block * 2} for name, block in looped.items()]
        blocks += [{name: block // 2} for name, block in looped.items()]
    elif kernel.parallel:
        rows = math.prod(chosen.axes[a.name][1] for a in kernel.parallel)
        order = innermost(kernel.parallel, contiguity(kernel))
        blocks += [filled(order, n) for n in sorted({max(1, rows // 4), rows * 4} - {rows})]
    else:
        blocks += [{name: block // 2} for name, (_, block) in chosen.axes.items() if block > 1]
    counts = (4,) if interpreter else (chosen.warps, *_near(chosen.warps))
    return [Options(b, warps=w) for b in blocks for w in counts if b or w != chosen.warps]


def _near(warps: int) -> list[int]:
    return [w for w in (warps * 2, warps // 2, warps * 4) if 1 <= w <= 32]


TILES = (  # of two axes and warps: at most 128 elements a thread, of which there is not too much code to compile
    (128, 128, 8), (64, 64, 4), (128, 64, 8), (64, 128, 8), (32, 64, 4), (64, 32, 4), (64, 64, 8), (128, 128, 4),
    (32, 128, 4), (128, 32, 4), (32, 32, 4), (256, 64, 8), (64, 256, 8),
)  # fmt: skip


def _elementwise(kernel: Kernel, interpreter: bool, chip: Chip) -> list[Options]:
    chosen = schedule(kernel, Request(chip, interpreter))
    if not chosen.axes:
        return []
    tile = [a for a in innermost(kernel.axes, contiguity(kernel)) if chosen.axes[a.name][1] > 1]
    if len(tile) > 1 and not interpreter:
        one, other = (a for a in kernel.axes if a in tile[:2])
        sides = [(filled([one], m) | filled([other], n), m * n, w) for m, n, w in TILES]
        made = [Options(filled(tile, elements, blocks), warps=w) for blocks, elements, w in sides]
        distinct = [o for k, o in enumerate(made) if o not in made[:k]]
        return [o for o in distinct if not _is(chosen, replace(o, stages=chosen.stages))]
    widest = max(chosen.axes, key=lambda name: chosen.axes[name][1])
    sizes = (256, 4096, 65536) if interpreter else (512, 1024, 2048, 4096)
    counts = (4,) if interpreter else (4, 8)
    return [Options({widest: n}, warps=w) for n in sizes for w in counts]
