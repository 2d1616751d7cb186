"""Compiles and launches kernels on a GPU, without Triton's dispatcher. Each kernel is compiled for the types and the
alignment of its arguments.

A `NativeKernel` is made from an emitted kernel and its Triton function. The method `NativeKernel.loaded` returns a
function that launches the kernel for arguments of given types and alignments. The launch function receives the number
of grid programs, a stream, and the arguments, such as addresses and sizes.

Two ideas save time on the host. The first idea: calls with equal types and alignments share one compiled kernel, and a
repeated call launches this kernel directly. Triton's dispatcher would determine types, alignment, options and a cache
key again at each launch. The second idea: minitri launches kernels with torch's compiled launcher, so minitri need not
wait for a C compiler. Without torch's launcher, Triton up to 3.6 runs a C compiler twice before the first result: for a
launcher, and for a library that loads machine code.

Some kernels still use Triton's launcher, because torch's launcher does not support them. Triton's launcher is used for
kernels with tensor descriptors, kernels for GPUs that are not from NVIDIA, and kernels with an early start
(programmatic dependent launch). While a profiler is active, all kernels use Triton's launcher. Another thread makes
Triton's launcher for a kernel with an early start, and calls do not wait for this thread. Until Triton's launcher is
ready, torch's launcher starts the kernel after the previous kernel has ended.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.base.lru_cache import Recent
from minitri.hardware.chips import shared_bytes
from minitri.hardware.targets import Target
from minitri.triton import compiled_stages
from minitri.triton.descriptors import Descriptor
from minitri.triton.emit import EmittedKernel

Start = Callable[[int, int, tuple[Any, ...]], None]  # number of grid programs, stream, arguments in order
MAX_KINDS = 64  # kinds of arguments for which a kernel keeps machine code


class Described:
    """An array that is accessed through a tensor descriptor, with the attributes that Triton's launcher needs."""

    __slots__ = ("address", "shape", "strides", "block_shape")
    padding, round_f32_to_tf32 = "zero", False

    def __init__(self, descriptor: Descriptor, pointers: Sequence[Any]) -> None:
        self.address = pointers[descriptor.pointer]
        self.shape, self.strides, self.block_shape = descriptor.shape, descriptor.strides, descriptor.block

    @property
    def base(self) -> Described:
        return self

    def data_ptr(self) -> int:
        return self.address


class NativeKernel:
    """Compiles the Triton source of one kernel for one GPU architecture, and loads the compiled kernel onto GPUs."""

    def __init__(self, function: Any, kernel: EmittedKernel, target: Target) -> None:
        self._function, self.kernel, self.target = function, kernel, target
        self._loaded: Recent[tuple[int, compiled_stages.Kind], Start] = Recent(MAX_KINDS)
        self.pointer, self.described = attrgetter("address"), Described

    def loaded(self, device: int, pointers: Sequence[int], numbers: Sequence[int]) -> Start:
        """Returns the function that launches the kernel for arguments of these types and alignments.

        If the kernel has not been compiled for these types and alignments yet, it is compiled now.

        `device` must be the current device.
        """
        kind = compiled_stages.Kind.of(pointers, numbers)
        found = self._loaded.get((device, kind))
        return found or self._loaded.made((device, kind), lambda: load(self._compiled(kind), device))

    def _compiled(self, kind: compiled_stages.Kind) -> Any:
        """Returns Triton's compiled kernel, from the disk cache or from the compiler."""
        source = compiled_stages.ast_source(self._function, self.kernel, kind)
        descriptors = len(self.kernel.descriptors) * self.target.has_descriptors
        with ThreadPoolExecutor(1) as beside:
            if descriptors:
                beside.submit(_prepare_launcher, source, descriptors)
            compiled = compiled_stages.compiled(source, self.kernel, self.target)
        asked, most = compiled.metadata.shared, shared_bytes(self.target)
        if most is not None and asked > most:
            have = f"a program on {self.target} has {most:,}"
            message = f"{self.kernel.name} asks for {asked:,} bytes of shared memory, {have}"
            raise CompileError("MT0404", message, help="smaller blocks need less, and so do fewer stages")
        return compiled


def load_all(wanted: Sequence[Callable[[], Any]], device: str) -> None:
    """Compiles several kernels at the same time.

    Each function in `wanted` compiles one kernel.

    Threads are fast enough, and no processes are needed, because most of the compiler runs outside of Python. Triton is
    imported before the threads start, because several threads that import Triton at once can deadlock.
    """
    if len(wanted) < 2:
        return
    import torch

    importlib.import_module("triton.compiler.code_generator")

    def compiled(compile: Callable[[], Any]) -> None:
        with torch.cuda.device(device):  # each thread has its own current device
            compile()

    with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
        list(pool.map(compiled, wanted))


def _prepare_launcher(source: Any, descriptors: int) -> None:
    """Makes Triton build and cache the launcher of a kernel."""
    with contextlib.suppress(Exception):
        driver()  # a launcher gets the type of descriptors from Triton's driver object
        # one for each tensor descriptor among the arguments
        about = SimpleNamespace(tensordesc_meta=[{}] * descriptors)
        # up to Triton 3.6, this runs a C compiler
        importlib.import_module("triton.backends.nvidia.driver").CudaLauncher(source, about)


# ---- launchers of a compiled kernel --------------------------------------------------------------


TYPES = {"i32": "i", "i64": "l", "fp64": "d"}  # types of scalars in Triton → in torch's launcher
SCRATCH = ("global_scratch_size", "profile_scratch_size")  # memory that Triton's kernels may need, as last arguments


def load(compiled: Any, device: int) -> Start:
    """Returns the function that launches a compiled kernel on a device, which must be the current device."""
    by_triton = _by_triton(compiled)
    by_torch = _by_torch(compiled, device, by_triton)
    if by_torch is None:
        _load_by_triton(compiled)
        return by_triton
    return _early(compiled, by_torch, by_triton) if getattr(compiled.metadata, "launch_pdl", False) else by_torch


def _early(compiled: Any, by_torch: Start, by_triton: Start) -> Start:
    """Returns a function that can launch a kernel while the previous kernel still runs."""
    # torch's launcher is used until another thread has made Triton's. Without a C compiler it is always used: the
    # kernel then starts later, but its result is the same.
    launcher, now = LAUNCHERS.submit(_prepare_launcher, compiled.src, 0), by_torch
    UNFINISHED.add(launcher)
    launcher.add_done_callback(UNFINISHED.discard)
    waits, capturing = True, sys.modules["torch"].cuda.is_current_stream_capturing

    def start(programs: int, stream: int, arguments: tuple[Any, ...]) -> None:
        nonlocal now, waits
        if waits and launcher.done() and not capturing():  # a CUDA graph must not load machine code
            waits = False
            with contextlib.suppress(Exception):
                _load_by_triton(compiled)
                now = by_triton
        now(programs, stream, arguments)

    return start


LAUNCHERS = ThreadPoolExecutor(thread_name_prefix="launcher")
UNFINISHED = set[Future[None]]()  # unfinished launchers of kernels with an early start


def finish_launchers() -> None:
    """Waits until Triton's launchers are ready for all kernels with an early start. A kernel with an early start begins
    while the previous kernel still runs. Code that measures times or captures a CUDA graph calls this function first.
    """
    wait(UNFINISHED)


def _load_by_triton(compiled: Any) -> None:
    driver()
    _ = compiled.run  # this property loads the machine code


def _by_triton(compiled: Any) -> Start:
    hooks = _hooks()

    def start(programs: int, stream: int, arguments: tuple[Any, ...]) -> None:
        run, enter, leave = compiled.run, _active_hook(hooks.launch_enter_hook), _active_hook(hooks.launch_exit_hook)
        about = compiled.launch_metadata((programs, 1, 1), stream, *arguments) if enter else None
        run(programs, 1, 1, stream, compiled.function, compiled.packed_metadata, about, enter, leave, *arguments)

    return start


def _by_torch(compiled: Any, device: int, profiled: Start) -> Start | None:
    """Returns the function that launches a kernel by torch's launcher, or None if unsupported."""
    launcher, about = getattr(sys.modules["torch"]._C, "_StaticCudaLauncher", None), compiled.metadata
    types = ["O" if t.startswith("*") else TYPES.get(t) for t in compiled.src.signature.values()]
    scratch = [getattr(about, name) for name in SCRATCH if hasattr(about, name)]
    if launcher is None or "cubin" not in compiled.asm or None in types or any(scratch):
        return None
    try:
        launch, function = launcher._launch_kernel, _function(launcher, compiled, device)
    except (RuntimeError, TypeError, ValueError, AttributeError, OSError):  # not a public interface of torch
        return None
    warps, shared, none, hooks = about.num_warps, about.shared, (None,) * len(scratch), _hooks()
    letters = "".join(map(str, types)) + "O" * len(none)

    def start(programs: int, stream: int, arguments: tuple[Any, ...]) -> None:
        try:
            profiling = hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls
        except AttributeError:  # this hook is a single function or None, not Triton's chain of functions
            profiling = _active_hook(hooks.launch_enter_hook) or _active_hook(hooks.launch_exit_hook)
        if profiling:  # a profiler is active
            profiled(programs, stream, arguments)
        else:
            launch(function, programs, 1, 1, warps, shared, letters, arguments + none, stream)

    return start


def _active_hook(hook: Any) -> Any:
    """Returns a launch hook of Triton, or None if the hook has no functions."""
    # a profiler registers functions with a hook, which Triton calls at each launch
    return hook if getattr(hook, "calls", hook) else None


def _hooks() -> Any:
    from triton import knobs

    return knobs.runtime


def _function(launcher: Any, compiled: Any, device: int) -> int:
    """Returns the address of a kernel's machine code on the GPU."""
    # torch only loads machine code from files
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(compiled.asm["cubin"])
        about = compiled.metadata
        *_, function, _registers, _spills = launcher._load_kernel(str(path), about.name, about.shared, device)
    return int(function)


# ---- current device and stream ---------------------------------------------------------------


_ONE_DRIVER = threading.Lock()


def driver() -> Any:
    """Returns Triton's driver object, which gives access to the GPU.

    A lock makes sure that only one driver object of Triton exists. Without a lock, two threads could make two driver
    objects. A tensor map (a description of an array for the GPU's copy engine) is valid for only one of Triton's driver
    objects.
    """
    from triton.runtime import driver

    with _ONE_DRIVER:
        return driver.active


def current_device() -> Callable[[], int]:
    """Chooses the fastest function that tells the number of the current GPU.

    With several GPUs, returns torch's C function `_cuda_getDevice`, or a slower Python function if torch lacks it. On a
    machine with a single GPU, the result is Python's function `int`, because `int()` returns 0, the number of this GPU.
    """
    torch = sys.modules["torch"]
    if torch.cuda.device_count() == 1:
        return int
    return getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def current_stream() -> Callable[[int], int]:
    """Returns a function that takes the number of a GPU, and returns the address of the GPU's current stream.

    If torch has the C function `_cuda_getCurrentRawStream`, returns this function. Otherwise, returns a Python
    function, which is slower.
    """
    torch = sys.modules["torch"]
    return getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream)
