"""Compiles and checks programs at `-O0` in a process that cannot import optimisations.

    python tests/plain_path.py examples
    python tests/plain_path.py library
    python tests/plain_path.py random 0 30        random programs by their seeds, from 0 to 29

Each program is compiled to Triton source for every target of `TARGETS`. Then `check` runs each stage and, in Triton's
interpreter, the kernels. The first failure ends the process with an exception.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ROOMS = "minitri.optimize"
TARGETS = ("cuda:90", "hip:gfx942")


class NoRooms(MetaPathFinder):
    """An import hook that refuses to import optimisations."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith(ROOMS):
            raise ImportError(f"the plain path imports the optimisation {name}")


def programs(kind: str, seeds: Sequence[int], without: Sequence[str] = ("all",)) -> Iterator[tuple[str, Any, Any]]:
    """(name, the program without some optimisations, the arguments of a call)."""
    import minitri as mt
    from minitri.cli.inputs import make_inputs

    if kind == "random":
        from minitri.testing import random_program

        for seed in range(*seeds):
            example = random_program(seed)
            yield f"seed {seed}", example.compile(without=without), example.arguments(seed)
        return
    texts: dict[str, tuple[Any, dict[str, str]]] = {}
    if kind == "library":
        from library_calls import LIBRARY

        texts |= LIBRARY
    else:
        texts |= {p.stem: (p, {}) for p in sorted((ROOT / "examples").glob("*.mt"))}
    for name, (text, types) in texts.items():
        f = mt.compile(text, optimize="all" not in without, **types).configured(without=without)
        yield name, f, make_inputs(f.function, {}, {}, 0).arrays


def tried(name: str, program: Any, arguments: Any) -> None:
    """AssertionError unless the program compiles for each target and is right at every stage."""
    for target in TARGETS:
        assert "@triton.jit" in program.lower(target=target)["triton"], (name, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns of 1 / 0
        report = program.check(*arguments)
    assert report.ok, (name, report.first)


def main() -> None:
    parser = argparse.ArgumentParser(description="Programs at -O0, without the modules of optimisations.")
    parser.add_argument("kind", choices=("examples", "library", "random"))
    parser.add_argument("seeds", nargs="*", type=int, help="the first seed, and the one after the last")
    options = parser.parse_args()
    sys.meta_path.insert(0, NoRooms())
    count = 0
    for name, program, arguments in programs(options.kind, options.seeds):
        tried(name, program, arguments)
        count += 1
    print(f"{count} programs")


if __name__ == "__main__":
    main()
