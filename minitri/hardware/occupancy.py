"""What the programs that run on one multiprocessor share, and so how many of them fit.

    blocks_at_once(multiprocessor(Target.parse("cuda:90")), warps=8, registers=255, shared=0)
        {"registers": 1, "warps": 8, "blocks": 32, "shared memory": 228}        so one block

In: a target, and architectures.toml. Out: the limits of its architecture, None where no source is known here. These hold for every chip of an
architecture; figures that differ between chips are in minitri/hardware/chips.toml.

NVIDIA's limits come from CCCL (cuda/__device/arch_traits.h) and from "Technical Specifications per Compute Capability"
in the CUDA programming guide. A warp takes registers in units of 256, a block shared memory in units of 128 bytes.
AMD's come from "AMD GPU specifications" in the ROCm documentation and, for waves, from LLVM's AMDGPU backend.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitri.hardware.targets import ARCHITECTURES, Target

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
