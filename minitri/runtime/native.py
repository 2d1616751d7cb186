"""Kernels on a GPU: compiled for a class of arguments, kept on disk, launched without Triton's dispatcher.

In: an emitted kernel and its function. Out: for each class of arguments a function that starts it
(runtime/launcher.py). The one idea: Triton's dispatcher finds types, alignment, options and the key of its cache at
each launch. Here they are known from the call before, so a launch is one call of the compiled kernel.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.hardware import occupancy
from minitri.hardware.targets import Target
from minitri.optimize.tensor_descriptors import Descriptor
from minitri.runtime.launcher import Start, current_stream, driver, load
from minitri.triton import artifacts
from minitri.triton.artifacts import Kind
from minitri.triton.emit import EmittedKernel


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


MAX_KINDS = 64  # of arguments that one kernel keeps machine code for


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
        asked, most = compiled.metadata.shared, occupancy.shared_bytes(self.target)
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

    def load(compile: Callable[[], Any]) -> None:
        with torch.cuda.device(device):  # each thread has a current device of its own
            compile()

    with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
        list(pool.map(load, wanted))


def _prepare_launcher(source: Any, descriptors: int) -> None:
    """Makes Triton's launcher of a kernel with `descriptors` descriptors. Up to 3.6 this runs a C compiler.

    The launcher is made here only to fill Triton's cache; the compiled kernel then finds it there. The driver comes
    first: a launcher asks it for the type of descriptors, once.
    """
    with contextlib.suppress(Exception):
        driver()
        about = SimpleNamespace(tensordesc_meta=[{}] * descriptors)
        importlib.import_module("triton.backends.nvidia.driver").CudaLauncher(source, about)
