"""How a compiled kernel is started on a GPU: by torch's launcher of Triton's kernels, or by Triton's own.

In: a kernel that Triton compiled, and the device that is current. Out: a `Loaded` kernel, which takes a stream
and numbers (addresses, sizes) and starts. The one idea: torch comes with a launcher in C, for what torch.compile
makes; Triton up to 3.6 compiles one for each signature, and before that a library that loads machine code, each
with a C compiler that a first result waits for. Left to Triton: kernels with tensor descriptors, which torch's
launcher does not know, other vendors' machine code, and launches that a profiler wants to be told of.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TYPES = {"i32": "i", "i64": "l", "fp32": "f", "fp64": "d"}  # of numbers, as torch's launcher calls them
SCRATCH = ("global_scratch_size", "profile_scratch_size")  # memory that Triton's kernels may ask for, and take last

Start = Callable[[int, int, Sequence[Any]], None]  # programs, stream, arguments


class Loaded:
    """A compiled kernel on one device. Called with programs, a stream and the arguments in order."""

    __slots__ = ("compiled", "hooks", "quick")

    def __init__(self, compiled: Any, device: int) -> None:
        from triton import knobs

        self.compiled, self.hooks, self.quick = compiled, knobs.runtime, _by_torch(compiled, device)
        if self.quick is None:
            driver()
            _ = compiled.run  # loads the machine code

    def __call__(self, programs: int, stream: int, arguments: Sequence[Any]) -> None:
        enter, leave = self.hooks.launch_enter_hook, self.hooks.launch_exit_hook  # of a profiler, or empty chains
        if self.quick is None or getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
            self._by_triton(programs, stream, arguments)
        else:
            self.quick(programs, stream, arguments)

    def _by_triton(self, programs: int, stream: int, arguments: Sequence[Any]) -> None:
        run, kernel, hooks = self.compiled.run, self.compiled, self.hooks
        about = kernel.launch_metadata((programs, 1, 1), stream, *arguments)
        told = about, hooks.launch_enter_hook, hooks.launch_exit_hook
        run(programs, 1, 1, stream, kernel.function, kernel.packed_metadata, *told, *arguments)


def _by_torch(compiled: Any, device: int) -> Start | None:
    """How torch's launcher starts a kernel; None if it cannot."""
    launcher, about = getattr(sys.modules["torch"]._C, "_StaticCudaLauncher", None), compiled.metadata
    types = ["O" if t.startswith("*") else TYPES.get(t) for t in compiled.src.signature.values()]
    scratch = [getattr(about, name) for name in SCRATCH if hasattr(about, name)]
    if launcher is None or "cubin" not in compiled.asm or None in types or any(scratch):
        return None
    try:
        function = _function(launcher, compiled, device)
    except (RuntimeError, TypeError):  # it asks for too much shared memory, say: Triton has better words for that
        return None
    launch, warps, shared, none = launcher._launch_kernel, about.num_warps, about.shared, (None,) * len(scratch)
    letters = "".join(map(str, types)) + "O" * len(none)

    def start(programs: int, stream: int, arguments: Sequence[Any]) -> None:
        launch(function, programs, 1, 1, warps, shared, letters, (*arguments, *none), stream)

    return start


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
    """What tells the current GPU: a function of torch's in C, where it has one."""
    torch = sys.modules["torch"]
    return getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def current_stream() -> Callable[[int], int]:
    """What tells the address of a GPU's current stream: the function that torch.compile calls, where there is one."""
    torch = sys.modules["torch"]
    return getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream)
