"""Times programs with two versions of the compiler in turns, on one GPU.

    git worktree add build/before main~20
    python tests/compare_trees.py build/before "product bf16" softmax          cases of the benchmark, by parts of names
    python tests/compare_trees.py build/before "f32 98/"{0..19}                 random programs of seed 98

Each version runs in a process of its own. Both compile a program at the same time. Then the processes measure one after
the other, several times: before, after, after, before, … So both versions meet the same clock rate and temperature. A
row has the median times in microseconds, and the ratio before / after: more than 1 means that the later version is
faster.

The later version, the one of this file, draws the random programs: `minitri bench --random` prints their names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, repeat, starmap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TURNS = 3  # each turn measures both versions twice
WARM_UP, TIMED = 15e-3, 25e-3  # seconds of one measurement


class Version:
    """A process that compiles and times programs with the compiler of one source tree."""

    def __init__(self, tree: Path) -> None:
        paths = os.pathsep.join([str(tree.resolve()), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-W", "ignore", __file__, "--worker"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
        )

    def ask(self, question: Any) -> None:
        assert self.process.stdin
        print(json.dumps(question), file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        assert self.process.stdout
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("the process of a version ended")
        return json.loads(answer)


def worker() -> None:
    """Compiles and times programs.

    {"text": …, "inputs": […]}   compiles a program; the answer is `null` or the text of an error
    null                         times the last program; the answer is its time in seconds
    """
    import torch

    import minitri as mt
    from minitri.bench.alternating_timer import Pace, alternating_times
    from minitri.bench.cases import Input
    from minitri.bench.measure_case import rotated, tensor

    answers, sys.stdout = sys.stdout, sys.stderr
    calls: list[Any] = []
    for line in sys.stdin:
        question = json.loads(line)
        if question is None:
            (answer,) = alternating_times({"": calls}, Pace(WARM_UP, TIMED)).values()
        else:
            calls.clear()
            torch.cuda.empty_cache()
            inputs = [Input(**{**i, "shape": tuple(i["shape"])}) for i in question["inputs"]]
            try:
                program = mt.compile(question["text"])
                calls.extend(starmap(program.bind, rotated([tensor(i, "cuda") for i in inputs])))
                calls[0]()
                answer = None
            except Exception as error:  # the other version may compile this program
                answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=answers, flush=True)


def programs(names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    from minitri.bench.cases import cases
    from minitri.bench.random_programs import draw

    for name in names:
        random = re.fullmatch(r"(\w+) (\d+/\d+)", name)
        chosen = [draw(random[2], random[1]).case()] if random else [case for case in cases() if name in case.name]
        if not chosen:
            raise SystemExit(f"no case has the name {name!r}")
        for case in chosen:
            yield case.name, {"text": case.program, "inputs": [i._asdict() for i in case.inputs]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path, nargs="?", help="the source tree of the earlier version")
    parser.add_argument("programs", nargs="*", help="parts of names of benchmark cases, or random programs: f32 98/47")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker()
    if arguments.tree is None:
        parser.error("a source tree is missing")
    versions = [Version(arguments.tree), Version(ROOT)]
    print(f"{'before us':>10}  {'after us':>9}  before/after  program")
    for name, program in programs(arguments.programs):
        for version in versions:  # both compile the program at the same time
            version.ask(program)
        answers = zip(("before", "after"), [version.answer() for version in versions])
        errors = [f"{name}, {when}: {error}" for when, error in answers if error is not None]
        if errors:
            print(*errors, sep="\n", flush=True)
            continue
        found: dict[Version, list[float]] = {version: [] for version in versions}
        for version in chain.from_iterable(repeat([*versions, *reversed(versions)], TURNS)):
            version.ask(None)
            found[version].append(version.answer())
        before, after = (statistics.median(found[version]) * 1e6 for version in versions)
        print(f"{before:10.2f}  {after:9.2f}  {before / after:12.3f}  {name}", flush=True)


if __name__ == "__main__":
    main()
