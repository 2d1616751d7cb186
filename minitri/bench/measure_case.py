"""Measures one case on a GPU: every implementation gets the same inputs, and its result is compared with the reference.

The function `compare` takes a case and a clock (a function that times the calls of several implementations). `compare`
returns a `Row` with the time and error of each implementation. The `Row` also has the memory of a call of minitri, and
the predicted bytes and operations. The file alternating_timer.py has the clock for a GPU. An error is |result -
reference| / |reference| in the 2-norm, where the reference is computed in f64. For a case without matrix products
(`flops` is 0), the function `compare` also times a copy of memory.

The file result_tables.py makes the tables of measurements on a GPU.

Without a GPU, `small_table` compares Triton's interpreter with numpy, for small sizes that are no multiples of block
sizes. The function `small_table` shows whether kernels compute right results, but not how fast they run on a GPU.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import starmap
from operator import attrgetter
from typing import Any

import numpy as np
import torch

import minitri as mt
from minitri.base.text_tables import table
from minitri.base.types import DTYPES, items_of
from minitri.bench import call_costs
from minitri.bench.alternating_timer import Calls, Clock, Pace, Run
from minitri.bench.cases import Case, Input
from minitri.bench.result_tables import Peer, Row, number, time_of
from minitri.cli.terminal import track
from minitri.hardware.roofline import roofline
from minitri.runtime.array_interop import as_tensor
from minitri.runtime.schedule_search import first_line
from minitri.runtime.timing import measure

# The largest error of a right answer, by dtype.
WITHIN = {"i8": 0.0, "f32": 1e-5, "tf32": 2e-3, "f16": 2e-3, "bf16": 1e-2}
# A product needs a longer warm-up, until the chip reaches its power limit.
MOVING, COMPUTING = Pace(25e-3), Pace(100e-3, 150e-3)
ROTATED, SETS = 256 << 20, 64  # the bytes of all sets of inputs (about four L2 caches), and the largest number of sets
COPY_BYTES = 2 << 30  # bytes that a copy reads, and also the bytes that it writes

Arrays = Sequence[Any]
Maker = Callable[[], Iterable[Run]]  # makes the calls of an implementation one after another; can raise an exception


def compare(case: Case, device: str, clock: Clock, copy: Run | None, tune: bool = False) -> Row:
    """Measures a case on `device`, and returns the measurements as a `Row`.

    `copy` is a function that copies `COPY_BYTES` bytes of memory. If the argument `copy` is None, the time of a copy
    and the memory of a call are not measured. If `tune` or the field `tuned` of the case is true, minitri is also timed
    with schedules that were chosen by measuring.
    """
    arrays = [tensor(i, device) for i in case.inputs]
    reference = items_of(case.eager(*[a.double() if a.is_floating_point() else a for a in arrays]))
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    row = Row(case.name, within(case), case.kind, flops=case.flops)
    row.bytes = _bytes_moved(case, arrays, reference)
    sets = rotated(arrays)
    ready = make_ready(_implementations(case, sets, row, tune), row.peers, reference)
    ready |= make_ready({name: partial(_bound, p, sets) for name, p in case.beside.items()}, row.beside, None)
    del reference
    time_together(row, ready, clock, copy)
    if device != "cpu":
        if copy is not None:
            row.peak, row.planned = _memory(case, arrays)
        _predict(case, arrays, row)
    return row


def gpu_facts() -> dict[str, Any]:
    """Returns the name of the GPU and the versions of the libraries."""
    import triton

    versions = {"torch": torch.__version__, "triton": triton.__version__, "minitri": mt.__version__}
    return {"device": torch.cuda.get_device_name(), **versions}


def forget() -> None:
    """Frees the memory that a case has used: functions that torch compiled, and memory that torch's allocator keeps."""
    torch.compiler.reset()
    torch.cuda.empty_cache()


def within(case: Case) -> float:
    return WITHIN["tf32" if case.tf32 else case.inputs[0].dtype]


def tensor(given: Input, device: str) -> Any:
    dtype = getattr(torch, "bool" if given.dtype == "bool" else DTYPES[given.dtype].triton)
    if given.below:
        return torch.randint(-given.below if given.signed else 0, given.below, given.shape, device=device, dtype=dtype)
    make = torch.rand if given.positive else torch.randn
    *outer, n = given.shape or (1,)
    shapes = {"transposed": (*outer[:-1], n, *outer[-1:]), "every other": (*outer, 2 * n), "wide rows": (*outer, n + 8)}
    made = make(shapes.get(given.layout, given.shape), device=device, dtype=dtype).mul_(given.scale)
    views = {"transposed": lambda: made.mT, "every other": lambda: made[..., ::2], "wide rows": lambda: made[..., :n]}
    return views.get(given.layout, lambda: made)()


def rotated(arrays: Arrays) -> list[Arrays]:
    """Returns sets of inputs: the arrays themselves, and enough copies to push one set out of the L2 cache before the
    set is used again.
    """
    count = min(max(math.ceil(ROTATED / max(sum(a.nbytes for a in arrays), 1)), 1), SETS)
    return [arrays, *(list(map(_copied, arrays)) for _ in range(count - 1))]


def _copied(a: Any) -> Any:
    """Returns a copy of a tensor with the same strides."""
    # `clone` would make a contiguous copy of a strided array
    return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device=a.device).copy_(a)


def _bytes_moved(case: Case, arrays: Arrays, reference: Arrays) -> int:
    """Returns how many bytes a benchmark case must read and write."""
    read, like = [a.nbytes for a in arrays], arrays[0]
    # `reference` has the shapes of the results, but the dtype f64: float results are assumed to have the dtype of the
    # first input
    out = sum(r.numel() * (like if r.is_floating_point() else r).element_size() for r in reference)
    return out + sum(read) if not case.picks else 2 * out + sum(read[1:])


# ---- peers -----------------------------------------------------------------------------


def _implementations(case: Case, sets: Sequence[Arrays], row: Row, tune: bool) -> dict[str, Maker]:
    """Maps the name of each implementation to a function that prepares its calls."""
    # each function returns one call for each set of inputs
    makers: dict[str, Maker] = {"minitri": partial(_bound, case.program, sets)}
    ways = {"eager": case.eager, "library": case.library, **case.peers}
    makers |= {name: partial(_each, way, sets) for name, way in ways.items() if way is not None}
    makers["compile"] = lambda: _each(torch.compile(case.eager, dynamic=False), sets)
    if case.tuned or tune:
        # also stores in `row` how long it takes to measure the schedules
        makers["minitri tuned"] = lambda: _tuned(case.program, sets, row)
    if case.tuned:
        mode = "max-autotune-no-cudagraphs"
        makers["max-autotune"] = lambda: _each(torch.compile(case.eager, dynamic=False, mode=mode), sets)
    return makers


def _each(function: Callable[..., Any], sets: Sequence[Arrays]) -> Iterable[Run]:
    return (partial(function, *arrays) for arrays in sets)


def _bound(text: str, sets: Sequence[Arrays]) -> Iterable[Run]:
    return starmap(mt.compile(text).bind, sets)


def _tuned(text: str, sets: Sequence[Arrays], row: Row) -> Iterable[Run]:
    program, start = mt.compile(text), time.perf_counter()
    options = mt.tune(program, *sets[0])
    row.tuning = time.perf_counter() - start
    return starmap(program.configured(options=options).bind, sets)


# ---- errors and times --------------------------------------------------------------------


def make_ready(makers: Mapping[str, Maker], peers: dict[str, Peer], reference: Arrays | None) -> dict[str, Calls]:
    """Returns the calls of each implementation that runs without an error.

    For each implementation, the error and the time to the first result are stored in `peers`.

    If an implementation fails, its exception becomes a note in `peers`. The printed report shows this note.
    """
    ready: dict[str, Calls] = {}
    for name, make in makers.items():
        peer = peers[name] = Peer()
        try:
            (calls, first, result), peer.first = call_costs.first_result(partial(_begin, make))
            peer.error = error_of(result, reference) if reference is not None else None
            ready[name] = [first, *calls]
        except Exception as error:
            peer.note = first_line(error)
    return ready


def _begin(make: Maker) -> tuple[Iterable[Run], Run, Any]:
    """Calls an implementation once. Returns the later calls, the first call and the result of the first call."""
    calls = iter(make())
    first = next(calls)
    return calls, first, first()


def time_together(row: Row, ready: Mapping[str, Calls], clock: Clock, copy: Run | None) -> None:
    """Times all implementations of a case in one call of `clock`, which runs the implementations alternately.

    If the function also times `copy`, the row gets the time for copying as many bytes of memory as the case moves.
    """
    copies = {} if row.flops or copy is None else {"copy": [copy]}
    times = clock({**ready, **copies}, COMPUTING if row.flops else MOVING)
    for name, peer in {**row.peers, **row.beside}.items():
        seconds = times.get(name)
        if isinstance(seconds, Exception):
            peer.note = first_line(seconds)
        else:
            peer.seconds = seconds
    if copies:
        row.copy_bytes_per_second = copy_rate(times["copy"])
        row.floor = row.bytes / row.copy_bytes_per_second


def copy_rate(time: float | Exception) -> float:
    """Returns the rate of a copy: the bytes that the copy reads plus the bytes that the copy writes, per second."""
    if isinstance(time, Exception):
        raise time
    return 2 * COPY_BYTES / time


def error_of(result: Any, reference: Arrays) -> float:
    """Returns the largest relative error of the outputs."""
    norm, pairs = torch.linalg.vector_norm, zip(items_of(result), reference, strict=True)
    return max(float(norm(got.double() - r.double()) / norm(r.double()).clamp_min(1e-300)) for got, r in pairs)


# ---- memory, bytes and operations --------------------------------------------------------


def _memory(case: Case, arrays: Arrays) -> tuple[int, int]:
    """Returns the peak memory of a call, and the bytes of its outputs and temporaries."""
    program = mt.compile(case.program)
    first = call_costs.peak(lambda: program(*arrays))
    run, call = program.prepare(*arrays)
    made = [*run.plan.temporaries, *run.plan.outputs]
    kinds = [(*b.layout(call.sizes), getattr(torch, b.dtype.numpy.name)) for b in made]
    planned = call_costs.peak(lambda: [torch.empty_strided(*n, dtype=kind, device="cuda") for *n, kind in kinds])
    return max(first, call_costs.peak(lambda: program(*arrays))), planned


def _predict(case: Case, arrays: Arrays, row: Row) -> None:
    """Stores the predicted time, bytes and operations of a case in its row."""
    if found := roofline(mt.compile(case.program).lower(*arrays).compilation):
        total = found.total
        works = {"graph": found.graph.needed, "kernels": total.needed, "tiles": total.asked}
        row.work = {name: {"bytes": w.bytes, "flops": w.total} for name, w in works.items() if w is not None}
        row.predicted = total.predicted


# ---- without a GPU ------------------------------------------------------------------------------


def small_table(chosen: Sequence[Case]) -> tuple[list[Row], dict[str, Any]]:
    """Prints a table of cases with small sizes, which Triton's interpreter runs.

    For comparison, numpy evaluates the syntax tree of each case's program.
    """
    torch.manual_seed(0)  # the same inputs in every run
    rows = [_small(shrunk(case)) for case in track("bench", chosen, attrgetter("name"))]
    print("No GPU here: this is Triton's interpreter against numpy, on sizes that are small and ragged.")
    print("It shows that the kernels are right, not how fast they are.\n")
    lines = [("ms (median)", "interpreter", "numpy", "error", "")]
    for r in rows:
        own, reference = r.peers["minitri"], r.peers["numpy"]
        lines.append((r.name, time_of(own), time_of(reference), number(own.error, ".1e"), "ok" if r.ok else "WRONG"))
    print(table(lines))
    return rows, {"device": "interpreter", "minitri": mt.__version__}


def shrunk(case: Case) -> Case:
    """Returns the case with small sizes, such as 129 in place of 16384. Two equal sizes get the same small size.

    Random integers that are not negative become smaller too, because they can be indices into an array.
    """

    def small(n: int) -> int:
        return n // 128 + 1

    belows = [small(i.below) if i.below and not i.signed else i.below for i in case.inputs]
    inputs = [i._replace(shape=tuple(map(small, i.shape)), below=n) for i, n in zip(case.inputs, belows)]
    return case._replace(inputs=tuple(inputs))


def _small(case: Case) -> Row:
    shapes = " ".join("x".join(map(str, i.shape)) for i in case.inputs)
    program, row = mt.compile(case.program), Row(f"{case.name.rsplit(' ', 1)[0]} ({shapes})", within(case), case.kind)
    arrays = [tensor(i, "cpu") for i in case.inputs]
    error = error_of(program(*arrays), as_tensors(program.numpy(*arrays)))
    for name, run, off in (("numpy", program.numpy, 0.0), ("minitri", program, error)):
        row.peers[name] = Peer(measure(partial(run, *arrays), "cpu", repeats=5, warmup=1).median, off)
    return row


def as_tensors(results: Any) -> list[Any]:
    """Returns results of numpy as tensors of torch."""
    return [as_tensor(np.asarray(r)) for r in items_of(results)]
