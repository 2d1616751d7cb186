"""What each chip can do. The cost models take their figures from here, and from nowhere else.

    chip_of(Target.parse("a100")).multiprocessors        108
    chip_of(Target.parse("cuda:80")).name                "an NVIDIA GPU": an A100, or an A30 of 56 multiprocessors

In: a target, and chips.toml, which has the figures. Out: `chip_of(target)`, the `Chip` that cost models plan for, and `peak(target)`, the rates of a roofline.
A target that names its GPU gets the figures of that GPU. An architecture stands for many GPUs, so `cuda:80` gets the
generic description of its vendor. `cuda:90` alone is described by the H200: its schedules were measured on one.

`sources` says for each figure where it comes from. Where no source is known the figure is None, and `sources` says why.
Rates are those of the data sheets, without sparsity. No program reaches them: a copy on an H200 gets about 90% of its
bandwidth. Limits that all chips of an architecture share are in architectures.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minitri.hardware.occupancy import shared_bytes
from minitri.hardware.targets import Target

UNITS = {"count": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}
SHARED_SOURCE = "minitri/hardware/architectures.toml, the limit of the architecture"


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak rates of a chip, a second.

    bandwidth   bytes between the chip and its memory
    rates       operations: "f16" and "tf32" are products of matrices (an addition and a multiplication are two), "f32"
                and "f64" arithmetic, "special" functions such as exp
    """

    name: str
    bandwidth: float
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Chip:
    """What a cost model may know of a chip.

    multiprocessors   how many there are (AMD: compute units)
    shared            bytes of shared memory that one program may have
    l1, l2            bytes of the cache of one multiprocessor, and of the one that all share
    sources           by the name of a figure: where it comes from, or why it is None
    """

    name: str
    multiprocessors: int
    shared: int
    l1: int
    l2: int | None
    peak: Peak | None
    sources: Mapping[str, str]


def _chip(row: dict[str, Any], shared: int | None = None) -> Chip:
    """A chip as chips.toml has it; `shared`, where a row leaves it to the architecture."""
    name = row.pop("name")
    figures = {"shared": {"bytes": shared, "source": SHARED_SOURCE}} | row
    sources = {figure: entry.pop("source") for figure, entry in figures.items()}
    peak = figures.pop("peak").get("rates")
    counts: dict[str, Any] = {figure: _count(entry) for figure, entry in figures.items()}
    return Chip(name, peak=None if peak is None else _peak(name, **peak), sources=sources, **counts)


def _count(entry: Mapping[str, int]) -> int | None:
    """`{ KiB = 192 }` in bytes; None for a figure that is not known."""
    return next((n * UNITS[unit] for unit, n in entry.items()), None)


def _peak(name: str, bandwidth: float, special: int, **units: float) -> Peak:
    """TB/s and TFLOP/s; one special function takes the time of `special` operations of f32."""
    rates = {unit: rate * 1e12 for unit, rate in (units | {"special": units["f32"] / special}).items()}
    return Peak(name, bandwidth * 1e12, rates)


_TABLES = tomllib.loads(Path(__file__).with_name("chips.toml").read_text(encoding="utf-8"))
CHIPS = {name: _chip(row, shared_bytes(Target.parse(name))) for name, row in _TABLES["chips"].items()}
GENERIC = {kind: _chip(row) for kind, row in _TABLES["generic"].items()}
H200 = CHIPS["h200"]
# The GPU that an architecture is usually run on. A roofline names it, so a reader sees whose rates they are.
_USUAL = {"cuda:80": "a100", "cuda:90": "h200", "cuda:100": "b200", "hip:gfx942": "mi300x"}


def chip_of(target: Target) -> Chip:
    """The chip that cost models plan for. One that is not known gets the generic description of its vendor."""
    if target.gpu:
        return CHIPS[target.gpu]
    if (target.kind, target.arch) == ("cuda", "90"):
        return H200
    generic = GENERIC[target.kind]
    shared = shared_bytes(target)
    return generic if shared is None else replace(generic, shared=shared)


def peak(target: Target) -> Peak | None:
    """The rates of the GPU that a target names, or is usually run on; None where no data sheet is known here."""
    chip = CHIPS.get(target.gpu or _USUAL.get(str(target), ""))
    return None if chip is None else chip.peak
