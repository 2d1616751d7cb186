"""Kernels on a GPU: compiled for a class of arguments, kept on disk, launched without Triton's dispatcher.

In: an emitted kernel and its function. Out: for each class of arguments a `Loaded` kernel, which
takes a stream and integers (addresses, sizes) and starts. The one idea: what Triton's dispatcher
works out at each launch (types, alignment, options, the key of its cache) is known here from the
call before, so a launch is one call of the compiled kernel.

Triton keeps compiled kernels on disk; which one belongs to a kernel of ours is noted in our own
cache, because Triton finds out by reading all of itself (0.3 s, once a process).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minitri import cache, logs
from minitri.backend import artifacts
from minitri.backend.artifacts import Kind, Target
from minitri.backend.emit import EmittedKernel


class Loaded:
    """A compiled kernel on one device. Called with programs, a stream and the arguments in order."""

    __slots__ = ("run", "function", "packed", "compiled", "hooks")

    def __init__(self, compiled: Any) -> None:
        from triton import knobs

        self.compiled, self.hooks = compiled, knobs.runtime
        run = compiled.run  # loads the machine code
        self.run = _with_scratch(run) if getattr(compiled.metadata, "global_scratch_size", 0) else run
        self.function, self.packed = compiled.function, compiled.packed_metadata

    def __call__(self, programs: int, stream: int, arguments: Sequence[Any]) -> None:
        enter, leave = _set(self.hooks.launch_enter_hook), _set(self.hooks.launch_exit_hook)
        about = self.compiled.launch_metadata((programs, 1, 1), stream, *arguments) if enter else None
        self.run(programs, 1, 1, stream, self.function, self.packed, about, enter, leave, *arguments)


def _with_scratch(run: Callable[..., None]) -> Callable[..., None]:
    """A launch of a kernel that makes tensor descriptors: it writes them to memory that Triton asks us for."""
    import torch
    import triton

    def allocate(size: int, alignment: int, stream: int | None) -> Any:
        return torch.empty(size, dtype=torch.int8, device="cuda")  # aligned to 512 bytes; freed in stream order

    def launch(*arguments: Any) -> None:
        triton.set_allocator(allocate)  # of this thread
        run(*arguments)

    return launch


def _set(hook: Any) -> Any:
    """A hook of Triton's, of a profiler say; None for an empty chain of them."""
    return hook if getattr(hook, "calls", hook) else None


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
        loaded(programs, driver().get_current_stream(device), (*pointers, *numbers, *floats))

    def _compiled(self, kind: Kind) -> Any:
        """Triton's compiled kernel: one that is on disk, if we know which, or a new one."""
        source = artifacts.ast_source(self._function(), self.kernel, kind)
        key = disk_key(self.kernel, source, self.target)
        found = _on_disk(source, cache.get("kernel", key)) if _keeps() else None
        logs.log("cache", f"{self.kernel.name}: {'compiled' if found is None else 'found on the disk'}")
        if found is None:
            launcher = _started(_prepare_launcher, source)
            if _hashing:
                _hashing[0].join()
            found = artifacts.compiled(source, self.kernel, self.target)
            launcher.join()
            cache.put("kernel", key, found.hash)
            cache.put("compiles", _triton(), True)
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
    if not cache.get("compiles", _triton()):  # else what we need is likely on the disk
        _hashing.append(_started(_hash_triton))


_hashing: list[threading.Thread] = []


def _started(work: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _start_driver() -> None:
    with ThreadPoolExecutor(len(LOOKED_UP)) as pool, contextlib.suppress(Exception):
        list(pool.map(lambda place: getattr(importlib.import_module(place[0]), place[1])(), LOOKED_UP))
    driver()


def _hash_triton() -> None:
    """Triton's hash of its own files, part of the name of all it keeps. It remembers it.

    Between two pieces of a file the thread waits for Python's lock: not for long, while this runs.
    """
    try:
        from triton.runtime.cache import triton_key
    except ImportError:  # it has another name there
        return
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        triton_key()
    finally:
        sys.setswitchinterval(interval)


def _prepare_launcher(source: Any) -> None:
    """What passes arguments of these types to the driver: Triton up to 3.6 compiles it, in C, for each signature.

    Made here for the sake of Triton's cache; the compiled kernel makes its own from there.
    """
    with contextlib.suppress(Exception):
        importlib.import_module("triton.backends.nvidia.driver").CudaLauncher(source, SimpleNamespace())


# ---- the disk ----------------------------------------------------------------------------


def _on_disk(source: Any, hash: Any) -> Any:
    """The kernel that Triton keeps under a hash; None if it is gone, or not what it was."""
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime.cache import get_cache_manager

    if not isinstance(hash, str):
        return None
    try:
        group = get_cache_manager(hash).get_group(f"{source.name[:150]}.json")
        return CompiledKernel(source, group, hash) if group else None
    except Exception:  # torn files, another layout: it is compiled again
        return None


def disk_key(kernel: EmittedKernel, source: Any, target: Target) -> dict[str, Any]:
    """Everything that the machine code of a kernel depends on. Its text alone does not say the types."""
    return {
        "triton": _triton(), "kernel": kernel.source, "types": source.signature, "known": str(source.attrs),
        "target": str(target), "options": target.compile_options(kernel),
    }  # fmt: skip


def _keeps() -> bool:
    """Whether Triton may take a kernel from the disk, and nothing wants to see it compile."""
    from triton import knobs

    c = knobs.compilation
    return not (c.always_compile or c.override or c.dump_ir or c.listener)


@once
def _triton() -> Mapping[str, Any]:
    """What besides the kernel decides about its machine code: Triton itself, our functions for kernels, settings."""
    import triton

    library = next(iter(sorted((Path(triton.__file__).parent / "_C").glob("libtriton*"))), Path(triton.__file__))
    functions = Path(artifacts.__file__).with_name("device.py").read_bytes()
    settings = {n: v for n, v in sorted(os.environ.items()) if n.startswith(("TRITON_", "MLIR_", "LLVM_", "NVPTX_"))}
    stamp = (library.stat().st_size, library.stat().st_mtime_ns)
    return {"version": triton.__version__, "library": stamp, "settings": settings,
            "functions": hashlib.sha256(functions).hexdigest()}  # fmt: skip
