"""Gives the figures of each GPU chip, and computes how many thread blocks fit on one multiprocessor of a chip.

    chip_of(Target.parse("a100")).multiprocessors        108
    chip_of(Target.parse("cuda:80")).name                "an NVIDIA GPU": an A100, or an A30 of 56 multiprocessors
    blocks_at_once(multiprocessor(Target.parse("cuda:90")), warps=8, registers=255, shared=0)
        {"registers": 1, "warps": 8, "blocks": 32, "shared memory": 228}        so one block

The function `chip_of` takes a target. It returns a `Chip`, which has the figures that cost models assume. The function
`peak` takes a target. It returns the peak rates for a roofline. All cost models take their figures from this module.
For a target that names one GPU, such as `a100`, the module gives the figures of this GPU. A target that names an
architecture, such as `cuda:80`, stands for many GPUs, so it gets the generic figures of the vendor. The target
`cuda:90` names an architecture too, but gets the figures of the H200, because the schedules for `cuda:90` were measured
on an H200.

The file chips.toml says where each figure (number) comes from. If no source for a figure is known, the figure is None,
and chips.toml says why. The rates of arithmetic and memory are those of the data sheets, without sparsity. No program
reaches the rates of a data sheet: a copy on an H200 reaches about 90% of the bandwidth.

Limits that all chips of an architecture share are in architectures.toml. NVIDIA's limits come from CCCL
(cuda/__device/arch_traits.h) and from "Technical Specifications per Compute Capability" in the CUDA programming guide.
A warp gets registers in units of 256, and a block gets shared memory in units of 128 bytes. AMD's limit on the warps
(waves) of one multiprocessor (compute unit) comes from LLVM's AMDGPU backend. AMD's other limits come from "AMD GPU
specifications" in the ROCm documentation.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from minitri.base.nodes import Record
from minitri.hardware.targets import ARCHITECTURES, CHIPS as ROWS, Target

SECTOR = 32  # bytes of memory that a GPU loads or stores at once

# ---- what the programs on one multiprocessor share -------------------------------------------


KIB = 1024


class Multiprocessor(NamedTuple):
    """Limits of one multiprocessor. AMD calls a multiprocessor a compute unit, and a warp a wave.

    `warps`, `blocks`: the most warps and the most thread blocks that one multiprocessor runs at once. `blocks` is 0 for
        AMD, because no limit is known.
    `shared`: the bytes of shared memory of one multiprocessor (AMD: local memory, LDS).
    `reserved`: the bytes of shared memory that the driver takes from each thread block.
    `registers`: the number of 32-bit registers of one multiprocessor (NVIDIA only).
    """

    warps: int
    blocks: int
    shared: int
    reserved: int
    registers: int = 64 * KIB


SIMDS = 4  # the SIMD units of one compute unit of an AMD GPU


def multiprocessor(target: Target) -> Multiprocessor | None:
    """Returns the limits of one multiprocessor of the target's architecture, or None if architectures.toml does not
    have the architecture.
    """
    row = ARCHITECTURES.get(target.kind, {}).get(target.arch)
    return Multiprocessor(row["warps"], row["blocks"], row["shared"] * KIB, row["reserved"] * KIB) if row else None


def _limits(target: Target) -> dict[str, int]:
    """Returns limits of a GPU architecture: warps per multiprocessor and shared memory per thread block."""
    limits = multiprocessor(target)
    return {"warps": limits.warps, "shared": limits.shared - limits.reserved} if limits else {}  # {} if unknown


def shared_bytes(target: Target) -> int | None:
    """Returns how many bytes of shared memory one thread block can use at most, or None if the limit is not known."""
    # The local memory (LDS) of a workgroup on every architecture since GCN (AMD's ISA manuals, "Local Data Share").
    return _limits(target).get("shared", 64 * KIB if target.kind == "hip" else None)


def blocks_at_once(limits: Multiprocessor, warps: int, registers: int, shared: int) -> dict[str, int]:
    """For each limited resource, such as registers, returns how many thread blocks one multiprocessor can run at once.
    The smallest number in the result is the number of blocks that run at once.

    A thread block has `warps` warps, `registers` registers for each thread and `shared` bytes of shared memory.
    """
    per_warp = _up(max(registers, 1) * 32, 256)
    per_block = _up(shared + limits.reserved, 128)
    registers = limits.registers // (per_warp * warps)
    counts = {"registers": registers, "warps": limits.warps // warps, "blocks": limits.blocks}
    return {**counts, "shared memory": limits.shared // per_block} if per_block else counts


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


# ---- what each chip can do -------------------------------------------------------------------


UNITS = {"count": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}


class Peak(NamedTuple):
    """Peak rates of a chip, per second.

    `bandwidth`: the bytes per second that can be moved between the chip and its memory.
    `rates`: the operations per second of each unit. The units "f16" and "tf32" multiply matrices. One multiplication
        and one addition count as two operations. The units "f32" and "f64" compute elementwise arithmetic, such as
        additions. The unit "special" computes functions such as exp.
    """

    name: str
    bandwidth: float
    rates: Mapping[str, float]


class Chip(Record):
    """Figures about one chip, for cost models.

    `multiprocessors`: the number of multiprocessors of the chip (AMD: compute units).
    `warps`: the most warps that one multiprocessor runs at once (AMD: waves).
    `shared`: the bytes of shared memory that one thread block can use.
    `l1`, `l2`: the bytes of the L1 cache of one multiprocessor, and of the L2 cache of the whole chip. `l2` is None if
        it is unknown.
    """

    name: str
    multiprocessors: int
    warps: int
    shared: int
    l1: int
    l2: int | None
    peak: Peak | None


def _chip(row: Mapping[str, Any], limits: Mapping[str, int]) -> Chip:
    """Makes a `Chip` from a row of chips.toml and the limits of its architecture."""
    name, rates = row["name"], row["peak"].get("rates")
    figures = {figure: _count(entry) for figure, entry in row.items() if isinstance(entry, dict) and figure != "peak"}
    counts: dict[str, Any] = {**figures, **limits}
    return Chip(name, peak=_peak(name, **rates) if rates else None, **counts)


def _count(entry: Mapping[str, Any]) -> int | None:
    """Converts an entry such as `{ KiB = 192, source = "…" }` to bytes."""
    # None for an entry without a number: the figure is not known
    return next((n * UNITS[unit] for unit, n in entry.items() if unit in UNITS), None)


def _peak(name: str, bandwidth: float, special: int, **units: float) -> Peak:
    """Converts the TB/s and TFLOP/s of a data sheet to bytes and operations per second."""
    # `special` says how many f32 operations take as long as one special function, such as exp
    rates = {unit: rate * 1e12 for unit, rate in (units | {"special": units["f32"] / special}).items()}
    return Peak(name, bandwidth * 1e12, rates)


CHIPS = {name: _chip(row, _limits(Target.parse(name))) for name, row in ROWS["chips"].items()}
GENERIC = {kind: _chip(row, {}) for kind, row in ROWS["generic"].items()}
H200 = CHIPS["h200"]
FASTER = 4  # TF32 must be this many times as fast as f32: it takes three products, and also the parts of the factors
# The usual GPU of an architecture, which the title of a roofline names.
_USUAL = {"cuda:80": "a100", "cuda:90": "h200", "cuda:100": "b200", "hip:gfx942": "mi300x"}


def chip_of(target: Target) -> Chip:
    """Returns the chip that cost models assume for a target. For example, the target `cuda:80` stands for several GPUs,
    so its chip is a generic NVIDIA GPU with the limits of the architecture.
    """
    if target.gpu:
        return CHIPS[target.gpu]
    if (target.kind, target.arch) == ("cuda", "90"):
        return H200
    return replace(GENERIC[target.kind], **_limits(target))


def has_fast_tf32(target: Target) -> bool:
    """Checks whether three matrix products of TF32 numbers take less time on the target's chip than one product of f32
    numbers.
    """
    known = peak(target) if target.kind == "cuda" else None
    return known is not None and known.rates.get("tf32", 0) >= FASTER * known.rates["f32"]


def peak(target: Target) -> Peak | None:
    """Returns the peak rates of the GPU that a target names. If the target names only an architecture, returns the
    rates of the usual GPU of this architecture. If no data sheet of the GPU is known, returns None.
    """
    chip = CHIPS.get(target.gpu or _USUAL.get(str(target), ""))
    return None if chip is None else chip.peak
