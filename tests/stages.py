"""Runs one call at every stage and finds reads and writes outside arrays, with poison in and around the arrays.

In: the text and types of a program, and arrays. Out: the results of each stage, as numpy arrays.
Outputs and temporaries are allocated between guard bands and filled with poison. Each call runs
twice with different poison. So an element that no kernel writes, or one that is read before it is
written, shows as a difference. The memory of every input must be the same afterwards.

The schedules, all run in Triton's interpreter:

    own             the interpreter's schedule
    small           blocks of 2 to 8, so that small arrays have many tiles and long loops
    bare            without the optional passes
    cuda            the kernel that a GPU gets for these sizes
    cuda general    the kernel for any sizes
    cuda wide       the kernel for any sizes, with 64-bit offsets
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from strategies import memory

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.base.types import bool_
from minitri.hardware.targets import INTERPRETER
from minitri.program import Program
from minitri.runtime import launch
from minitri.runtime.array_interop import ArrayView, Numbers, strided, view
from minitri.runtime.call_binding import bind
from minitri.tiles.schedule import Options
from minitri.trust.check_passes import compilation
from minitri.trust.run_stage import launchable, results as evaluated

CPU_STAGES = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton")


class Everywhere(dict[str, int]):
    """Small blocks for every axis name. As a mapping it is empty, so no name counts as unknown."""

    def get(self, name: str, default: int | None = None) -> int:  # type: ignore[override]
        return 8 if name in "ijr" else 2


SPLITS = ("collapse-reduced-axes", "split-reduction", "split-kv", "split-k", "split-scan")  # passes that add kernels
SMALL = Options(blocks=Everywhere())
VARIANTS: dict[str, dict[str, Any]] = {"small": {"options": SMALL}, "bare": {"without": ("all",)}}
GUARD = 64  # elements before and after each output; the size keeps its alignment
POISONS = (0xA5, 0x5A)


@functools.lru_cache(maxsize=512)
def program(text: str, types: tuple[tuple[str, str], ...], schedule: str = "own") -> Program:
    return mt.compile(text, **dict(types)).configured(**VARIANTS.get(schedule, {}))


def results(
    text: str, types: Mapping[str, str], arrays: Sequence[Any], on: str = "cpu", schedule: str = "own"
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields (stage, outputs) for each stage."""
    f = program(text, tuple(types.items()), schedule)
    before = [memory(a).tobytes("A") for a in arrays]
    if on == "gpu":
        yield "gpu", _on_gpu(f, arrays)
    else:
        for stage in CPU_STAGES[:4] if schedule.startswith("cuda") else CPU_STAGES:
            run = functools.partial(f.run, stage, *arrays)
            yield stage, _twice(run) if stage == "triton" else _quietly(run)
        if schedule.startswith("cuda"):
            yield from _scheduled(f, arrays, schedule)
    assert before == [memory(a).tobytes("A") for a in arrays], "an input was written to"


def check(text: str, types: Mapping[str, str], arrays: Sequence[Any], wants: Sequence[Any], case: Any, on: str) -> None:
    """Asserts that every stage gives the expected results."""
    for stage, got in results(text, types, arrays, on, case.schedule):
        assert len(got) == len(wants), f"{stage}: {len(got)} results"
        for k, (g, want) in enumerate(zip(got, wants)):
            want.check(g, f"`{text}` {dict(types)} {case.schedule}: output {k} at stage {stage}")


def refuses(text: str, types: Mapping[str, str], arrays: Sequence[Any], code: str, on: str = "cpu") -> None:
    """Asserts that compiling, or else running each stage, raises a CompileError with one of these codes."""
    try:
        f = program(text, tuple(types.items()))
    except CompileError as error:
        assert error.code in code.split(), error
        return
    for stage in CPU_STAGES if on == "cpu" else ("gpu",):
        with pytest.raises(CompileError) as raised:
            f.run(stage, *arrays)
        assert raised.value.code in code.split(), (stage, raised.value)


# ---- the GPU's schedules in the interpreter --------------------------------------------------


def _scheduled(f: Program, arrays: Sequence[Any], schedule: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    call = bind(f.function, arrays, {})
    compiled = compilation(f, call, schedule)
    for stage in ("tile", "tile.masked", "tile.target"):
        yield stage, _quietly(functools.partial(evaluated, compiled, stage, call))
    run = launchable(compiled, INTERPRETER)
    yield "triton", _twice(lambda: tuple(v.numpy() for v in run(call)))


# ---- poison ----------------------------------------------------------------------------


def _twice(run: Callable[[], Any]) -> tuple[Any, ...]:
    """The results of a call. Asserts that it writes every byte of them and nothing outside."""
    found: list[tuple[Any, ...]] = []
    for poison in POISONS:
        with poisoned(poison):
            found.append(_quietly(run))
    for first, second in zip(*found):
        same = np.ascontiguousarray(first).tobytes() == np.ascontiguousarray(second).tobytes()
        assert same, "an element of the output depends on what was in memory"
    return found[0]


@contextlib.contextmanager
def poisoned(poison: int) -> Iterator[None]:
    """Fills allocations, and the memory around them, with a byte. The memory around must not change."""
    made: list[tuple[Any, int]] = []

    def empty(like: ArrayView | None, dtype: Any, shape: Numbers, strides: Numbers) -> ArrayView:
        count = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
        if like is None or like.kind == "numpy":
            raw = np.full((count + 2 * GUARD) * dtype.bytes, poison, np.uint8)
            inside = strided(shape, strides, dtype.numpy, lambda n, kind: raw.view(kind)[GUARD : GUARD + n])
        else:
            import torch

            raw = torch.full(((count + 2 * GUARD) * dtype.bytes,), poison, dtype=torch.uint8, device=like.owner.device)
            flat = raw.view(getattr(torch, "bool" if dtype == bool_ else dtype.triton))[GUARD : GUARD + count]
            inside = flat.as_strided(shape, strides)
        made.append((raw, GUARD * dtype.bytes))
        return view(inside, "out")

    with mock.patch.object(launch, "empty", empty):
        yield
    assert made, "nothing was allocated through minitri.runtime.launch.empty"
    for raw, guard in made:
        assert bool((raw[:guard] == poison).all()) and bool((raw[-guard:] == poison).all()), "written out of bounds"


def _quietly(run: Callable[[], Any]) -> tuple[Any, ...]:
    """The results as a tuple, without numpy's warnings: overflow and NaN are valid results."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return _tuple(run())


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


# ---- the GPU ---------------------------------------------------------------------------


def _on_gpu(f: Program, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Calls a program with CUDA tensors that have the layouts of the arrays."""
    tensors = [tensor(a) for a in arrays]
    copies = [t.clone() for t in tensors]

    def call() -> tuple[Any, ...]:
        f._replays.kept.clear()  # a replayed call would allocate memory without poison
        f._replays.again = None
        return tuple(view(t, "out").numpy() for t in _tuple(f(*tensors)))

    out = _twice(call)
    for t, copy in zip(tensors, copies):
        assert (_bytes(t) == _bytes(copy)).all(), "an input was written to"
    return out


def _bytes(t: Any) -> Any:
    import torch

    return torch.cat([t.flatten()]).view(torch.uint8)  # `cat` copies: any stride is then fine


def tensor(array: Any) -> Any:
    """A CUDA tensor with the strides of a numpy array and the memory around it (torch has no negative strides)."""
    import torch

    if any(s < 0 for s in array.strides):
        array = array.copy()
    owner = memory(array)
    raw = torch.frombuffer(bytearray(owner.tobytes("A")) or bytearray(8), dtype=torch.uint8).cuda()
    dtype = torch.bool if array.dtype.kind == "b" else getattr(torch, str(array.dtype.name))
    item = array.dtype.itemsize
    start = (array.ctypes.data - owner.ctypes.data) // item if array.size else 0
    return torch.as_strided(raw.view(dtype), array.shape, [s // item for s in array.strides], start)
