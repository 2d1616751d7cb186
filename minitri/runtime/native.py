"""Kernels on a GPU: compiled for a class of arguments, kept on disk, started without Triton's dispatcher.

In: an emitted kernel and its function. Out: for each class of arguments a function that starts it, given a stream and
numbers (addresses, sizes).

Two ideas save time on the host. Triton's dispatcher finds types, alignment, options and the key of its cache at each
launch. Here they are known from the call before, so a launch is one call of the compiled kernel. And torch comes with a
compiled launcher, made for torch.compile. Triton up to 3.6 compiles a launcher for each signature, and a library that
loads machine code. Each of them runs a C compiler before the first result. Left to Triton: kernels that torch's launcher
does not know (tensor descriptors, machine code of other vendors, kernels that start early), and launches that a profiler
records.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.hardware.chips import shared_bytes
from minitri.hardware.targets import Target
from minitri.triton import artifacts
from minitri.triton.artifacts import Kind
from minitri.triton.descriptors import Descriptor
from minitri.triton.emit import EmittedKernel

Start = Callable[[int, int, tuple[Any, ...]], None]  # programs, stream, arguments in order
MAX_KINDS = 64  # of arguments that one kernel keeps machine code for


class Described:
    """What Triton's launcher asks about an array that a kernel has a tensor descriptor of."""

    __slots__ = ("address", "shape", "strides", "block_shape")
    padding, round_f32_to_tf32 = "zero", False

    def __init__(self, descriptor: Descriptor, pointers: Sequence[int]) -> None:
        self.address = pointers[descriptor.pointer]
        self.shape, self.strides, self.block_shape = descriptor.shape, descriptor.strides, descriptor.block

    @property
    def base(self) -> Described:
        return self

    def data_ptr(self) -> int:
        return self.address


class NativeKernel:
    """One emitted kernel on GPUs of one architecture."""

    def __init__(self, function: Callable[[], Any], kernel: EmittedKernel, target: Target) -> None:
        self._function, self.kernel, self.target = function, kernel, target
        self._loaded: dict[tuple[int, Kind], Start] = {}
        self._lock = threading.Lock()

    def loaded(self, device: int, pointers: Sequence[int], numbers: Sequence[int]) -> Start:
        """The kernel for arguments like these, on a device that is the current one; compiled if need be."""
        kind = Kind.of(pointers, numbers)
        found = self._loaded.get((device, kind))
        if found is None:
            with self._lock:
                found = self._loaded.get((device, kind))
                if found is None:
                    found = load(self._compiled(kind), device)
                    if len(self._loaded) >= MAX_KINDS:
                        del self._loaded[next(iter(self._loaded))]
                    self._loaded[device, kind] = found
        return found

    def launch(self, programs: int, pointers: Sequence[int], numbers: Sequence[int], floats: Sequence[float]) -> None:
        """Starts the kernel on the current device and stream."""
        import torch

        device = torch.cuda.current_device()
        loaded = self.loaded(device, pointers, numbers)
        loaded(programs, current_stream()(device), self.arguments(pointers, numbers, floats))

    def arguments(self, pointers: Sequence[int], numbers: Sequence[int], floats: Sequence[float]) -> tuple[Any, ...]:
        """All that a launch passes to the kernel."""
        return (*pointers, *numbers, *floats, *(Described(d, pointers) for d in self.kernel.descriptors))

    def _compiled(self, kind: Kind) -> Any:
        """Triton's compiled kernel: one that is on disk, or a new one."""
        source = artifacts.ast_source(self._function(), self.kernel, kind)
        descriptors = len(self.kernel.descriptors) * self.target.has_descriptors
        with ThreadPoolExecutor(1) as beside:
            if descriptors or self.kernel.follows:
                beside.submit(_prepare_launcher, source, descriptors)
            return self._fitting(artifacts.compiled(source, self.kernel, self.target))

    def _fitting(self, compiled: Any) -> Any:
        """The same; CompileError MT0404 if a program of it wants more shared memory than there is."""
        asked, most = compiled.metadata.shared, shared_bytes(self.target)
        if most is not None and asked > most:
            message = (
                f"{self.kernel.name} asks for {asked:,} bytes of shared memory, a program on {self.target} has {most:,}"
            )
            raise CompileError("MT0404", message, help="smaller blocks need less, and so do fewer stages")
        return compiled


def load_all(wanted: Sequence[Callable[[], Any]], device: int) -> None:
    """Compiles kernels side by side, each by one call. Their compilers run outside of Python for the most part.

    Triton is imported whole before: threads that each import a part of it can lock each other out.
    """
    if len(wanted) < 2:
        return
    import torch

    importlib.import_module("triton.compiler.code_generator")

    def compiled(compile: Callable[[], Any]) -> None:
        with torch.cuda.device(device):  # each thread has a current device of its own
            compile()

    with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
        list(pool.map(compiled, wanted))


def _prepare_launcher(source: Any, descriptors: int) -> None:
    """Makes Triton's launcher of a kernel with `descriptors` descriptors. Up to 3.6 this runs a C compiler.

    The launcher is made here only to fill Triton's cache; the compiled kernel then finds it there. The driver comes
    first: a launcher asks it for the type of descriptors, once.
    """
    with contextlib.suppress(Exception):
        driver()
        about = SimpleNamespace(tensordesc_meta=[{}] * descriptors)
        importlib.import_module("triton.backends.nvidia.driver").CudaLauncher(source, about)


# ---- what starts a compiled kernel ---------------------------------------------------------------


TYPES = {"i32": "i", "i64": "l", "fp64": "d"}  # of numbers, as torch's launcher calls them
SCRATCH = ("global_scratch_size", "profile_scratch_size")  # memory that Triton's kernels may ask for, and take last


def load(compiled: Any, device: int) -> Start:
    """What starts a compiled kernel on this device, which is current."""
    by_triton, early = _by_triton(compiled), getattr(compiled.metadata, "launch_pdl", False)
    by_torch = None if early else _by_torch(compiled, device, by_triton)
    if by_torch is not None:
        return by_torch
    try:
        driver()
        _ = compiled.run  # loads the machine code
    except Exception:
        late = _by_torch(compiled, device, by_triton) if early else None  # as right, and without a C compiler
        if late is None:
            raise
        return late
    return by_triton


def _by_triton(compiled: Any) -> Start:
    hooks = _hooks()

    def start(programs: int, stream: int, arguments: tuple[Any, ...]) -> None:
        run, enter, leave = compiled.run, _told(hooks.launch_enter_hook), _told(hooks.launch_exit_hook)
        about = compiled.launch_metadata((programs, 1, 1), stream, *arguments) if enter else None
        run(programs, 1, 1, stream, compiled.function, compiled.packed_metadata, about, enter, leave, *arguments)

    return start


def _by_torch(compiled: Any, device: int, watched: Start) -> Start | None:
    """How torch's launcher starts a kernel; None if it cannot. `watched`: how it starts while a profiler watches."""
    launcher, about = getattr(sys.modules["torch"]._C, "_StaticCudaLauncher", None), compiled.metadata
    types = ["O" if t.startswith("*") else TYPES.get(t) for t in compiled.src.signature.values()]
    scratch = [getattr(about, name) for name in SCRATCH if hasattr(about, name)]
    if launcher is None or "cubin" not in compiled.asm or None in types or any(scratch):
        return None
    try:
        launch, function = launcher._launch_kernel, _function(launcher, compiled, device)
    except (RuntimeError, TypeError, ValueError, AttributeError, OSError):  # it is nothing that torch has promised
        return None
    warps, shared, none, hooks = about.num_warps, about.shared, (None,) * len(scratch), _hooks()
    letters = "".join(map(str, types)) + "O" * len(none)

    def start(programs: int, stream: int, arguments: tuple[Any, ...]) -> None:
        try:
            told = hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls
        except AttributeError:  # somebody has put a function, or nothing, in the place of a chain of them
            told = _told(hooks.launch_enter_hook) or _told(hooks.launch_exit_hook)
        if told:
            watched(programs, stream, arguments)
        else:
            launch(function, programs, 1, 1, warps, shared, letters, arguments + none, stream)

    return start


def _told(hook: Any) -> Any:
    """A hook of a profiler; None where it is a chain of none."""
    return hook if getattr(hook, "calls", hook) else None


def _hooks() -> Any:
    from triton import knobs

    return knobs.runtime


def _function(launcher: Any, compiled: Any, device: int) -> int:
    """The address of a kernel's function. torch reads machine code from files alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(compiled.asm["cubin"])
        about = compiled.metadata
        *_, function, _registers, _spills = launcher._load_kernel(str(path), about.name, about.shared, device)
    return int(function)


# ---- what tells devices and streams ----------------------------------------------------------


_ONE_DRIVER = threading.Lock()


def driver() -> Any:
    """Triton's access to the GPU.

    Made by the first who asks. Two threads that ask at once would make two of it, and the tensor maps of
    one are none to the other.
    """
    from triton.runtime import driver

    with _ONE_DRIVER:
        return driver.active


def current_device() -> Callable[[], int]:
    """What tells the current GPU: a function of torch's in C, where it has one. The only one there is is 0, as int()."""
    torch = sys.modules["torch"]
    if torch.cuda.device_count() == 1:
        return int
    return getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def current_stream() -> Callable[[int], int]:
    """What tells the address of a GPU's current stream: the function that torch.compile calls, where there is one."""
    torch = sys.modules["torch"]
    return getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream)
