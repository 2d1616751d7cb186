"""Runs a plan: allocates outputs and temporaries, launches its kernels in order.

In: an emitted plan and a `Call`. Out: the outputs. On a GPU the kernels go to the current
stream and nothing waits for them; on a CPU each runs in Triton's interpreter. Inputs are
only read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitri.backend import artifacts
from minitri.backend.artifacts import Target
from minitri.backend.emit import EmittedKernel
from minitri.backend.source import functions
from minitri.kernel.ir import Plan
from minitri.runtime.arguments import ArrayView, empty
from minitri.runtime.binding import Call
from minitri.runtime.memory import require_memory
from minitri.types import DType

Launcher = Callable[..., None]
Allocate = Callable[[ArrayView | None, DType, tuple[int, ...]], ArrayView]  # like, dtype, shape


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel with the function that launches it."""

    kernel: EmittedKernel
    launch: Launcher
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Executable:
    plan: Plan
    steps: tuple[Step, ...]
    interpreted: bool

    def __call__(self, call: Call, allocate: Allocate | None = None) -> list[ArrayView]:
        memory, numbers = self.memory(call, allocate), call.numbers
        with _on_device(call.model):
            for step in self.steps:
                self.launch(step, memory, call.scalars, numbers)
        return [memory[b.name] for b in self.plan.outputs]

    def memory(self, call: Call, allocate: Allocate | None = None) -> dict[str, ArrayView]:
        """The inputs, and new arrays for temporaries and outputs, by name."""
        allocate = allocate or empty
        made = (*self.plan.temporaries, *self.plan.outputs)
        shapes = {b: tuple(e.evaluate(call.sizes) for e in b.shape) for b in made}
        if call.model is None or call.model.device == "cpu":
            for b, shape in shapes.items():
                require_memory(b.dtype, shape)
        return dict(call.arrays) | {b.name: allocate(call.model, b.dtype, shape) for b, shape in shapes.items()}

    def launch(
        self, step: Step, memory: Mapping[str, ArrayView], scalars: Mapping[str, float], sizes: Mapping[str, int]
    ) -> None:
        kernel = step.kernel
        tiles = kernel.tiles.evaluate(sizes)
        if tiles == 0:
            return
        pointers = [_pointer(memory[b.name], self.interpreted) for b in kernel.pointers]
        numbers = [d.evaluate(sizes) for d in kernel.sizes]
        floats = [scalars[b.name] for b in kernel.scalars]
        step.launch((tiles,), *pointers, *numbers, *floats, **step.options)


def _on_device(like: ArrayView | None) -> AbstractContextManager[Any]:
    """Kernels go to the GPU that holds the arguments, whichever is current."""
    if like is None or like.device == "cpu":
        return nullcontext()
    import torch

    return torch.cuda.device(like.owner.device)


def executable(plan: Plan, kernels: Sequence[EmittedKernel], text: str, target: Target) -> Executable:
    """Makes the launchers: jit-compiled functions, or the interpreter around plain ones."""
    artifacts.require_triton()
    if target.kind == "interpreter":
        made = _interpreted(text)
        return Executable(plan, tuple(Step(k, made[k.name], {}) for k in kernels), True)
    jitted = artifacts.jit_functions(text)

    def launcher(name: str) -> Launcher:
        kernel = jitted[name]
        return lambda grid, *args, **options: kernel[grid](*args, **options)

    steps = (Step(k, launcher(k.name), target.compile_options(k)) for k in kernels)
    return Executable(plan, tuple(steps), False)


def _interpreted(text: str) -> dict[str, Launcher]:
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    from minitri.backend import interpreted

    namespace = {"tl": tl, "rt": interpreted.rt, "libdevice": interpreted.libdevice}
    made: dict[str, Launcher] = {}
    for name, function in functions(text, namespace).items():
        made[name] = _quiet(InterpretedFunction(function))
    return made


def _quiet(function: Any) -> Launcher:
    """Overflow and nan are results here, not warnings."""

    def launch(grid: tuple[int, ...], *args: Any) -> None:
        with np.errstate(all="ignore"):
            function[grid](*args)

    return launch


def _pointer(array: ArrayView, interpreted: bool) -> Any:
    return HostPointer(array) if interpreted else array.owner


class HostPointer:
    """What the interpreter wants of an argument: an address and a dtype.

    It asks in torch's words; answering them here lets numpy arrays with any strides run, and
    spares importing torch. The "storage" is the memory itself, so there is nothing to copy.
    """

    def __init__(self, array: ArrayView) -> None:
        self.array = array
        self.dtype = "torch." + ("bool" if array.dtype.kind == "b" else array.dtype.triton)

    def data_ptr(self) -> int:
        return self.array.address

    def untyped_storage(self) -> HostPointer:
        return self

    def cpu(self) -> HostPointer:
        return self

    def new_empty(self, *size: int, device: str = "cpu") -> HostPointer:
        return HostPointer(self.array)

    def set_(self, *_: Any) -> HostPointer:
        return self

    def copy_(self, other: Any) -> HostPointer:
        return self

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return self.array.strides
