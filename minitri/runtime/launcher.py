"""Starts a compiled kernel on a GPU: by torch's launcher of Triton's kernels, or by Triton's own.

In: a kernel that Triton compiled, and the current device. Out: a function that starts it, given a stream and numbers
(addresses, sizes). The one idea: torch comes with a compiled launcher, made for torch.compile. Triton up to 3.6
compiles a launcher for each signature, and a library that loads machine code. Each of them runs a C compiler before
the first result. Left to Triton: kernels that torch's launcher does not know (tensor descriptors, machine code of other
vendors, kernels that start early), and launches that a profiler records.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

TYPES = {"i32": "i", "i64": "l", "fp64": "d"}  # of numbers, as torch's launcher calls them
SCRATCH = ("global_scratch_size", "profile_scratch_size")  # memory that Triton's kernels may ask for, and take last

Start = Callable[[int, int, tuple[Any, ...]], None]  # programs, stream, arguments in order


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
