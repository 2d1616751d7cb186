"""Autotuning: finds the fastest schedule by measuring.

    f = mt.compile(…, effort="quick")             measures at the first call of each shape on a GPU
    options = mt.tune(f, x, w, show=True)         measures now; the options can be written into a program

The function `trials` takes a function that compiles a program, the options to try (candidates), and the right result.
The returned `Tuning` has one trial (a measured time or an error) for each candidate.

The one idea: a cost model proposes candidates, and measurements decide. The first candidate is the choice of the cost
model. For a GPU, threads compile all candidates at the same time. The measured runs of the candidates do not overlap.
Only a candidate whose result is close to the reference can win. A candidate with a wrong result is rejected, and so is
a candidate that does not compile. The printed table of candidates says why a candidate was rejected: for example,
because its tile needs too much shared memory.

The options of the fastest candidate are cached on disk (minitri/base/json_disk_cache.py). If the caller gives no
candidates, the search tries only the short list that the function `propose` returns.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from minitri.base.text_tables import milliseconds, table
from minitri.hardware.chips import H200, Chip
from minitri.kernels.ir import Dot, Kernel, Plan
from minitri.optimize.schedules import attention, products
from minitri.optimize.schedules.block_sizes import contiguity, filled, innermost
from minitri.optimize.schedules.rule_arguments import Request
from minitri.optimize.schedules.rule_table import schedule
from minitri.runtime.array_interop import as_tensor, view
from minitri.runtime.timing import Timing, measure
from minitri.tiles.schedule import Options, Schedule

QUICK, QUICK_SECONDS = 8, 8.0  # the number of candidates, and the seconds that they may compile
REPEATS = {"quick": 10, "full": 50}
HEAD = ("blocks", "warps", "stages", "group", "descriptors", "persistent", "registers", "time", "")

Run = Callable[[], Any]


class Trial(NamedTuple):
    """One candidate (options for schedules) with its measured time. If `timing` is None, `note` says what is wrong with
    the candidate.
    """

    options: Options
    timing: Timing | None
    note: str = ""


class Tuning(NamedTuple):
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The fastest candidate, or the first candidate if no time could be measured."""
        timed = [t for t in self.trials if t.timing is not None]
        return min(timed, key=lambda t: t.timing.median if t.timing else 0.0, default=self.trials[0])

    @property
    def summary(self) -> str:
        """Returns one line about all trials.

        The line compares the fastest schedule with the cost model's schedule, as in `8 schedules, fastest 0.120 ms,
        1.31 times as fast as the model's; 2 failed`.
        """
        best, first = self.best.timing, self.trials[0].timing
        text = f"{len(self.trials)} schedules"
        text += f", fastest {milliseconds(best.median)}" if best else ""
        text += f", {first.median / best.median:.2f} times as fast as the model's" if best and first else ""
        wrong = sum(t.note == DIFFERENT for t in self.trials)
        failed = sum(t.timing is None for t in self.trials) - wrong
        return text + f"; {failed} failed" * bool(failed) + f"; {wrong} gave a different answer" * bool(wrong)

    def __str__(self) -> str:
        return table([HEAD, *map(self._row, self.trials)])

    def _row(self, trial: Trial) -> tuple[str, ...]:
        o = trial.options
        blocks = " ".join(f"{name}={block}" for name, block in o.blocks.items()) or "by rule"
        time = milliseconds(trial.timing.median) if trial.timing else "-"
        note = "fastest" if trial is self.best and trial.timing else trial.note
        descriptors = {True: "yes", False: "no", None: "rule"}[o.descriptors]
        chosen = (o.warps, o.stages, o.group, descriptors, o.persistent, o.registers)
        return (blocks, *(str(choice or "rule") for choice in chosen), time, note)


DIFFERENT = "a different answer"


def trials(
    build: Callable[[Options], Run], candidates: Sequence[Options], expected: Any, device: str, repeats: int = 20,
    seconds: float = math.inf, progress: Callable[[int, int], None] = lambda done, of: None, scale: Any = None,
) -> Tuning:  # fmt: skip
    """Compiles and measures the candidates, and compares each result with `expected`.

    `build`: a function that compiles a candidate. `build` returns a function that launches the compiled candidate.
    `seconds`: the time limit for compilation. Candidates that are not compiled in time are left out. For the first
        candidate, there is no time limit.
    `scale`: the scale of the rounding errors of each element of the result. A larger `scale` gives the comparison
        (`close`) a larger tolerance.
    `progress`: a function that reports progress. The arguments of `progress` are the number of finished candidates and
        the number of all candidates.

    A compilation that is not finished in time continues in its thread. Before the process exits, it waits for
    unfinished compilations.
    """

    def trial(options: Options, future: Future[Run], seconds: float | None) -> Trial:
        try:
            run = future.result(seconds)
            right = close(run(), expected, scale)
            return Trial(options, measure(run, device, repeats, warmup=1)) if right else Trial(options, None, DIFFERENT)
        except TimeoutError:
            return Trial(options, None, "compiles for too long")
        except Exception as error:  # Triton's compiler and driver raise many types
            return Trial(options, None, first_line(error))

    deadline = time.monotonic() + seconds
    tried: list[Trial] = []
    one_by_one = device == "cpu"  # compilation in other threads would slow down the measurement
    pool = ThreadPoolExecutor(1 if one_by_one else min(len(candidates), os.cpu_count() or 1))
    try:
        submitted = (pool.submit(build, o) for o in candidates)
        for o, future in zip(candidates, submitted if one_by_one else list(submitted)):
            left = max(deadline - time.monotonic(), 0.0) if tried and deadline < math.inf else None
            if left == 0 and not future.done():
                future.cancel()
                continue
            tried.append(trial(o, future, left))
            progress(len(tried), len(candidates))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # does not wait for candidates that still compile
    return Tuning(tuple(tried))


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:70]


def close(result: Any, expected: Any, scale: Any = None) -> bool:
    """Checks whether a result equals the expected result, except for rounding errors.

    For an element x in a row with the root mean square r, the tolerance is a few units in the last place of |x| + r. If
    `scale` is given, the tolerance also includes a few units in the last place of `scale`
    (minitri/trust/first_order_error.py).
    """
    if isinstance(expected, tuple):
        return all(map(close, result, expected, (None,) * len(expected) if scale is None else scale))
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
    tolerance = units * rows.reshape(size.shape)
    if scale is not None:
        made = _tensor(scale)
        tolerance += _units(torch.finfo(made.dtype).eps) * torch.nan_to_num(made, 0.0, 0.0)
    same = (got == wanted) | (got.isnan() & wanted.isnan())  # infinities are equal too
    return bool((same | ((got - wanted).abs() <= tolerance)).all())


def _tensor(array: Any) -> Any:
    """Returns the result of a program as a torch tensor on the same device."""
    import torch

    # copying a large result to the CPU would take longer than all measurements
    return array if isinstance(array, torch.Tensor) else as_tensor(np.ascontiguousarray(view(array, "result").numpy()))


def _units(eps: float) -> float:
    """Returns the relative error that a different order of additions can cause in a sum."""
    return eps * (4 if eps > 1e-4 else 64)


# ---- candidates ------------------------------------------------------------------------


def propose(plan: Plan, interpreter: bool, effort: str = "quick", chip: Chip = H200) -> list[Options]:
    """Returns a short list of schedule options to measure. The options change the schedule of only one kernel of a
    plan: the kernel that probably takes longest. To guess the slowest kernel, the function compares three properties in
    this order: the presence of a matrix product, the number of axes, and the number of ops.

    `chip` describes the GPU that the program runs on.
    """
    if not plan.kernels:
        return []
    kernel = max(plan.kernels, key=lambda k: (any(isinstance(op, Dot) for op in k.body), len(k.axes), len(k.body)))
    candidates = _products if kernel.dots else _rows if kernel.reduced else _elementwise
    found = (_looped if kernel.shared_loop is not None else candidates)(kernel, interpreter, chip)
    return found[: QUICK - 1] if effort == "quick" else found


def _products(kernel: Kernel, interpreter: bool, chip: Chip) -> list[Options]:
    dot, (row, column) = kernel.dots[0], kernel.dots[0].tile
    if interpreter:
        return [Options({row: n, column: n, dot.over: n}, stages=1, group=1) for n in (16, 32, 64, 128)]
    chosen = schedule(kernel, Request(chip))
    rows = chosen.axes[row][1]
    many = rows > products.FEW_ROWS and dot.on_tensor_cores and products.are_described(dot)
    described = many or products.is_transposed(kernel)  # tensor descriptors only read the factors of these products

    def tiled(tile: products.Tile) -> Options:
        blocks = {row: tile.rows, column: tile.columns, dot.over: tile.depth}
        return Options(blocks, tile.warps, tile.stages, 8, descriptors=described or None)

    turns = products.persistent_choice(kernel, chip) if many and not chosen.persistent else None
    first = [replace(tiled(turns.tile), persistent=turns.persistent)] if turns else []
    made = map(tiled, products.candidates(kernel, rows, chip))
    return first + [o for o in made if not _is_choice(chosen, o)]


def _looped(kernel: Kernel, interpreter: bool, chip: Chip) -> list[Options]:
    """Returns candidate options for a kernel whose reductions share one loop."""
    row, loop = kernel.dots[0].tile[0], kernel.shared_loop or ""
    if interpreter:
        return [Options({row: n, loop: n}) for n in (16, 32, 64, 128)]
    chosen, rows = schedule(kernel, Request(chip)), attention.CANDIDATES
    hints = [{"descriptors": r.descriptors or None, "registers": r.registers or None} for r in rows]
    made = [Options({row: r.rows, loop: r.block}, r.warps, r.stages, **more) for r, more in zip(rows, hints)]
    return [o for o in made if not _is_choice(chosen, o)]


def _is_choice(chosen: Schedule, options: Options) -> bool:
    """Checks whether the given options equal the cost model's choice."""
    if chosen.persistent:
        return False
    # the cost model's choice is the first candidate, so equal options are not measured again
    same = all(chosen.axes[name][1] == block for name, block in options.blocks.items())
    how = (chosen.warps, chosen.stages, chosen.descriptors, chosen.registers)
    return same and how == (options.warps, options.stages, bool(options.descriptors), options.registers or 0)


def _rows(kernel: Kernel, interpreter: bool, chip: Chip) -> list[Options]:
    """Returns candidate options for a kernel with reductions."""
    chosen = schedule(kernel, Request(chip, interpreter))
    looped = {name: block for name, (role, block) in chosen.axes.items() if role == "loop" and block > 1}
    blocks: list[dict[str, int]] = [{}]
    if looped:
        blocks += [{name: int(block * factor)} for factor in (2, 0.5) for name, block in looped.items()]
    elif kernel.parallel:
        # a quarter of the rows, or four times as many
        rows = math.prod(chosen.axes[a.name][1] for a in kernel.parallel)
        order = innermost(kernel.parallel, contiguity(kernel))
        blocks += [filled(order, n) for n in sorted({max(1, rows // 4), rows * 4} - {rows})]
    else:
        blocks += [{name: block // 2} for name, (_, block) in chosen.axes.items() if block > 1]
    warps = chosen.warps
    counts = (4,) if interpreter else [warps, *(w for w in (warps * 2, warps // 2, warps * 4) if 1 <= w <= 32)]
    return [Options(b, warps=w) for b in blocks for w in counts if b or w != warps]


def _elementwise(kernel: Kernel, interpreter: bool, chip: Chip) -> list[Options]:
    chosen = schedule(kernel, Request(chip, interpreter))
    if not chosen.axes:
        return []
    tile = [a for a in innermost(kernel.axes, contiguity(kernel)) if chosen.axes[a.name][1] > 1]
    if len(tile) > 1 and not interpreter:
        one, other = (a for a in kernel.axes if a in tile[:2])
        sizes = products.TABLE["elementwise"]["tiles"]
        made = [Options(filled(tile, m * n, filled([one], m) | filled([other], n)), warps=w) for m, n, w in sizes]
        distinct = [o for k, o in enumerate(made) if o not in made[:k]]
        return [o for o in distinct if not _is_choice(chosen, replace(o, stages=chosen.stages))]
    widest = max(chosen.axes, key=lambda name: chosen.axes[name][1])
    sizes = (256, 4096, 65536) if interpreter else (512, 1024, 2048, 4096)
    counts = (4,) if interpreter else (4, 8)
    return [Options({widest: n}, warps=w) for n in sizes for w in counts]
