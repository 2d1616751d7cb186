"""What each chip can do, and how many programs fit on one of its multiprocessors.

    chip_of(Target.parse("a100")).multiprocessors        108
    chip_of(Target.parse("cuda:80")).name                "an NVIDIA GPU": an A100, or an A30 of 56 multiprocessors
    blocks_at_once(multiprocessor(Target.parse("cuda:90")), warps=8, registers=255, shared=0)
        {"registers": 1, "warps": 8, "blocks": 32, "shared memory": 228}        so one block

In: a target, and chips.toml, which has the figures. Out: `chip_of(target)`, the `Chip` that cost models plan for, and
`peak(target)`, the rates of a roofline. Cost models take their figures from here, and from nowhere else.
A target that names its GPU gets the figures of that GPU. An architecture stands for many GPUs, so `cuda:80` gets the
generic description of its vendor. `cuda:90` alone is described by the H200: its schedules were measured on one.

`sources` says for each figure where it comes from. Where no source is known the figure is None, and `sources` says why.
Rates are those of the data sheets, without sparsity. No program reaches them: a copy on an H200 gets about 90% of its
bandwidth.

Limits that all chips of an architecture share are in architectures.toml; None where no source is known here. NVIDIA's
limits come from CCCL (cuda/__device/arch_traits.h) and from "Technical Specifications per Compute Capability" in the
CUDA programming guide. A warp takes registers in units of 256, a block shared memory in units of 128 bytes. AMD's come
from "AMD GPU specifications" in the ROCm documentation and, for waves, from LLVM's AMDGPU backend.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minitri.hardware.targets import ARCHITECTURES, Target

# ---- what the programs on one multiprocessor share -------------------------------------------


KIB = 1024


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """`reserved`: shared memory that each block loses to the driver; `registers` of 32 bits."""

    warps: int
    blocks: int
    shared: int
    reserved: int
    registers: int = 64 * KIB


@dataclass(frozen=True, slots=True)
class ComputeUnit:
    """AMD's multiprocessor. `waves`: the most that one SIMD holds; `shared`: bytes of local memory (LDS)."""

    waves: int
    shared: int
    simds: int = 4


# Local memory that one workgroup may have on every architecture since GCN (AMD's ISA manuals, "Local Data Share").
_LEAST_LDS = 64 * KIB


def compute_unit(target: Target) -> ComputeUnit | None:
    row = ARCHITECTURES["hip"].get(target.arch)
    return ComputeUnit(row["waves"], row["shared"] * KIB) if row else None


def multiprocessor(target: Target) -> Multiprocessor | None:
    row = ARCHITECTURES["cuda"].get(target.arch)
    return Multiprocessor(row["warps"], row["blocks"], row["shared"] * KIB, row["reserved"] * KIB) if row else None


def shared_bytes(target: Target) -> int | None:
    """Bytes of shared memory that one program may have; None where that is not known."""
    if target.kind == "hip":
        unit = compute_unit(target)
        return _LEAST_LDS if unit is None else unit.shared
    limits = multiprocessor(target)
    return None if limits is None else limits.shared - limits.reserved


def blocks_at_once(limits: Multiprocessor, warps: int, registers: int, shared: int) -> dict[str, int]:
    """How many blocks one multiprocessor holds, by what allows no more: the least of these counts.

    A block has `warps` warps, `registers` registers a thread and `shared` bytes of shared memory.
    """
    per_warp = _up(max(registers, 1) * 32, 256)
    per_block = _up(shared + limits.reserved, 128)
    counts = {
        "registers": limits.registers // (per_warp * warps),
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    return {**counts, "shared memory": limits.shared // per_block} if per_block else counts


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


# ---- what each chip can do -------------------------------------------------------------------


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
