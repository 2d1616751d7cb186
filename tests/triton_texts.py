"""Writes digests of the Triton text of many programs, and compares two such lists.

    python tests/triton_texts.py write build/before          before a change that should not change the text
    python tests/triton_texts.py compare build/before        after it: prints a diff for each text that changed
    python tests/triton_texts.py compare build/before --without strength-reduction

The programs are every case of the benchmarks, every example, and the random programs of
tests/data/random_programs.json. No array is allocated: the compiler only needs shapes and strides.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.base.types import DTYPES
from minitri.program import Lowered

ROOT = Path(__file__).parents[1]
RANDOM = Path(__file__).parent / "data" / "random_programs.json"
TARGETS = ("cuda:90", "cuda:80", "hip:gfx942", "interpreter")
EXAMPLE_SIZES = ({}, {"M": 512, "N": 512, "K": 300, "D": 64, "V": 1000, "C": 1000, "T": 512, "S": 512})


@dataclass(frozen=True)
class Listed:
    """A program, and what it is lowered for: arrays (dtype and shape each), or sizes by name."""

    name: str
    text: str
    arrays: tuple[tuple[str, tuple[int, ...]], ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()


def programs() -> Iterator[Listed]:
    from minitri.bench.cases import cases

    for case in cases():
        inputs = tuple((i.dtype, i.shape) for i in case.inputs)
        yield Listed(f"bench {case.name}", case.program, inputs)
    for path in sorted((ROOT / "examples").glob("*.mt")):
        for sizes in EXAMPLE_SIZES:
            used = tuple((n, s) for n, s in sizes.items() if f"{n}," in path.read_text() or f"{n}]" in path.read_text())
            yield Listed(f"example {path.stem} {dict(used)}", path.read_text(), (), used)
    for k, row in enumerate(json.loads(RANDOM.read_text())):
        yield Listed(f"random {k}", row["text"], (), tuple(row["sizes"].items()))


def text_of(listed: Listed, target: str, without: Sequence[str] = ()) -> str:
    """The Triton source with its launch plan, or the error if the program is refused."""
    try:
        return lowered(listed, target, without)["triton"]
    except CompileError as error:
        return f"refused: {error.code} {error.message}\n"


def lowered(listed: Listed, target: str, without: Sequence[str] = ()) -> Lowered:
    arrays = [_unread(*a) for a in listed.arrays]
    return mt.compile(listed.text).lower(*arrays, target=target, without=without, **dict(listed.sizes))


def _unread(dtype: str, shape: tuple[int, ...]) -> Any:
    """An array that looks contiguous but has memory for one element only. Nothing may read it."""
    kind = DTYPES[dtype].numpy
    strides = [int(np.prod(shape[k + 1 :], dtype=np.int64)) * np.dtype(kind).itemsize for k in range(len(shape))]
    return np.lib.stride_tricks.as_strided(np.zeros(1, kind), shape, strides)


def _all_targets(listed: Listed, without: Sequence[str]) -> dict[str, str]:
    return {f"{listed.name} | {target}": text_of(listed, target, without) for target in TARGETS}


def texts(without: Sequence[str] = ()) -> dict[str, str]:
    found: dict[str, str] = {}
    with ProcessPoolExecutor(2) as pool:
        for some in pool.map(partial(_all_targets, without=without), programs(), chunksize=8):
            found |= some
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--show", type=int, default=5, help="how many differences to print whole")
    parser.add_argument("--without", type=lambda names: names.split(","), default=(), help="rooms to leave out")
    options = parser.parse_args()
    now, path = texts(options.without), options.file.with_suffix(".json.gz")
    if options.command == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(json.dumps(now).encode()))
        print(f"{len(now)} texts of {len(set(k.split(' | ')[0] for k in now))} programs")
        return
    before = json.loads(gzip.decompress(path.read_bytes()))
    differ = [k for k in before if now.get(k) != before[k]]
    for k in differ[: options.show]:
        print("".join(difflib.unified_diff(before[k].splitlines(True), now.get(k, "").splitlines(True), k, k, n=1)))
    print(f"{len(before)} texts, {len(differ)} differ" + "".join(f"\n  {k}" for k in differ))


if __name__ == "__main__":
    main()
