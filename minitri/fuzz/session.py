"""Checks a series of random programs (a session). A session ends when its time is up, or after a given number of
programs.

The function `fuzz` takes a `Session`, which has the settings. The returned `Summary` has the number of checked programs
and the list of failures. The seeds of a session are consecutive numbers, so the first seed and the number of programs
determine all programs of the session. A seed alone determines a program and its arguments.

Worker processes check the programs (trial.py): each worker gets one seed after another, and a thread waits for each
answer. If a worker dies, the session records a failure of the kind "crash". If a worker does not answer in time, the
session records a failure of the kind "hang". A new worker replaces each worker that fails.
"""

import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any

from minitri.base.json_child_process import Child, environment
from minitri.base.nodes import Record
from minitri.fuzz.trial import Case, written
from minitri.testing import random_program

# programs   the checked programs
# stages     the results of stages that were compared with the reference
# pairs      the comparisons of a program with a changed program, which must compute the same result
# refused    the changed programs with block sizes that Triton cannot compile
COUNTS = ("programs", "stages", "pairs", "refused")
LIMIT = 300.0  # seconds that one program may take
COMMAND = (sys.executable, "-X", "faulthandler", "-m", "minitri.fuzz.trial")

Answer = dict[str, Any]


class Session(Record):
    """The settings of a session of random programs.

    `seconds`: the time limit of the session. After the time limit, the session starts no new random program.
    `seed`: the seed of the first random program.
    `jobs`: the number of worker processes.
    `on`: the device that runs the programs: "cpu" or "gpu".
    `directory`: the folder for files of failures, or None to write no files.
    `programs`: the session ends after this number of programs. None sets no limit.
    """

    seconds: float
    seed: int = 0
    jobs: int = 2
    on: str = "cpu"
    directory: Path | None = None
    programs: int | None = None


@dataclass(slots=True)
class Summary:
    """What a session of random programs has found so far.

    `counts`: a number for each name in `COUNTS`. For example, `counts["programs"]` is the number of checked programs.
    `found`: the failures, each a dictionary with the keys `seed`, `kind`, `said` (the message) and `file`.
    """

    session: Session
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    found: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        programs, stages, pairs, refused = (self.counts[name] for name in COUNTS)
        lines = [
            f"{programs} programs from seed {self.session.seed}, {self.seconds:.0f} s in {self.session.jobs} processes",
            f"{stages} stages compared with the reference, {pairs} pairs of programs with each other",
            f"{refused} pairs left out: Triton cannot compile the small blocks" if refused else "",
            f"{len(self.found)} disagreements" if self.found else "no disagreement",
        ]
        for f in self.found:
            lines.append(f"  seed {f['seed']}, {f['kind']}: {f['said'].splitlines()[0]}")
            lines.append(f"    {f['file']}" if f["file"] else "")
        return "\n".join(filter(None, lines))

    def as_dict(self) -> dict[str, Any]:
        s = self.session
        counts = {name: self.counts[name] for name in COUNTS}
        settings = {"seed": s.seed, "on": s.on, "seconds": round(self.seconds, 1), "jobs": s.jobs}
        return {**counts, **settings, "disagreements": self.found, **machine(s.on)}


def machine(on: str) -> dict[str, str]:
    """Returns the names of the hardware and the versions of the libraries that a session ran with."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "triton"))
    hardware = f"{os.cpu_count()} cores, {platform.machine()}"
    if on == "gpu":
        import torch

        hardware = f"{torch.cuda.get_device_name()}, {hardware}"
    return {"hardware": hardware, "versions": f"Python {platform.python_version()}, {versions}"}


def fuzz(session: Session, on_progress: Callable[[Summary], None] = lambda summary: None) -> Summary:
    """Runs a session of random programs.

    The function `on_progress` is called with the summary after every program, and at least twice a second.
    """
    start, summary = time.monotonic(), Summary(session)
    numbers = islice(count(session.seed), session.programs)
    seeds = takewhile(lambda _: time.monotonic() - start < session.seconds, numbers)
    for answer in answers(session.jobs, session.on, seeds):
        summary.seconds = time.monotonic() - start
        if answer is not None:
            _add(summary, answer)
        on_progress(summary)
    return summary


def _add(summary: Summary, answer: Answer) -> None:
    summary.counts.update({name: answer.get(name, 0) for name in COUNTS}, programs=1)
    if "kind" in answer:
        path = _saved(summary.session.directory, answer)
        summary.found.append({"seed": answer["seed"], "kind": answer["kind"], "said": answer["said"], "file": path})


def _saved(directory: Path | None, answer: Answer) -> str | None:
    """Writes a failing program to a file, and returns the path of the file."""
    if directory is None:
        return None
    seed, kind = answer["seed"], answer["kind"]
    unshrunk = Case(random_program(seed), seed, guilty=kind, said=answer["said"])
    path = directory / unshrunk.file
    directory.mkdir(parents=True, exist_ok=True)
    # If the worker process crashed or hung, there is no shrunk program, and the file contains the original.
    path.write_text(answer.get("text") or written(unshrunk, path.name), encoding="utf-8")
    return str(path)


# ---- worker processes ------------------------------------------------------------------------------


def answers(jobs: int, on: str, seeds: Iterator[int]) -> Iterator[Answer | None]:
    """Yields each answer of a worker process. If no answer arrives for half a second, yields None.

    Closing the generator `answers` ends the worker processes.
    """
    idle, busy = list[Child](), dict[Future[Answer], Child]()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while True:
                while len(busy) < jobs and (seed := next(seeds, None)) is not None:
                    # variables TRITON_* would change what is tested
                    worker = idle.pop() if idle else Child((*COMMAND, on), environment("TRITON_"), keep_stderr=True)
                    busy[pool.submit(_answer, worker, seed)] = worker
                if not busy:
                    return
                done, _ = wait(busy, 0.5, FIRST_COMPLETED)
                finished = [busy.pop(future) for future in done]
                idle += [worker for worker in finished if worker.process.poll() is None]
                yield from [future.result() for future in done] or [None]
        finally:
            for worker in (*idle, *busy.values()):
                worker.end()


def _answer(worker: Child, seed: int) -> Answer:
    """Returns the worker's answer for a seed, or a failure if no answer comes in time."""
    try:
        found = worker.ask(seed, LIMIT)
    except TimeoutError:
        return _failure(worker, seed, "hang", f"no answer within {LIMIT:g} s")
    except (OSError, EOFError, ValueError):  # the worker has died
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(timeout=5)  # its exit status may be a moment late
        return _failure(worker, seed, "crash", f"the process ended with {worker.process.returncode}")
    if found.get("lost"):
        worker.end()
    return found


def _failure(worker: Child, seed: int, kind: str, said: str) -> Answer:
    return {"seed": seed, "kind": kind, "said": "\n".join([said, *worker.end().strip().splitlines()[:20]])}
