"""Measured schedules for programs: when schedules are measured, which results count as right, and what is cached.

The function `tune` takes a program, the arrays of a call, and an effort (how many schedules to measure). The function
`tune` returns the fastest `Options` (settings for schedules). The file minitri/runtime/schedule_search.py measures
several `Options`, the candidates. A candidate counts as right if its result is close to the result of the program
without optimisations. The function `chosen` caches the fastest options for a call on disk. The cache key contains the
program, the sizes, strides and dtypes, the GPU and the version of Triton. With `effort="full"`, options that
`effort="quick"` measured and cached are not used.

For general kernels, the cost model chooses the schedules, without measurements. A general kernel serves all shapes of a
program that was called with many shapes.
"""

import hashlib
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from minitri.base import json_disk_cache, pass_logs
from minitri.base.diagnostics import CompileError, ensure
from minitri.base.tracebacks import hides_frames
from minitri.base_program import BaseProgram, check_effort, with_measured
from minitri.hardware.chips import chip_of
from minitri.hardware.targets import Target
from minitri.language.ast_dump import format_module
from minitri.pipeline import Compilation, Context
from minitri.runtime.array_interop import returned
from minitri.runtime.call_binding import Call
from minitri.runtime.launch import Bound, Executable, beside, target_of
from minitri.runtime.schedule_search import QUICK_SECONDS, REPEATS, Tuning, propose, trials
from minitri.tiles.schedule import Options
from minitri.trust.first_order_error import magnitude
from minitri.trust.run_stage import launchable

VERSION = 3  # part of the cache key; a new number makes old choices invalid


@hides_frames
def tune(
    program: BaseProgram, *arrays: Any, effort: str = "quick", candidates: Sequence[Options] | None = None,
    repeats: int | None = None, show: bool = False, **named: Any,
) -> Options:  # fmt: skip
    """Measures schedules now, and returns the fastest options for the call `program(*arrays, **named)`.

    `effort`: "quick" measures 8 candidates in about 10 seconds. "full" measures all candidates.
    `candidates`: the options to measure. If `candidates` is None, `effort` chooses the options.
    `repeats`: the number of measurements of each candidate.
    `show`: whether to print a table of the measured candidates.

    `program.configured(options=…)` makes a program with these options. Raises the CompileErrors that a call of the
    program raises.
    """
    tuning = measured(program, *arrays, effort=effort, candidates=candidates, repeats=repeats, **named)
    if show:
        print(tuning)
    return tuning.best.options


def measured(
    program: BaseProgram, *arrays: Any, effort: str = "quick", candidates: Sequence[Options] | None = None,
    repeats: int | None = None, **named: Any,
) -> Tuning:  # fmt: skip
    """Measures the time of a call with each of several candidate `Options`. Returns each candidate with its time, or
    with the reason why it has no time.
    """
    check_effort(effort)
    are_options = all(isinstance(o, Options) for o in candidates or ())
    ensure(are_options, "MT0404", "candidates are no options", "write `candidates=[mt.Options(warps=4), …]`")
    ensure(repeats is None or repeats >= 1, "MT0404", f"repeats cannot be {repeats}", "write a whole number from 1")
    run, call = program.prepare(*arrays, **named)
    given, seconds = _arguments(call), QUICK_SECONDS if effort == "quick" and candidates is None else float("inf")
    if candidates is None:
        candidates = propose(run.plan, call.device == "cpu", effort, chip_of(target_of(call.device)))

    def build(options: Options) -> Bound:
        return program.configured(options=options, effort="none").bind(**given)

    def progress(done: int, of: int) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[Ktuning {program.name}: {done} of {of} schedules", end="", file=sys.stderr, flush=True)

    expected, scale, every = _reference(program, given), _scale(program, call), (program.options, *candidates)
    repeats = repeats or REPEATS.get(effort, 10)
    tuning = trials(build, every, expected, call.device, repeats, seconds, progress, scale)
    pass_logs.log("autotune", f"{program.name}, {_shapes(call)}\n{tuning}\nchosen: {tuning.best.options}")
    if sys.stderr.isatty():
        print(f"\r\033[Ktuned {program.name}: {tuning.summary}", file=sys.stderr)
    return tuning


def chosen(program: BaseProgram, call: Call, context: Context, build: Callable[[Options], Executable]) -> Executable:
    """Returns the `Executable` that `build` makes with the fastest options for a call.

    The options come from the disk cache. If the disk cache has no options for the call, schedules are measured now, and
    the fastest options are cached.
    """
    key, built = _key(program, call, context), None
    if (options := _options(json_disk_cache.get("autotune", key))) is not None:
        with suppress(CompileError):  # the cached options were chosen for other kernels
            built = build(options)
            pass_logs.log("autotune", f"{program.name}, {_shapes(call)}\nkept in {json_disk_cache.folder()}: {options}")
    if options is None or built is None:
        best = measured(program.configured(effort="none"), effort=program.effort, **_arguments(call)).best
        options = best.options
        if best.timing is not None:
            json_disk_cache.put("autotune", key, asdict(options))
        built = build(options)
    program.choices.pop(context.key, None)
    program.choices.made(context.key, lambda: options)
    return built


def known_options(program: BaseProgram, call: Call, target: Target | None) -> tuple[Options | None, str]:
    """Returns the options that a call on a GPU uses, and a line of text about the options. This function measures
    nothing.

    The returned options are None if the cost model chooses the schedules. The parameter `target` is None if no array is
    on a GPU.
    """
    if target is None:
        return None, f'schedules: the model\'s; effort "{program.effort}" measures them for arrays on a GPU'
    call = beside(call)
    context = program.context(call, target)
    found, kept = program.choices.get(context.key), "in this process"
    if found is None:
        found = _options(json_disk_cache.get("autotune", _key(program, call, context)))
        kept = f"in {json_disk_cache.folder()}"
    if found is not None:
        with suppress(CompileError):  # the cached options were chosen for other kernels
            context = with_measured(context, found)
            program.compilation(context).value("triton")
            return context.options, f"schedules: measured, kept {kept}: {found}"
    return None, f'schedules: the model\'s; none is measured yet, effort "{program.effort}" does it at the first call'


def _arguments(call: Call) -> dict[str, Any]:
    """Returns the arguments of a call, by the name of the parameter."""
    return {**{n: a.owner for n, a in call.arrays.items()}, **call.scalars, **call.instance.statics}


def _reference(program: BaseProgram, given: dict[str, Any]) -> Any:
    """Returns the reference result: the result of the program compiled without any optimisation."""
    try:
        return program.configured(without=("all",), options=Options(), effort="none")(**given)
    except CompileError:
        raise
    except Exception:  # not enough GPU memory, or shared memory for a tile
        return program.configured(effort="none")(**given)


def _scale(program: BaseProgram, call: Call) -> Any:
    """Returns the scale of the rounding errors of each element of the result, or None."""
    # the program may have no graph, or memory may be too small
    with suppress(Exception):
        context = replace(program.context(call, target_of(call.device)), options=Options())
        # minitri/trust/first_order_error.py explains this
        compilation = Compilation(context, {"graph": magnitude(program.graph(call.instance))})
        return returned(launchable(compilation, context.target)(call))
    return None


def _key(program: BaseProgram, call: Call, context: Context) -> dict[str, Any]:
    import torch
    import triton

    text = f"{format_module(program.module)}\n{program.name}\n{sorted(program.without)}\n{program.options}"
    arrays = [[n, str(a.dtype), a.shape, a.strides, a.address % 16] for n, a in call.arrays.items()]
    return {
        "program": hashlib.sha256(text.encode()).hexdigest(), "arrays": arrays, "statics": repr(context.instance.statics),
        "gpu": torch.cuda.get_device_name(call.device), "triton": triton.__version__,
        "version": VERSION, "effort": program.effort,
    }  # fmt: skip


def _options(kept: Any) -> Options | None:
    """Returns the options that were read from the disk cache, or None if they are invalid."""
    with suppress(TypeError, CompileError):
        return Options(**kept)


def _shapes(call: Call) -> str:
    return ", ".join(f"{n}: {a}" for n, a in call.arrays.items())
