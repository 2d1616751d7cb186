"""Kernels on a GPU: compiled for a class of arguments, kept on disk, launched without Triton's dispatcher.

In: an emitted kernel and its function. Out: for each class of arguments a `Loaded` kernel, which
takes a stream and integers (addresses, sizes) and starts. The one idea: what Triton's dispatcher
works out at each launch (types, alignment, options, the key of its cache) is known here from the
call before, so a launch is one call of the compiled kernel.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache as once
from types import SimpleNamespace
from typing import Any

from minitri import logs
from minitri.backend import artifacts
from minitri.backend.artifacts import Kind
from minitri.backend.compiled import on_disk
from minitri.backend.descriptors import Descriptor
from minitri.backend.emit import EmittedKernel
from minitri.backend.targets import Target


class Loaded:
    """A compiled kernel on one device. Called with programs, a stream and the arguments in order."""

    __slots__ = ("run", "fixed", "compiled", "hooks")

    def __init__(self, compiled: Any) -> None:
        from triton import knobs

        self.compiled, self.hooks = compiled, knobs.runtime
        run = compiled.run  # loads the machine code
        self.run, self.fixed = _direct(run, compiled) or (run, (compiled.function, compiled.packed_metadata))

    def __call__(self, programs: int, stream: int, arguments: Sequence[Any]) -> None:
        enter, leave = self.hooks.launch_enter_hook, self.hooks.launch_exit_hook  # of a profiler, say
        enter = enter if getattr(enter, "calls", enter) else None  # an empty chain of them
        leave = leave if getattr(leave, "calls", leave) else None
        about = self.compiled.launch_metadata((programs, 1, 1), stream, *arguments) if enter else None
        self.run(programs, 1, 1, stream, *self.fixed, about, enter, leave, *arguments)


def _direct(launcher: Any, compiled: Any) -> tuple[Callable[..., None], tuple[Any, ...]] | None:
    """What Triton 3.6's launcher calls after it has made memory that our kernels do not ask for, and what it adds."""
    import triton

    about = compiled.metadata
    scratch = getattr(about, "global_scratch_size", 1) or getattr(about, "profile_scratch_size", 1)
    if scratch or not triton.__version__.startswith("3.6.") or not hasattr(launcher, "launch"):
        return None
    modes = launcher.launch_cooperative_grid, launcher.launch_pdl
    return launcher.launch, (compiled.function, *modes, None, None, compiled.packed_metadata)


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
        self._loaded: dict[tuple[int, Kind], Loaded] = {}
        self._lock = threading.Lock()

    def loaded(self, device: int, pointers: Sequence[int], numbers: Sequence[int]) -> Loaded:
        """The kernel for arguments like these, on a device that is the current one; compiled if need be."""
        kind = Kind.of(pointers, numbers)
        found = self._loaded.get((device, kind))
        if found is None:
            with self._lock:
                found = self._loaded.get((device, kind))
                if found is None:
                    self._loaded[device, kind] = found = Loaded(self._compiled(kind))
        return found

    def launch(self, programs: int, pointers: Sequence[int], numbers: Sequence[int], floats: Sequence[float]) -> None:
        """Starts the kernel on the current device and stream."""
        import torch

        device = torch.cuda.current_device()
        loaded = self.loaded(device, pointers, numbers)
        loaded(programs, driver().get_current_stream(device), self.arguments(pointers, numbers, floats))

    def arguments(self, pointers: Sequence[int], numbers: Sequence[int], floats: Sequence[float]) -> tuple[Any, ...]:
        """All that a launch passes to the kernel."""
        return (*pointers, *numbers, *floats, *(Described(d, pointers) for d in self.kernel.descriptors))

    def _compiled(self, kind: Kind) -> Any:
        """Triton's compiled kernel: one that is on disk, or a new one."""
        source = artifacts.ast_source(self._function(), self.kernel, kind)
        found = on_disk(source, self.kernel, self.target)
        logs.log("cache", f"{self.kernel.name}: {'compiled' if found is None else 'found on the disk'}")
        if found is None:
            maps = len(self.kernel.descriptors) * self.target.has_descriptors
            launcher = _started(_prepare_launcher, source, maps)
            found = artifacts.compiled(source, self.kernel, self.target)
            launcher.join()
        return found


def driver() -> Any:
    """Triton's access to the GPU."""
    from triton.runtime import driver

    return driver.active


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kernel with the arguments it is about to be launched with."""

    kernel: NativeKernel
    pointers: Sequence[int]
    numbers: Sequence[int]


def load_all(wanted: Iterable[Wanted], device: int) -> None:
    """Compiles kernels side by side. Their compilers run outside of Python for the most part."""
    todo = list(wanted)
    if len(todo) < 2:
        return
    import torch

    def load(w: Wanted) -> None:
        with torch.cuda.device(device):  # each thread has a current device of its own
            w.kernel.loaded(device, w.pointers, w.numbers)

    with ThreadPoolExecutor(min(len(todo), os.cpu_count() or 1)) as pool:
        list(pool.map(load, todo))


# ---- the first launch of a process -----------------------------------------------------------


# Commands that Triton runs, one after the other, when it looks for the driver; it remembers the answers.
LOOKED_UP = (("triton.runtime.build", "platform_key"), ("triton.backends.nvidia.driver", "libcuda_dirs"))


@once
def warm_up() -> None:
    """Starts what a first launch waits for, so that it happens while a program is compiled.

    Triton is imported whole before: two threads that each import a part of it can lock each other out.
    """
    importlib.import_module("triton.runtime")
    _started(_start_driver)


def _started(work: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _start_driver() -> None:
    with ThreadPoolExecutor(len(LOOKED_UP)) as pool, contextlib.suppress(Exception):
        list(pool.map(lambda place: getattr(importlib.import_module(place[0]), place[1])(), LOOKED_UP))
    driver()


def _prepare_launcher(source: Any, maps: int) -> None:
    """What passes arguments of these types to the driver: Triton up to 3.6 compiles it, in C, for each signature.

    Made here for the sake of Triton's cache; the compiled kernel makes its own from there. `maps`: tensor
    descriptors that the driver makes.
    """
    with contextlib.suppress(Exception):
        about = SimpleNamespace(tensordesc_meta=[{}] * maps)
        importlib.import_module("triton.backends.nvidia.driver").CudaLauncher(source, about)
