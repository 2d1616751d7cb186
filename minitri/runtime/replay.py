"""Makes repeated calls on a GPU fast: a repeated call skips the checks of the first call, and launches the same
compiled kernels.

A `Replay` repeats an earlier call with new tensors. The new tensors have the same dtypes, shapes, strides, alignment
and device as the tensors of the earlier call. The `Replay` allocates arrays and launches the kernels. A `Captured` is a
call that is stored as one CUDA graph. Every launch of this graph uses the same arrays and the same outputs (`Bound`).

Two calls with an equal `call_key` can share one `Replay`, which has recorded the kernel launches. The check
`again_like` tests whether two consecutive calls have arguments of the same types and shapes. The check `again_like`
takes less time than computing a `call_key`. `ReplayCache` keeps the `Replay` objects of a program.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from minitri.base.diagnostics import ensure
from minitri.base.lru_cache import Recent
from minitri.base.types import DType
from minitri.runtime.call_binding import Call
from minitri.runtime.gpu_launcher import Described, current_device, current_stream, finish_launchers
from minitri.runtime.launch import Bound, Executable, Launch, on_device

Key = tuple[Any, ...]
EXACT = 2**53  # f64 represents every integer below it
Again = Callable[[Sequence[Any]], Any]


def call_key(args: Sequence[Any], floats: Container[int] = ()) -> tuple[Key, list[int]] | None:
    """Returns a hashable key for a call, and the addresses of the call's tensors. Two calls have equal keys only if
    they launch the same kernels in the same way.

    The result is None if an argument is neither a dense tensor nor a number. The key does not contain the values of
    float arguments: a `Replay` passes these values at run time. For a float parameter (see `floats`), an integer below
    2**53 counts as a float argument.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    key, pointers, kinds = list[Any](), list[int](), (torch.Tensor, torch.nn.Parameter)
    try:
        for place, a in enumerate(args):
            if type(a) in kinds:
                pointer = a.data_ptr()
                pointers.append(pointer)
                key += (a.dtype, a.shape, a.stride(), a.device, a.is_neg(), pointer % 16)
            elif isinstance(a, float) or (type(a) is int and place in floats and abs(a) < EXACT):
                key.append(float)
            elif isinstance(a, (bool, int)):
                key += (type(a), a)
            else:
                return None
    except RuntimeError:  # a sparse, nested or fake tensor has no address or strides
        return None
    return tuple(key), pointers


def again_like(args: Sequence[Any], pointers: Sequence[int], replay: Replay) -> Again | None:
    """Returns a function that repeats a call with new arguments.

    The returned function launches kernels only if the new arguments have the types, shapes and layouts of `args`;
    otherwise it returns None.

    The guards of torch.compile (checks of arguments in C code) compare the new arguments with `args`. `again_like`
    itself returns None if this version of torch has no guards, or if `args` contains a number. In many programs, the
    GPU waits for the host. To save time on the host, all code of a repeated call is in one function.
    """
    tensors_alone = len(pointers) == len(args) > 0 and all(p % 16 == 0 for p in pointers)
    check = _guards(args) if tensors_alone else None
    if check is None or not check(*args):  # the guards refuse the same tensor twice
        return None
    count, device, current, run = len(args), replay.device, replay.current, replay.run
    address = sys.modules["torch"].Tensor.data_ptr

    def again(args: Sequence[Any]) -> Any:
        if len(args) != count or not check(*args):
            return None
        pointers = list(map(address, args))
        for pointer in pointers:
            if pointer & 15:
                return None
        return run(pointers, args) if current() == device else replay(pointers, args)

    return again


def _guards(args: Sequence[Any]) -> Callable[..., bool] | None:
    """Returns torch's fast function that checks dtypes, shapes and strides of tensors, or None if torch has no such
    function.
    """
    try:
        guards: Any = importlib.import_module("torch._C._dynamo.guards")
        sizes, strides = [list(a.shape) for a in args], [list(a.stride()) for a in args]
        # written in C; torch.compile uses this check too
        return guards.TensorGuards(*args, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    except (ImportError, AttributeError, TypeError, SystemError):  # not a public interface of torch
        return None


class Replay:
    """The recorded kernel launches of a call, which can be repeated with other tensors.

    Each repetition takes the addresses of the new tensors, and all arguments of the new call.

    `floats` has the position and the default of each float parameter.
    """

    def __init__(self, bound: Bound, floats: Mapping[str, tuple[int, float]]) -> None:
        import torch

        plan, call, model = bound.plan, bound.call, bound.call.model
        assert model is not None
        self.device, self.switch = model.owner.device.index, torch.cuda.device
        self.current, self.stream = current_device(), current_stream()
        made = (*plan.temporaries, *plan.outputs)
        self.made = tuple(_empty(b.dtype, *b.layout(call.sizes), self.device) for b in made)
        self.first, self.single = len(plan.temporaries), len(plan.outputs) == 1
        slots = {name: k for k, name in enumerate((*call.arrays, *(b.name for b in made)))}
        with on_device(model):
            self.steps = tuple(_Step(x, slots, floats) for x in bound.launches if x.programs)
        is_single = len(self.steps) == len(made) == 1 and not self.steps[0].more
        self.run = self._run_single(self.steps[0]) if is_single else self._run

    def __call__(self, pointers: list[int], args: Sequence[Any]) -> Any:
        if self.current() != self.device:
            with self.switch(self.device):
                return self.run(pointers, args)
        return self.run(pointers, args)

    def _run(self, pointers: list[int], args: Sequence[Any]) -> Any:
        tensors = [make() for make in self.made]
        pointers += [t.data_ptr() for t in tensors]
        stream = self.stream(self.device)
        for step in self.steps:
            given = step.pick(pointers) + step.numbers
            if step.more:
                given = step.with_more(given, args)
            step.start(step.programs, stream, given)
        return tensors[-1] if self.single else tuple(tensors[self.first :])

    def _run_single(self, step: _Step) -> Callable[[list[int], Sequence[Any]], Any]:
        """Returns a function that replaces `_run` for calls with one kernel and one output, and is faster."""
        (make,), stream, device = self.made, self.stream, self.device  # such calls are the most frequent
        start, programs, pick, numbers = step.start, step.programs, step.pick, step.numbers

        def run(pointers: list[int], args: Sequence[Any]) -> Any:
            made = make()
            pointers.append(made.data_ptr())
            start(programs, stream(device), pick(pointers) + numbers)
            return made

        return run


def _empty(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], device: int) -> Callable[[], Any]:
    """Returns a function that allocates a tensor on the current GPU."""
    import torch

    kind = getattr(torch, dtype.numpy.name)
    try:
        # The allocator of torch.compile skips torch's dispatcher.
        return partial(importlib.import_module("torch._C._dynamo.guards")._empty_strided_cuda, shape, strides, kind)
    except (ImportError, AttributeError):
        return partial(torch.empty_strided, shape, strides, dtype=kind, device=f"cuda:{device}")


class _Step:
    """One kernel launch of a recorded call."""

    __slots__ = ("start", "programs", "pick", "numbers", "floats", "descriptors", "more")

    def __init__(self, launch: Launch, slots: Mapping[str, int], floats: Mapping[str, tuple[int, float]]) -> None:
        self.start, self.programs, self.numbers = launch.start(), launch.programs, launch.numbers
        kernel = launch.step.kernel
        taken = [slots[b.name] for b in kernel.pointers]
        # selects the kernel's pointers from the addresses of the call's arrays, temporaries and outputs
        self.pick: Callable[..., Any] = itemgetter(*taken) if len(taken) > 1 else lambda pointers: (pointers[taken[0]],)
        self.floats = tuple(floats[b.name] for b in kernel.scalars)
        self.descriptors = kernel.descriptors
        self.more = bool(self.floats or self.descriptors)  # whether arguments follow the sizes

    def with_more(self, given: tuple[Any, ...], args: Sequence[Any]) -> tuple[Any, ...]:
        """Returns all arguments of a kernel: `given`, then the float arguments in `args`, and then the tensor
        descriptors of the call's arrays.
        """
        floats = (float(args[k]) if k < len(args) else default for k, default in self.floats)
        return (*given, *floats, *(Described(d, given) for d in self.descriptors))


class Captured(Bound):
    """A call as a CUDA graph: one launch runs all kernels of the call. Every launch uses the same arrays and the same
    outputs.

    Write new values into the arrays, call the `Captured` object, then read the results. A `Captured` object is used in
    the same way as an object of the class torch.cuda.CUDAGraph.
    """

    def __init__(self, executable: Executable, call: Call) -> None:
        help = "pass CUDA tensors; `bind` makes a handle for arrays on a CPU"
        ensure(call.device != "cpu", "MT0305", "only calls on a GPU can be captured", help)
        import torch

        super().__init__(executable, call)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(call.device):
            finish_launchers()
            self()  # the first launch does additional work, which must not become part of the CUDA graph
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may load kernels
                self()
        self._launched, self._start = self._start, graph.replay


def replayable(call: Call) -> bool:
    """Checks whether the `call_key` of a call contains everything that a repeated launch depends on. The key is
    incomplete unless all arrays of the call are torch tensors on a GPU.
    """
    tensors = all(a.kind == "torch" and a.device != "cpu" and not a.library for a in call.arrays.values())
    return bool(call.arrays) and tensors and not any(isinstance(v, float) for v in call.instance.statics.values())


# ---- earlier calls ---------------------------------------------------------------------------


MAX_REPLAYS = 1024  # replays of one program


class ReplayCache:
    """The `Replay` objects (recorded calls) of one program.

    Of several equal calls, the first call binds its arguments, finds its kernels and keeps a `Replay`. The second of
    several equal calls computes its key, and finds the `Replay` of the first call under this key. The third and later
    equal calls are recognised by torch's guards (fast checks of arguments), without computing a key. If a call differs
    from the previous call, a key made from its arguments finds the `Replay` (recorded call).

    `floats`: the position and the default of each float parameter. The key of a call does not contain the values of
        float parameters.
    `kept`: the `Replay` objects, by the key of their call.
    `again`: None, or the function that `again_like` made last. The function repeats the earlier call. If new arguments
        are not like the arguments of the earlier call, the function returns None.
    """

    def __init__(self, floats: Mapping[str, tuple[int, float]]) -> None:
        self.floats = floats
        self.float_places = frozenset(place for place, _ in floats.values())
        self.kept: Recent[Key, Replay] = Recent(MAX_REPLAYS)
        self.again: Again | None = None
        self._recent: Replay | None = None  # the replay of the last call
        self._repeated: Replay | None = None  # the last replay that two successive calls shared

    def find(self, key: Key, pointers: Sequence[int], args: Sequence[Any]) -> Replay | None:
        """Returns the `Replay` (recorded call) for this key, or None if there is no such `Replay`.

        If the previous call had the same key, `find` makes guards (fast checks of arguments) for the next call.
        """
        replay = self.kept.get(key)
        if replay is not None and replay is self._recent and (replay is not self._repeated or self.again is not None):
            self._repeated, self.again = replay, again_like(args, pointers, replay)
        self._recent = replay or self._recent
        return replay

    def keep(self, key: Key, pointers: Sequence[int], bound: Bound, call: Call, args: Sequence[Any]) -> None:
        """Keeps a `Replay` of a call that has just been made, if the call can be repeated."""
        tensors = len(pointers) == len(call.arrays) and replayable(call)
        numbers = all(isinstance(args[k], (int, float)) for k in self.float_places if k < len(args))
        own = all(bound.call.arrays[name] is a for name, a in call.arrays.items())
        if tensors and numbers and own:
            self.kept.made(key, lambda: Replay(bound, self.floats))
