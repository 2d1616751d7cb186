"""Measures costs of a call other than GPU time: CPU time, memory, and the time to a first result.

The functions `call_times` and `first_results` return a `Table`, and need a GPU. The times are measured in new processes
that have done nothing else. The host time is the time that the CPU needs for one call, without waiting for the GPU. The
reported host time is the median of 20 batches of 500 calls. Batches of one implementation alternate with batches of the
others, because the speed of a shared machine can change by 50% within seconds.

The time to a first result starts with the text of a program and ends when the result of the program is available.
Before the time to a first result is measured, all modules are imported, and the input is on the GPU. The time to a
first result is measured twice: with empty caches, and in a second process with the caches of the first process.
"""

import os
import statistics
import tempfile
import timeit
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import torch

import minitri as mt
from minitri.base.text_tables import table
from minitri.bench.torch_twin import torch_twin

T = TypeVar("T")
BATCHES, CALLS = 20, 500
FIRST = {"add": "x + x", "softmax": "softmax(x, axis=-1)"}
# Modules that a first call would import.
IMPORTED = (
    "triton.language", "triton.compiler.code_generator", "networkx", "lark", "platformdirs",
    "minitri.api", "minitri.optimize.pass_table", "minitri.triton.rt",
)  # fmt: skip


class Table(NamedTuple):
    """A table of numbers: each row maps the names of columns to numbers. All numbers of the table have the unit
    `unit`.
    """

    title: str
    unit: str
    rows: Mapping[str, Mapping[str, float]]

    def __str__(self) -> str:
        columns = list(dict.fromkeys(c for row in self.rows.values() for c in row))
        rows = ((name, *(f"{row[c]:.4g}" if c in row else "-" for c in columns)) for name, row in self.rows.items())
        return table([(f"{self.title} ({self.unit})", *columns), *rows])


# ---- calls -------------------------------------------------------------------------------


def call_times() -> Table:
    """Returns the host time of a call in microseconds, for each implementation."""
    return Table("host time a call", "us", {"add f32 1024": in_new_process(microseconds)})


def microseconds() -> dict[str, float]:
    """Returns the host time of a call in microseconds, for several implementations of an addition of 1024 numbers."""
    f = mt.compile("x + y", x="f32[N]", y="f32[N]")
    x, y = torch.randn(2, 1024, device="cuda").unbind()
    f(x, y)
    compiled, graph = torch.compile(lambda x, y: x + y, dynamic=False), torch.cuda.CUDAGraph()
    compiled(x, y)
    torch.add(x, y)
    with torch.cuda.graph(graph):
        torch.add(x, y)
    return _medians({
        "minitri": lambda: f(x, y), "minitri bound": f.bind(x, y), "minitri captured": f.capture(x, y),
        "eager": lambda: x + y, "compile": lambda: compiled(x, y), "CUDA graph": graph.replay,
    })  # fmt: skip


def _medians(ways: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Returns the median time of a call of each function, in microseconds."""
    turns = [  # batches of the functions alternate
        {name: timeit.timeit(run, torch.cuda.synchronize, number=CALLS) for name, run in ways.items()}
        for _ in range(1 + BATCHES)
    ]
    return {name: statistics.median(turn[name] for turn in turns[1:]) / CALLS * 1e6 for name in ways}


# ---- first results -----------------------------------------------------------------------


def first_results() -> Table:
    """Returns a table of the time, in milliseconds, from the text of a program to its first result.

    The time to a first result is measured with empty caches, and then in a second process, which uses the caches of the
    first process.
    """
    rows: dict[str, dict[str, float]] = {}
    for name, text in FIRST.items():
        for who in ("minitri", "compile"):
            with empty_caches():
                for when in ("caches empty", "second process"):
                    rows.setdefault(f"{name}, {when}", {})[who] = in_new_process(first, who, text) * 1e3
    return Table("first result", "ms", rows)


def first(who: str, text: str) -> float:
    """Returns the seconds that the implementation `who` needs to compile an expression and compute its first result."""
    for module in IMPORTED:
        import_module(module)
    x = torch.randn(1000, 1000, device="cuda")
    make = mt.compile if who == "minitri" else lambda text: torch.compile(torch_twin(text), dynamic=False)
    return first_result(lambda: make(f"def f(x: f32[M, N]):\n    return {text}\n")(x))[1]


def first_result(call: Callable[[], T]) -> tuple[T, float]:
    """Returns the result of the first call of a program, which compiles the program, and the seconds that the call
    took.

    At the start of the call, the GPU has no queued work. Python's garbage collector is off during the call, because
    after much compilation one garbage collection takes as long as compiling a small program.
    """
    results: list[T] = []
    seconds = timeit.timeit(lambda: (results.append(call()), _wait()), _wait, number=1)  # no garbage collection
    return results[0], seconds


def _wait() -> None:
    """Waits until the GPU, if there is one, has done all queued work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def empty_caches() -> Iterator[str]:
    """Puts the caches of minitri, Triton and inductor into a new folder, which is removed at the end of the `with`
    block.

    Yields the path of the new folder that contains the caches.
    """
    with tempfile.TemporaryDirectory() as folder:
        caches = {"MINITRI_CACHE_DIR": "ours", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
        with patch.dict(os.environ, {name: os.path.join(folder, place) for name, place in caches.items()}):
            yield folder


def in_new_process(function: Callable[..., T], *arguments: Any) -> T:
    """Runs a function in a new Python process, and returns the result of the function."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # a process with a GPU must not fork
        return pool.submit(function, *arguments).result()


# ---- memory ------------------------------------------------------------------------------


def peak(run: Callable[[], Any]) -> int:
    """Returns the most GPU memory that a call has in use at once, in bytes. Memory that was in use before the call does
    not count.
    """
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return int(torch.cuda.max_memory_allocated() - before)
