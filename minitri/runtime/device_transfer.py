"""Moves the arrays of a call between devices, and finds the target of a device.

In: a checked `Call`. Out: the same call with its arrays as numpy arrays (for the evaluators and the interpreter), or
with its arrays on the current GPU. The results of a call stay on the device of its arguments.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from minitri.hardware.targets import StageUnavailable, Target
from minitri.runtime.arguments import ArrayView, as_tensor, empty, view
from minitri.runtime.binding import Call


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
    """Returns a copy of the call that has every array on the CPU."""
    arrays = {n: a if a.device == "cpu" else view(a.numpy(), n) for n, a in call.arrays.items()}
    return replace(call, sizes=dict(call.sizes), arrays=arrays)


def beside(call: Call) -> Call:
    """Returns the call with each 0-d numpy array moved to the GPU that holds the other arrays."""
    devices = {a.device for a in call.arrays.values()}
    return on_gpu(call) if "cpu" in devices and len(devices) > 1 else call


def require_gpu() -> Any:
    """Returns the module torch. Raises StageUnavailable MT0402 if torch is not installed or finds no GPU."""
    try:
        import torch
    except ImportError:
        raise StageUnavailable("MT0402", "torch is not installed", help="pip install torch") from None
    if not torch.cuda.is_available():
        help = "run on a machine with a CUDA GPU; stage `triton` runs the same kernels in the interpreter"
        raise StageUnavailable("MT0402", "there is no GPU here", help=help)
    return torch


def on_gpu(call: Call) -> Call:
    """Returns a copy of the call that has every array on a GPU. Raises StageUnavailable MT0402 if there is no GPU."""
    torch = require_gpu()
    with torch.cuda.device(None if call.device == "cpu" else call.device):
        arrays = {n: _copied(a, torch) if a.device == "cpu" else a for n, a in call.arrays.items()}
    return replace(call, sizes=dict(call.sizes), arrays=arrays)


def _copied(array: ArrayView, torch: Any) -> ArrayView:
    """Returns a row-major copy of a CPU array in new GPU memory."""
    made = empty(view(torch.empty(0, device="cuda"), "moved"), array.dtype, array.shape)
    made.owner.copy_(as_tensor(np.array(array.numpy(), order="C", copy=True)))
    return made
