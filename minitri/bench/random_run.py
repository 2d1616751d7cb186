"""`minitri bench --random N`: measures random programs, and finds the smallest slow part of each slow program.

The function `main` takes a `Session`, which has the number of programs, a seed and a dtype. `main` prints the
distribution of the speedups over torch (result_tables.py). If the `Session` names a JSON file, `main` writes all
measurements so far to this file after each program. The exit status is 0 if every result was right.

torch.compile takes several seconds to compile a program. Because torch.compile is slow, worker processes (one for each
processor core) compile a batch of programs before the batch is measured. After the compilation, the main process
measures the programs one after another, while the workers do nothing. Inductor, the compiler behind torch.compile, has
a cache, from which the main process loads the compiled code. In the worker processes, inductor chooses some schedules
by measuring their times. The workers disturbed each other's measurements, so the main process removes the workers'
schedules from inductor's cache. All caches are in a new folder, so the time to minitri's first result is measured with
empty caches. The time to the first result of torch.compile is measured in a worker process, which shares the processor
with other workers.

A result counts as right in two cases: its error is small, or its error is at most twice the error of eager torch. If
the relative error of eager torch is 1 or more, eager torch has no correct digit, and the report counts the program as
not judged. For example, exp(-x * x) is almost 0 if x is a large product. The result then depends on how the product is
rounded.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import monotonic as now
from typing import Any, NamedTuple

import torch

import minitri as mt
from minitri.bench import call_costs
from minitri.bench.alternating_timer import Calls, Clock, Pace, Times, alternating_times
from minitri.bench.cases import Input
from minitri.bench.measure_case import compare, forget, gpu_facts, tensor
from minitri.bench.random_programs import RandomProgram, draw
from minitri.bench.result_tables import TORCH, Peer, Row, as_dict, distribution, ratio, write_json
from minitri.bench.torch_twin import torch_twin
from minitri.cli.terminal import progress
from minitri.runtime.launch import require_gpu
from minitri.runtime.schedule_search import first_line

BATCHES = 8  # programs that a worker compiles before they are measured
WARM_UP = 50e-3  # seconds at most; cases of the benchmark have a longer warm-up
Measure = Callable[[Sequence[RandomProgram]], Iterator[Row]]


class Session(NamedTuple):
    """The settings of a session, which measures random programs.

    `shrink`: a limit. If a program's ratio of times (result_tables.py) is below `shrink`, a search looks for its
        smallest slow part. If `shrink` is 0, there is no search.
    `budget`: the time limit in seconds. No program is started after the time limit.
    """

    programs: int
    seed: int = 0
    dtype: str = "bf16"
    shrink: float = 0.0
    budget: float | None = None
    json: str | None = None


def main(session: Session) -> int:
    """Runs a session on this machine's GPU and prints the report.

    Returns the exit status, which is 0 if every result was right.
    """
    require_gpu()
    jobs = os.cpu_count() or 1
    mt.compile("x + x")(torch.ones(8, device="cuda"))  # the time of imports must not count in a first result
    first = ("def f(x: f32[8]):\n    return x + x\n", (Input("f32", (8,)),), "cuda")
    # inductor warns about random programs
    with call_costs.empty_caches() as folder, warnings.catch_warnings(action="ignore"):
        os.environ |= {"PYTHONWARNINGS": "ignore", "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # the workers are enough
        # a process with a GPU must not fork
        with ProcessPoolExecutor(jobs, get_context("spawn"), compile_time, first) as pool:
            measure = partial(measured, device="cuda", clock=short_times, pool=pool, caches=Path(folder))
            rows, _ = run(session, measure, gpu_facts(), BATCHES * jobs)
    return 0 if all(r.ok for r in rows) else 1


def run(session: Session, measure: Measure, facts: Mapping[str, Any], batch: int) -> tuple[list[Row], list[Row]]:
    """Until the time is up, makes random programs, measures them, and reduces slow programs to small slow parts.

    Returns two lists. The first list has a `Row` for each measured program. The second list has a `Row` for the
    smallest slow part of each slow program.
    """
    start, rows, shrunk = now(), list[Row](), list[Row]()
    facts = {**facts, "random": session.programs, "seed": session.seed, "dtype": session.dtype}
    programs = [draw(f"{session.seed}/{k}", session.dtype) for k in range(session.programs)]

    def late() -> bool:
        """Writes the results so far to the file, and returns whether the session has exceeded its time limit."""
        seconds = now() - start
        found = {"cases": list(map(as_dict, rows)), "shrunk": list(map(as_dict, shrunk))}
        write_json(session.json, {**facts, "seconds": seconds, **found})
        return session.budget is not None and seconds > session.budget

    with progress("bench", session.programs) as tell:
        for first in range(0, len(programs), batch):
            for row in () if late() else measure(programs[first : first + batch]):
                rows.append(row)
                tell(len(rows), row.name)
                if late():
                    break
        slow = [(row, p) for row, p in zip(rows, programs) if ratio(row) < session.shrink]
        for row, program in sorted(slow, key=lambda pair: ratio(pair[0])):
            if not late():
                tell(len(rows), f"shrinks {row.name}")
                shrunk.append(slowest_part(program, row, session.shrink, measure))
    late()
    print(distribution(rows, shrunk, facts), flush=True)
    return rows, shrunk


def slowest_part(program: RandomProgram, whole: Row, bound: float, measure: Measure) -> Row:
    """Finds the smallest slow part of a slow program, and returns the `Row` with the times of this part.

    The loss of a program is minitri's time minus torch's time. The loss of the returned part is at least half of the
    loss of the whole program.

    `whole`: the measurements of the whole program. The function returns `whole` if no slow part has at least half of
        the loss of the whole program.
    `bound`: a part is slow if torch's time divided by minitri's time is smaller than `bound`.
    """
    for length in range(1, len(program.statements)):
        slow = [r for r in measure(list(program.parts(length))) if r.ok and ratio(r) < bound]
        if found := [r for r in slow if _loss(r) >= _loss(whole) / 2]:
            return max(found, key=_loss)
    return whole


def _loss(row: Row) -> float:
    """Returns the seconds by which minitri is slower than torch."""
    return (row.best("minitri") or 0.0) - (row.best(*TORCH) or 0.0)


# ---- measuring ---------------------------------------------------------------------------------


def short_times(peers: Mapping[str, Calls], pace: Pace) -> Times:
    """Times implementations as `alternating_times` does, but with a warm-up of at most `WARM_UP` seconds."""
    return alternating_times(peers, Pace(min(pace.warm_up, WARM_UP)))


def measured(
    programs: Sequence[RandomProgram], device: str, clock: Clock, pool: Executor, caches: Path
) -> Iterator[Row]:
    """Yields a measured `Row` for each program.

    torch.compile compiles all programs before the first program is measured.
    """
    firsts: dict[str, float] = {}
    with suppress(BrokenExecutor):  # after the death of a worker, the pool compiles nothing more
        waiting = {p.text: pool.submit(compile_time, p.text, tuple(p.arrays.values()), device) for p in programs}
        firsts |= {text: w.result() for text, w in waiting.items() if not w.exception()}
    for chosen in caches.rglob("*.best_config"):  # schedules that inductor chose while others used the GPU
        chosen.unlink()
    for program in programs:
        row = _row(program, device, clock)
        if "compile" in row.peers:
            row.peers["compile"].first = firsts.get(program.text)
        yield row


def compile_time(text: str, inputs: Sequence[Input], device: str) -> float:
    """Returns the seconds that the first call of a program takes with torch.compile. This function runs in a worker
    process.
    """
    torch.backends.cuda.matmul.allow_tf32 = False  # as in `compare`, because the cache key contains this setting
    arrays = [tensor(i, device) for i in inputs]
    seconds = call_costs.first_result(partial(torch.compile(torch_twin(text), dynamic=False), *arrays))[1]
    arrays.clear()
    forget()
    return seconds


def _row(program: RandomProgram, device: str, clock: Clock) -> Row:
    case = program.case()
    try:
        row = compare(case, device, clock, None)
        eager = row.peers["eager"].error or 0.0
        row.within, row.judged = max(row.within, 2 * eager), eager < 1
    except Exception as error:  # the reference may be too large for the memory
        row = Row(case.name, 0.0, case.kind, peers={"minitri": Peer(note=first_line(error))})
    row.program = program.text
    forget()
    return row
