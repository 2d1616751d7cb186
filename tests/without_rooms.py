"""Checks programs without one optimisation, and without all optimisations, at every stage.

    python tests/without_rooms.py --random 100 --jobs 2 [NAME ...]

For each room, `check` runs every example, and random programs with consecutive seeds. It compares each stage with the
reference. A program is skipped if the room does not change its Triton source on a GPU or in the interpreter.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import plain_path

from minitri.optimize.pass_table import OPTIONAL
from minitri.program import Program

ALL = "all"
TARGETS = ("cuda:90", "interpreter")


def tried(room: str, kind: str, seed: int) -> tuple[int, int, list[str]]:
    """(number of programs, number of programs that changed without the room, errors of those)."""
    programs, changed, wrong = 0, 0, []
    for name, program, arguments in plain_path.programs(kind, (seed, seed + 1), without=()):
        programs += 1
        bare = program.configured(without=(room,))
        if texts(bare, arguments) == texts(program, arguments):
            continue
        changed += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns of 1 / 0
            report = bare.check(*arguments)
        if not report.ok:
            wrong.append(f"{room} {name}: {report.first}")
    return programs, changed, wrong


def texts(program: Program, arguments: Iterable[Any]) -> list[str]:
    return [program.lower(*arguments, target=target)["triton"] for target in TARGETS]


def main() -> None:
    parser = argparse.ArgumentParser(description="Programs with one optimisation taken out.")
    parser.add_argument("rooms", nargs="*", default=[*OPTIONAL, ALL])
    parser.add_argument("--random", type=int, default=100, help="random programs for each room")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    failures: list[str] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for room in options.rooms:
            start = time.monotonic()
            found = [pool.submit(tried, room, "examples", 0)]
            found += map(partial(pool.submit, tried, room, "random"), range(options.random))
            programs, changed, wrong = zip(*(f.result() for f in found))
            failures += sum(wrong, [])
            print(
                f"without {room}: {sum(programs)} programs, {sum(changed)} of them changed, "
                f"{len(sum(wrong, []))} wrong; {time.monotonic() - start:.0f} s", flush=True,
            )  # fmt: skip
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
