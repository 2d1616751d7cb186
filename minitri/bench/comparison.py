"""A case on a GPU: every peer on the same inputs, compared with the reference and with each other.

In: a case, a clock. Out: a `Row`: times of all peers in turns (clock.py), errors |result - reference| / |reference|
(2-norms) against f64, memory, and what was predicted of bytes and operations. A case without flops has the rate
of a copy measured as one more peer.

Left out: what it prints (report.py).

Without a GPU a small table holds Triton's interpreter against numpy, on sizes that are small and ragged. It shows that
the kernels are right; nothing there can be fast or slow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import minitri as mt
from minitri.base.tables import table
from minitri.base.types import DTYPES
from minitri.bench import host
from minitri.bench.case import Case, Input, torch
from minitri.bench.clock import Calls, Clock, Pace, Run
from minitri.bench.report import Peer, Row, number, time_of
from minitri.hardware.roofline import roofline
from minitri.runtime.schedule_search import first_line
from minitri.runtime.timing import measure

WITHIN = {"f32": 1e-5, "tf32": 2e-3, "f16": 2e-3, "bf16": 1e-2}  # error of a right answer, by dtype
MOVING, COMPUTING = Pace(25e-3), Pace(100e-3, 150e-3)  # what computes meets the limit of power
ROTATED, SETS = 256 << 20, 64  # bytes of all sets of inputs, four L2 caches; how many sets there are at most
COPY_BYTES = 2 << 30  # read, and as many written

Arrays = Sequence[Any]


def compare(case: Case, device: str, clock: Clock, copy: Run, tune: bool = False) -> Row:
    """`copy`: copies `COPY_BYTES`. `tune`: ours with measured schedules runs, too, whatever the case says."""
    arrays = [tensor(i, device) for i in case.inputs]
    reference = several(case.eager(*[a.double() if a.is_floating_point() else a for a in arrays]))
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    row = Row(case.name, within(case), case.kind, flops=case.flops)
    row.bytes = _moved(case, arrays, sum(r.numel() * _bytes(r, arrays[0]) for r in reference))
    sets = rotated(arrays)
    ready = _ready(_ways(case, sets, row, tune), row.peers, reference) | _ready(_beside(case, sets), row.beside, None)
    del reference
    _time(row, ready, clock, copy)
    if device != "cpu":
        row.peak, row.planned = _memory(case, arrays)
        _predict(case, arrays, row)
    return row


def forget() -> None:
    """What a case leaves behind: functions that torch compiled, and memory that its allocator keeps."""
    torch.compiler.reset()
    torch.cuda.empty_cache()


def within(case: Case) -> float:
    return WITHIN["tf32" if case.tf32 else case.inputs[0].dtype]


def tensor(given: Input, device: str) -> Any:
    dtype = getattr(torch, "bool" if given.dtype == "bool" else DTYPES[given.dtype].triton)
    if given.below:
        return torch.randint(given.least, given.below, given.shape, device=device, dtype=dtype)
    make = torch.rand if given.positive else torch.randn
    return make(given.shape, device=device, dtype=dtype)


def rotated(arrays: Arrays) -> list[Arrays]:
    """The arrays, and as many copies of them as it takes for one set to leave the cache before it comes again."""
    size = sum(a.numel() * a.element_size() for a in arrays)
    count = min(max(math.ceil(ROTATED / max(size, 1)), 1), SETS)
    return [arrays, *([a.clone() for a in arrays] for _ in range(count - 1))]


def _moved(case: Case, arrays: Arrays, out: int) -> int:
    """Bytes that must be read and written."""
    read = [a.numel() * a.element_size() for a in arrays]
    return out + sum(read) if not case.picks else 2 * out + sum(read[1:])


def _bytes(reference: Any, like: Any) -> int:
    """Of an element of a result: a float has the dtype of the first input."""
    return (like if reference.is_floating_point() else reference).element_size()


# ---- peers -----------------------------------------------------------------------------


def _ways(case: Case, sets: Sequence[Arrays], row: Row, tune: bool = False) -> dict[str, Callable[[], Calls]]:
    """For each peer a function that makes its calls, one for each set; `row` receives the time of measuring schedules."""
    ways: dict[str, Callable[[], Calls]] = {"minitri": partial(_bound, case.program, sets)}
    ways["eager"] = partial(_each, case.eager, sets)
    if case.library is not None:
        ways["library"] = partial(_each, case.library, sets)
    ways |= {name: partial(_each, way, sets) for name, way in case.peers.items()}
    ways["compile"] = lambda: _each(torch.compile(case.eager, dynamic=False), sets)
    if case.tuned or tune:
        ways["minitri tuned"] = lambda: _tuned(case.program, sets, row)
    if case.tuned:
        mode = "max-autotune-no-cudagraphs"
        ways["max-autotune"] = lambda: _each(torch.compile(case.eager, dynamic=False, mode=mode), sets)
    return ways


def _beside(case: Case, sets: Sequence[Arrays]) -> dict[str, Callable[[], Calls]]:
    return {name: partial(_bound, program, sets) for name, program in case.beside.items()}


def _each(function: Callable[..., Any], sets: Sequence[Arrays]) -> Calls:
    return [partial(function, *arrays) for arrays in sets]


def _bound(text: str, sets: Sequence[Arrays]) -> Calls:
    program = mt.compile(text)
    return [program.bind(*arrays) for arrays in sets]


def _tuned(text: str, sets: Sequence[Arrays], row: Row) -> Calls:
    program, start = mt.compile(text), time.perf_counter()
    options = mt.tune(program, *sets[0])
    row.tuning = time.perf_counter() - start
    tuned = program.configured(options=options)
    return [tuned.bind(*arrays) for arrays in sets]


# ---- errors and times --------------------------------------------------------------------


def _ready(
    ways: Mapping[str, Callable[[], Calls]], peers: dict[str, Peer], reference: tuple[Any, ...] | None
) -> dict[str, Calls]:
    """Calls of the peers that run, with their errors; one that fails is a line of the report, not the end of it."""
    ready: dict[str, Calls] = {}
    for name, make in ways.items():
        peers[name] = Peer()
        try:
            calls = make()
            result = calls[0]()
            peers[name].error = error_of(result, reference) if reference is not None else None
            ready[name] = calls
        except Exception as error:
            peers[name].note = first_line(error)
    return ready


def _time(row: Row, ready: Mapping[str, Calls], clock: Clock, copy: Run) -> None:
    """Everything in the same turns; what a copy of the same bytes would take, from the copy among them."""
    turns = {**ready} if row.flops else {**ready, "copy": [copy]}
    times = clock(turns, COMPUTING if row.flops else MOVING)
    for name, peer in {**row.peers, **row.beside}.items():
        time = times.get(name)
        if isinstance(time, Exception):
            peer.note = first_line(time)
        elif time is not None:
            peer.seconds = time
    if not row.flops:
        row.copy_bytes_per_second = copy_rate(times["copy"])
        row.floor = row.bytes / row.copy_bytes_per_second


def copy_rate(time: float | Exception) -> float:
    """Bytes a second, read and written, of the copy."""
    if isinstance(time, Exception):
        raise time
    return 2 * COPY_BYTES / time


def error_of(result: Any, reference: tuple[Any, ...]) -> float:
    """The largest of the outputs' errors."""
    return max(map(_distance, several(result), reference))


def several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _distance(result: Any, reference: Any) -> float:
    wanted = reference.double()
    difference = torch.linalg.vector_norm(result.double() - wanted)
    return float(difference / torch.linalg.vector_norm(wanted).clamp_min(1e-300))


# ---- memory, bytes and operations --------------------------------------------------------


def _memory(case: Case, arrays: Arrays) -> tuple[int, int]:
    """Bytes that a call takes at most, and the bytes of its outputs and temporaries alone."""
    program = mt.compile(case.program)
    first = host.peak(lambda: program(*arrays))
    run, call = program.prepare(*arrays)
    made = [*run.plan.temporaries, *run.plan.outputs]
    sizes = [math.prod(e.evaluate(call.sizes) for e in b.shape) * b.dtype.bytes for b in made]
    planned = host.peak(lambda: [torch.empty(n, dtype=torch.int8, device="cuda") for n in sizes])
    return max(first, host.peak(lambda: program(*arrays))), planned


def _predict(case: Case, arrays: Arrays, row: Row) -> None:
    """Bytes and operations as predicted from the graph, from the kernels, and from the tiles; and the time."""
    found = roofline(mt.compile(case.program).lower(*arrays).compilation)
    if found is not None:
        total = found.total
        works = {"graph": found.graph.needed, "kernels": total.needed, "tiles": total.asked}
        row.work = {name: {"bytes": w.bytes, "flops": w.total} for name, w in works.items() if w is not None}
        row.predicted = total.predicted


# ---- without a GPU ------------------------------------------------------------------------------


def small_table(chosen: Sequence[Case]) -> tuple[list[Row], dict[str, Any]]:
    """Small sizes, numpy's evaluation of the syntax tree as the only peer."""
    random = np.random.default_rng(0)  # the same table every time
    rows = [_small(c, random) for c in chosen]
    print("No GPU here: this is Triton's interpreter against numpy, on sizes that are small and ragged.")
    print("It shows that the kernels are right, not how fast they are.\n")
    lines = [("ms (median)", "interpreter", "numpy", "error", "")]
    for r in rows:
        own = r.peers["minitri"]
        figures = (time_of(own), time_of(r.peers["numpy"]), number(own.error, ".1e"))
        lines.append((r.name, *figures, "ok" if r.ok else "WRONG"))
    print(table(lines))
    return rows, {"device": "interpreter", "minitri": mt.__version__}


def _small(case: Case, random: np.random.Generator) -> Row:
    program = mt.compile(case.program)
    arrays = [array(i, random) for i in case.inputs]
    row = Row(_small_name(case), within(case), case.kind)
    row.peers["numpy"] = Peer(_wall(lambda: program.numpy(*arrays)), 0.0)
    pairs = zip(several(program(*arrays)), several(program.numpy(*arrays)))
    row.peers["minitri"] = Peer(_wall(lambda: program(*arrays)), max(relative(*pair) for pair in pairs))
    return row


def relative(result: Any, reference: Any) -> float:
    wanted = np.asarray(reference, np.float64)
    difference = np.linalg.norm(np.asarray(result, np.float64) - wanted)
    return float(difference / max(float(np.linalg.norm(wanted)), 1e-300))


def _wall(run: Run) -> float:
    return measure(run, "cpu", repeats=5, warmup=1).median


def small(n: int) -> int:
    """16384 → 129: equal sizes stay equal."""
    return n // 128 + 1


def _small_name(case: Case) -> str:
    shapes = " ".join("x".join(str(small(n)) for n in i.shape) for i in case.inputs)
    return f"{case.name.rsplit(' ', 1)[0]} ({shapes})"


def array(given: Input, random: np.random.Generator) -> Any:
    shape, dtype = tuple(map(small, given.shape)), DTYPES[given.dtype].numpy
    if given.below:
        below = given.below if given.signed else small(given.below)  # indices go as far as what they pick from
        return random.integers(given.least, below, shape, dtype=dtype)
    values = random.random(shape) if given.positive else random.standard_normal(shape)
    return values.astype(dtype)
