"""Runs a plan: allocates outputs and temporaries, and launches the kernels in order.

The function `executable` takes a plan and its emitted kernels. The result is an `Executable`. The `Executable` takes a
`Call` (the arguments of one call), runs the kernels and returns the outputs. On a GPU, kernels run on the current
stream, and the call returns before the kernels end. On a CPU, each kernel runs in Triton's interpreter. No kernel
writes to an input. Results stay on the device of the arguments. This module also moves the arrays of a call to the CPU
or to a GPU, so that any stage can run on any device. The function `target_of` returns the target of a device such as
"cuda:0".

A system that overcommits memory promises a process more memory than the machine has. If the process uses more memory
than the machine has, the system kills the process. If a CPU array is larger than the machine's memory, minitri raises
MT0401 before the system kills the process. minitri does not check the size of GPU memory, because torch raises an error
if GPU memory is too small.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.base.types import DType
from minitri.graph.ir import Graph
from minitri.hardware.targets import StageUnavailable, Target, require_library
from minitri.kernels.ir import Plan
from minitri.runtime.array_interop import ArrayView, Numbers, as_tensor, empty, returned, view
from minitri.runtime.call_binding import Call
from minitri.runtime.gpu_launcher import NativeKernel, Start, current_device, current_stream, load_all
from minitri.runtime.interpreter import InterpretedKernel, interpreted
from minitri.triton import compiled_stages
from minitri.triton.emit import EmittedKernel

Allocate = Callable[[ArrayView | None, DType, Numbers, Numbers], ArrayView]  # like, dtype, shape, strides
Step = NativeKernel | InterpretedKernel  # one kernel, with the function that runs it


class Launch(NamedTuple):
    """One launch of a kernel, with the arguments of this launch. If the grid of a kernel is empty, the kernel is not
    launched.
    """

    step: Step
    programs: int
    arrays: tuple[ArrayView, ...]
    numbers: tuple[int, ...]
    floats: tuple[float, ...]

    def start(self) -> Start:
        """Returns the function that launches the kernel in the interpreter, or on the GPU that holds the arrays.

        The GPU that holds the arrays must be the current GPU.
        """
        if isinstance(self.step, InterpretedKernel):
            return self.step.run
        return self.step.loaded(self.arrays[0].owner.device.index, [a.address for a in self.arrays], self.numbers)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Returns the arguments of a launch, in the order of the kernel's parameters."""
        pointers = [self.step.pointer(a) for a in self.arrays]
        described = (self.step.described(d, pointers) for d in self.step.kernel.descriptors)
        return (*pointers, *self.numbers, *self.floats, *described)


class Executable(NamedTuple):
    """A plan (the kernels of a program in launch order), with the functions that run these kernels."""

    plan: Plan
    steps: tuple[Step, ...]

    def __call__(self, call: Call, allocate: Allocate | None = None) -> list[ArrayView]:
        """Runs the kernels of a call, and returns the outputs. On a GPU, this method usually returns before the kernels
        end.
        """
        bound = Bound(self, call, allocate)
        bound()
        return bound.outputs


class Bound:
    """A call whose input and output arrays are fixed. Calling the `Bound` object launches the kernels, without any
    check.

    The outputs belong to the `Bound` object: each call overwrites the results of the previous call. On a GPU, making a
    `Bound` object compiles the kernels of all its launches.

    `memory`: the arrays of the call, by name: inputs, temporaries and outputs. The `Bound` object must keep these
        arrays, because its launches have only their addresses.
    `launches`: the launches of the call, in order.
    `outputs`: the arrays of the results.
    `results`: the results as the caller gets them: one array of the caller's library, or a tuple.
    """

    def __init__(self, executable: Executable, call: Call, allocate: Allocate | None = None) -> None:
        self.plan, self.call = executable.plan, call
        self.memory = _memory(self.plan, call, allocate or empty)
        self.launches = [_launch(step, call, self.memory) for step in executable.steps]
        with on_device(call.model):
            if call.device != "cpu":
                load_all([x.start for x in self.launches if x.programs], call.device)
            self._start = launcher(self.launches, call)
        self.outputs = [self.memory[b.name] for b in self.plan.outputs]
        self.results = returned(self.outputs)

    def __call__(self) -> Any:
        self._start()
        return self.results


def launcher(launches: Sequence[Launch], call: Call) -> Callable[[], None]:
    """Returns a function that launches the kernels of a call. On a GPU, the kernels run in the current stream of the
    arrays' device.
    """
    steps = [(x.start(), x.programs, x.arguments) for x in launches if x.programs]
    model, device, current, stream_of = call.model, 0, int, int  # the interpreter is device 0 and needs no stream
    if model is not None and model.device != "cpu":
        device, current, stream_of = model.owner.device.index, current_device(), current_stream()

    def run() -> None:
        if current() != device:
            with on_device(model):
                return run()
        stream = stream_of(device)
        for start, programs, arguments in steps:
            start(programs, stream, arguments)

    return run


def _memory(plan: Plan, call: Call, allocate: Allocate) -> dict[str, ArrayView]:
    """Returns the inputs, and new arrays for temporaries and outputs, by name."""
    layouts = {b: b.layout(call.sizes) for b in (*plan.temporaries, *plan.outputs)}
    if call.device == "cpu":
        for b, (shape, _) in layouts.items():
            require_memory(b.dtype, shape)
    return dict(call.arrays) | {b.name: allocate(call.model, b.dtype, *layout) for b, layout in layouts.items()}


def _launch(step: Step, call: Call, memory: Mapping[str, ArrayView]) -> Launch:
    kernel, sizes = step.kernel, call.numbers
    return Launch(
        step, kernel.tiles.evaluate(sizes), tuple(memory[b.name] for b in kernel.pointers),
        tuple(d.evaluate(sizes) for d in kernel.sizes), tuple(call.scalars[b.name] for b in kernel.scalars),
    )  # fmt: skip


def on_device(like: ArrayView | None) -> AbstractContextManager[Any]:
    """Returns a context manager: inside its `with` block, kernels run on the GPU that holds the array `like`."""
    if like is None or like.device == "cpu":
        return nullcontext()
    import torch

    return torch.cuda.device(like.owner.device)


def executable(plan: Plan, kernels: Sequence[EmittedKernel], text: str, target: Target) -> Executable:
    """Combines a plan with the functions that run the plan's kernels.

    On a GPU, a kernel runs as machine code, which is compiled at the first launch. On a CPU, the kernel runs in
    Triton's interpreter.
    """
    compiled_stages.require_triton()
    if target.kind == "interpreter":
        return Executable(plan, interpreted(text, kernels))
    functions = compiled_stages.jit_functions(text)
    return Executable(plan, tuple(NativeKernel(functions[k.name], k, target) for k in kernels))


# ---- memory --------------------------------------------------------------------------------------


@cache
def installed() -> int:
    """Returns the memory of this machine in bytes.

    If the system does not report the size of its memory, the result is larger than the size of any array.
    """
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 1 << 60


def require_memory(dtype: DType, shape: tuple[int, ...]) -> None:
    """Raises CompileError MT0401 if an array is larger than the memory of this machine."""
    size = math.prod(shape) * dtype.bytes
    if size > installed():
        from rich.filesize import decimal

        raise _too_large(f"{dtype}[{', '.join(map(str, shape))}], which is {decimal(size)}")


def _too_large(what: str) -> CompileError:
    return CompileError("MT0401", f"there is not enough memory for {what}", help="take smaller sizes")


def require_graph(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raises CompileError MT0401 if some value of a graph is larger than the memory of this machine.

    The function `require_graph` is called before an evaluator runs, because evaluators allocate memory for every value
    of a graph.
    """
    for node in graph.nodes():
        require_memory(node.dtype, tuple(e.evaluate(sizes) for e in node.shape))


@contextmanager
def enough() -> Iterator[None]:
    """Returns a context manager that turns a MemoryError into a CompileError MT0401."""
    try:
        yield
    except MemoryError:
        raise _too_large("the arrays of this call") from None


# ---- devices --------------------------------------------------------------------------------------


def target_of(device: str) -> Target:
    """Returns the target of a device such as "cuda:0" or "cpu": the architecture of the GPU, or the interpreter."""
    if device == "cpu":
        return Target("interpreter", "")
    import torch

    if torch.version.hip:
        return Target("hip", torch.cuda.get_device_properties(device).gcnArchName.split(":")[0])
    return Target("cuda", "".join(map(str, torch.cuda.get_device_capability(device))))


def own_target(call: Call) -> Target | None:
    """Returns the target of the GPU that holds the arrays of a call; None if all arrays are on the CPU."""
    return None if call.device == "cpu" else target_of(call.device)


def on_cpu(call: Call) -> Call:
    """Returns the same call with every array on the CPU."""
    arrays = {n: a if a.device == "cpu" else view(a.numpy(), n) for n, a in call.arrays.items()}
    return call._replace(sizes=dict(call.sizes), arrays=arrays)


def beside(call: Call) -> Call:
    """Returns the call with its 0-d numpy arrays copied to the GPU, if other arrays of the call are on a GPU."""
    devices = {a.device for a in call.arrays.values()}
    return on_gpu(call) if "cpu" in devices and len(devices) > 1 else call


def require_gpu() -> Any:
    """Returns the module torch. Raises StageUnavailable MT0402 if torch is not installed or finds no GPU."""
    torch = require_library("torch")
    if not torch.cuda.is_available():
        help = "run on a machine with a CUDA GPU; stage `triton` runs the same kernels in the interpreter"
        raise StageUnavailable("MT0402", "there is no GPU here", help=help)
    return torch


def on_gpu(call: Call) -> Call:
    """Returns the same call with every array on a GPU. Raises StageUnavailable MT0402 if there is no GPU."""
    torch = require_gpu()
    with torch.cuda.device(None if call.device == "cpu" else call.device):
        arrays = {n: _copied(a) if a.device == "cpu" else a for n, a in call.arrays.items()}
    return call._replace(sizes=dict(call.sizes), arrays=arrays)


def _copied(array: ArrayView) -> ArrayView:
    """Returns a row-major copy of a CPU array in new GPU memory."""
    return view(as_tensor(np.array(array.numpy(), order="C", copy=True)).to("cuda"), "moved")
