"""Measures the cases and prints the tables.

In: parts of names of cases (none: all cases), perhaps a path for JSON. Out: tables of times and
of errors on stdout, and 0 if every program of ours ran and was right.

How it is measured: every peer in this one process, on the same fresh random inputs, larger than
the L2 cache (which do_bench clears besides); medians of `triton.testing.do_bench`, 25 ms of
warm-up, 100 ms of repetitions; errors |result - reference| / |reference| (2-norms) against f64
in the same run. `best/ours` is the time of the best peer over ours: above 1, ours is faster.
`of copy` is the time that a copy of the same bytes would take (at the rate of a 4 GiB copy,
measured first) over ours; products show TFLOP/s. torch.compile runs with dynamic=False. Of
square products tuned versions run too: max-autotune-no-cudagraphs, and ours with measured blocks
(runtime/tune.py).

Without a GPU nothing here can be fast or slow: a small table times Triton's interpreter against
numpy on small sizes, and says so. What a call costs the host, and a first result, is measured
when all cases are (bench/host.py); memory with each case.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

import minitri as mt
from minitri.bench import host
from minitri.bench.case import Case, Input, torch
from minitri.bench.cases import cases
from minitri.bench.plot import plot
from minitri.bench.report import Peer, Row, as_dict, number, report, time_of
from minitri.diagnostics import CompileError
from minitri.program import Program
from minitri.roofline import roofline
from minitri.runtime.timing import measure
from minitri.table import table
from minitri.tuning import tune
from minitri.types import DTYPES

COPY_BYTES = 2 << 30  # read, and as many written
WITHIN = {"f32": 1e-5, "tf32": 2e-3, "f16": 2e-3, "bf16": 1e-2}  # error of a right answer, by dtype

Run = Callable[[], Any]
Keep = Callable[[Mapping[str, Any]], None]


def main(names: Sequence[str] = (), json_path: str | None = None, plot_path: str | None = None) -> int:
    chosen = select(names)
    with_gpu = torch is not None and torch.cuda.is_available()

    def keep(found: Mapping[str, Any]) -> None:
        if json_path is not None:
            _write(json_path, found)

    rows, facts = _on_gpu(chosen, keep) if with_gpu else _interpreted(chosen)
    found = {**facts, "cases": [as_dict(r) for r in rows]}
    keep(found)
    if plot_path is not None and with_gpu:
        plot(found, plot_path)
    return 0 if all(r.ok for r in rows) else 1


def select(names: Sequence[str]) -> list[Case]:
    """The cases in whose names one of these occurs; CompileError MT0402 if one occurs in none."""
    known = cases()
    for name in names:
        if not any(name in c.name for c in known):
            raise CompileError("MT0402", f"no case is called `{name[:40]}`", help=", ".join(c.name for c in known))
    return [c for c in known if not names or any(name in c.name for name in names)]


def _write(path: str, value: Mapping[str, Any]) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.write("\n")
    except OSError as error:
        raise CompileError("MT0003", f"cannot write {path[:200]}: {error.strerror}") from None


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- on a GPU --------------------------------------------------------------------------


def _on_gpu(chosen: Sequence[Case], keep: Keep) -> tuple[list[Row], dict[str, Any]]:
    """`keep` takes what is known so far: a run that is cut off has not been for nothing."""
    import triton

    start = time.perf_counter()
    facts: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    facts |= {"triton": triton.__version__, "minitri": mt.__version__, "copy_bytes_per_second": _copy_rate()}
    rows: list[Row] = []
    for k, case in enumerate(chosen, 1):
        _progress(f"[{k}/{len(chosen)}] {case.name}")
        rows.append(run_case(case, "cuda", _do_bench, facts["copy_bytes_per_second"]))
        keep({**facts, "cases": [as_dict(r) for r in rows]})
        torch.compiler.reset()
        torch.cuda.empty_cache()
    print(report(rows, facts))
    if len(chosen) == len(cases()):
        _progress("host time and first results")
        tables = host.tables()
        print("", *tables, sep="\n")
        facts["host"] = [asdict(t) for t in tables]
    facts["seconds"] = time.perf_counter() - start
    return rows, facts


def _do_bench(run: Run) -> float:
    from triton.testing import do_bench

    milliseconds: Any = do_bench(run, warmup=25, rep=100, return_mode="median")
    return float(milliseconds) * 1e-3


def _copy_rate() -> float:
    """Bytes a second, read and written, of a copy that no cache holds."""
    source = torch.empty(COPY_BYTES, dtype=torch.int8, device="cuda").fill_(1)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / _do_bench(lambda: target.copy_(source))


def run_case(case: Case, device: str, clock: Callable[[Run], float], copy_rate: float) -> Row:
    """Every peer on the same inputs, held against the f64 reference."""
    arrays = [tensor(i, device) for i in case.inputs]
    reference = _several(case.eager(*[a.double() if a.is_floating_point() else a for a in arrays]))
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    row = Row(case.name, WITHIN["tf32" if case.tf32 else case.inputs[0].dtype], case.kind, flops=case.flops)
    row.bytes = _moved(case, arrays, sum(r.numel() * _bytes(r, arrays[0]) for r in reference))
    row.floor = 0.0 if case.flops else row.bytes / copy_rate
    for name, make in _ways(case, arrays).items():
        row.peers[name] = _peer(make, reference, clock)
    if device != "cpu":
        row.peak, row.planned = _memory(case, arrays)
        row.work = _work(case, arrays)
    return row


def _work(case: Case, arrays: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Bytes and operations as predicted from the graph, from the kernels, and from the tiles of their programs."""
    predicted = roofline(mt.compile(case.program).lower(*arrays).compilation)
    if predicted is None:
        return {}
    total = predicted.total
    works = {"graph": predicted.graph.needed, "kernels": total.needed, "tiles": total.asked}
    return {name: {"bytes": w.bytes, "flops": w.total} for name, w in works.items() if w is not None}


def _memory(case: Case, arrays: Sequence[Any]) -> tuple[int, int]:
    """Bytes that a call takes at most, and those that its outputs and temporaries take by themselves."""
    program = mt.compile(case.program)
    program(*arrays)
    run, call = program.prepare(*arrays)
    made = [*run.plan.temporaries, *run.plan.outputs]
    sizes = [math.prod(e.evaluate(call.sizes) for e in b.shape) * b.dtype.bytes for b in made]
    planned = host.peak(lambda: [torch.empty(n, dtype=torch.int8, device="cuda") for n in sizes])
    return host.peak(lambda: program(*arrays)), planned


def _several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _bytes(reference: Any, like: Any) -> int:
    """Of an element of a result: a float has the dtype of the first input."""
    return (like if reference.is_floating_point() else reference).element_size()


def tensor(given: Input, device: str) -> Any:
    dtype = getattr(torch, "bool" if given.dtype == "bool" else DTYPES[given.dtype].triton)
    if given.below:
        return torch.randint(0, given.below, given.shape, device=device, dtype=dtype)
    make = torch.rand if given.positive else torch.randn
    return make(given.shape, device=device, dtype=dtype)


def _moved(case: Case, arrays: Sequence[Any], out: int) -> int:
    """Bytes that must be read and written."""
    read = [a.numel() * a.element_size() for a in arrays]
    return out + sum(read) if not case.picks else 2 * out + sum(read[1:])


def _ways(case: Case, arrays: Sequence[Any]) -> dict[str, Callable[[], Run]]:
    """For each peer what makes it ready to run."""
    program = mt.compile(case.program)
    ways: dict[str, Callable[[], Run]] = {"minitri": lambda: program.bind(*arrays)}
    ways["eager"] = lambda: partial(case.eager, *arrays)
    if case.library is not None:
        ways["library"] = partial(partial, case.library, *arrays)
    for name, way in case.peers.items():
        ways[name] = partial(partial, way, *arrays)
    ways["compile"] = lambda: partial(torch.compile(case.eager, dynamic=False), *arrays)
    if case.tuned:
        ways["minitri tuned"] = lambda: _tuned(program, arrays)
        mode = "max-autotune-no-cudagraphs"
        ways["max-autotune"] = lambda: partial(torch.compile(case.eager, dynamic=False, mode=mode), *arrays)
    return ways


def _tuned(program: Program, arrays: Sequence[Any]) -> Run:
    return program.configured(options=tune(program, *arrays)).bind(*arrays)


def _peer(make: Callable[[], Run], reference: tuple[Any, ...], clock: Callable[[Run], float]) -> Peer:
    """A peer that fails is a line of the report, not the end of it."""
    try:
        run = make()
        return Peer(error=_error(run(), reference), seconds=clock(run))
    except Exception as error:
        return Peer(note=(str(error).strip().splitlines() or [type(error).__name__])[0][:100])


def _error(result: Any, reference: tuple[Any, ...]) -> float:
    """The largest of the outputs' errors."""
    return max(map(_distance, _several(result), reference))


def _distance(result: Any, reference: Any) -> float:
    wanted = reference.double()
    difference = torch.linalg.vector_norm(result.double() - wanted)
    return float(difference / torch.linalg.vector_norm(wanted).clamp_min(1e-300))


# ---- without a GPU ---------------------------------------------------------------------


def _interpreted(chosen: Sequence[Case]) -> tuple[list[Row], dict[str, Any]]:
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
    arrays = [_array(i, random) for i in case.inputs]
    row = Row(_small_name(case), WITHIN["tf32" if case.tf32 else case.inputs[0].dtype], case.kind)
    row.peers["numpy"] = Peer(_wall(lambda: program.numpy(*arrays)), 0.0)
    pairs = zip(_several(program(*arrays)), _several(program.numpy(*arrays)))
    row.peers["minitri"] = Peer(_wall(lambda: program(*arrays)), max(_relative(*pair) for pair in pairs))
    return row


def _relative(result: Any, reference: Any) -> float:
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


def _array(given: Input, random: np.random.Generator) -> Any:
    shape, dtype = tuple(map(small, given.shape)), DTYPES[given.dtype].numpy
    if given.below:
        return random.integers(0, small(given.below), shape, dtype=dtype)
    values = random.random(shape) if given.positive else random.standard_normal(shape)
    return values.astype(dtype)
