"""Moves a call between devices, and finds the target of a device.

In: a checked `Call`. Out: the same call with its arrays as numpy arrays (for the evaluators and
the interpreter) or on the current GPU. Results are not moved: they are where the arguments are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from minitri.hardware.targets import StageUnavailable, Target
from minitri.runtime.arguments import ArrayView, empty, view
from minitri.runtime.binding import Call


def target_of(device: str) -> Target:
    """What a device ("cpu", "cuda:0") runs: the interpreter, or code for its architecture."""
    if device == "cpu":
        return Target("interpreter", "")
    import torch

    if torch.version.hip:
        return Target("hip", torch.cuda.get_device_properties(device).gcnArchName.split(":")[0])
    major, minor = torch.cuda.get_device_capability(device)
    return Target("cuda", f"{major}{minor}")


def own_target(call: Call) -> Target | None:
    """What the GPU that holds a call's arrays runs; None if they are on the CPU."""
    devices = (a.device for a in call.arrays.values())
    return next((target_of(d) for d in devices if d != "cpu"), None)


def on_cpu(call: Call) -> Call:
    """The same call with every array on the CPU."""
    arrays = {n: a if a.device == "cpu" else view(a.numpy(), n) for n, a in call.arrays.items()}
    return replace(call, sizes=dict(call.sizes), arrays=arrays)


def beside(call: Call) -> Call:
    """Numbers that numpy holds (0-d arrays) follow the tensors of a call to their GPU."""
    devices = {a.device for a in call.arrays.values()}
    return on_gpu(call) if "cpu" in devices and len(devices) > 1 else call


def require_gpu() -> Any:
    """torch, if it has a GPU; StageUnavailable MT0402 if not."""
    try:
        import torch
    except ImportError:
        raise StageUnavailable("MT0402", "torch is not installed", help="pip install torch") from None
    if not torch.cuda.is_available():
        help = "run on a machine with a CUDA GPU; stage `triton` runs the same kernels in the interpreter"
        raise StageUnavailable("MT0402", "there is no GPU here", help=help)
    return torch


def on_gpu(call: Call) -> Call:
    """The same call with every array on a GPU; StageUnavailable MT0402 where there is none."""
    torch = require_gpu()
    with torch.cuda.device(None if call.model is None or call.model.device == "cpu" else call.model.owner.device):
        arrays = {n: _copied(a, torch) if a.device == "cpu" else a for n, a in call.arrays.items()}
    return replace(call, sizes=dict(call.sizes), arrays=arrays)


def _copied(array: ArrayView, torch: Any) -> ArrayView:
    """The elements of a CPU array in new GPU memory, row-major."""
    made = empty(view(torch.empty(0, device="cuda"), "moved"), array.dtype, array.shape)
    host = np.array(array.numpy(), order="C", copy=True)
    if array.dtype.name == "bf16":  # torch does not know ml_dtypes' bf16: the bits are moved
        made.owner.view(torch.int16).copy_(torch.from_numpy(host.view(np.int16)))
    else:
        made.owner.copy_(torch.from_numpy(host))
    return made
