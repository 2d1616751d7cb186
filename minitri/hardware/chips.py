"""What the chips of the targets can do: limits of a multiprocessor, and peak rates.

In: a target. Out: `multiprocessor(target)`, what all the programs that run on one at a time have
together; `chip(target)`, the rates of the part that a target is usually run on. Both are None where
there is no source here.

Limits are those of NVIDIA's own table of architectures (CCCL, cuda/__device/arch_traits.h) and of
"Technical Specifications per Compute Capability" in the CUDA programming guide: a warp's registers are
taken in units of 256, shared memory in units of 128 bytes. Rates are those of the data sheets, without
sparsity: nothing reaches them, a copy on an H200 about 90% of its bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minitri.hardware.targets import Target

KIB = 1024


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """`reserved`: shared memory that each block loses to the driver; `registers` of 32 bits."""

    warps: int
    blocks: int
    shared: int
    reserved: int = KIB
    registers: int = 64 * KIB


_LIMITS = {
    "75": Multiprocessor(32, 16, 64 * KIB, 0),
    "80": Multiprocessor(64, 32, 164 * KIB),
    "86": Multiprocessor(48, 16, 100 * KIB),
    "87": Multiprocessor(48, 16, 164 * KIB),
    "89": Multiprocessor(48, 24, 100 * KIB),
    "90": Multiprocessor(64, 32, 228 * KIB),
    "100": Multiprocessor(64, 32, 228 * KIB),
    "103": Multiprocessor(64, 32, 228 * KIB),
    "110": Multiprocessor(48, 24, 228 * KIB),
    "120": Multiprocessor(48, 24, 100 * KIB),
    "121": Multiprocessor(48, 24, 100 * KIB),
}


@dataclass(frozen=True, slots=True)
class Chip:
    """Peak rates a second. `rates`: operations on "f32" and "f64"; products of matrices of 16 bits, "f16",
    and of "tf32" (an addition and a multiplication are two); "special" functions, such as exp."""

    name: str
    bandwidth: float  # bytes
    rates: Mapping[str, float]
    source: str


def _chip(
    name: str, bandwidth: float, f16: float, tf32: float, f32: float, f64: float, special: int, source: str
) -> Chip:
    """Rates in TB/s and TFLOP/s; there is one special function for `special` operations of f32."""
    rates = {"f16": f16, "tf32": tf32, "f32": f32, "f64": f64, "special": f32 / special}
    return Chip(name, bandwidth * 1e12, {unit: rate * 1e12 for unit, rate in rates.items()}, source)


_CHIPS = {
    "cuda:80": _chip("A100 SXM 80 GB", 2.039, 312, 156, 19.5, 9.7, 8, "NVIDIA A100 Tensor Core GPU data sheet"),
    "cuda:90": _chip("H200 SXM", 4.8, 989, 494, 67, 34, 16, "NVIDIA H200 Tensor Core GPU data sheet"),
    "cuda:100": _chip("B200", 7.7, 2250, 1100, 75, 37, 16, "NVIDIA Blackwell data sheet, HGX B200, a GPU"),
    "hip:gfx942": _chip("MI300X", 5.3, 1307.4, 653.7, 163.4, 81.7, 16, "AMD Instinct MI300X data sheet"),
}


# AMD's compute units: waves that one of the four SIMDs holds at most, bytes of local memory. ("AMD CDNA 3
# Instruction Set Architecture"; LLVM's AMDGPU backend says how many waves the registers allow.)
_UNITS = {"gfx90a": (8, 64 * KIB), "gfx942": (8, 64 * KIB), "gfx950": (8, 160 * KIB)}


def compute_unit(target: Target) -> tuple[int, int] | None:
    """(waves a SIMD, bytes of local memory) of an AMD target."""
    return _UNITS.get(target.arch) if target.kind == "hip" else None


def multiprocessor(target: Target) -> Multiprocessor | None:
    return _LIMITS.get(target.arch) if target.kind == "cuda" else None


def shared_bytes(target: Target) -> int | None:
    """What one program may have of shared memory; None if that is not known."""
    if target.kind == "hip":
        return _UNITS.get(target.arch, (0, 64 * KIB))[1]
    limits = multiprocessor(target)
    return None if limits is None else limits.shared - limits.reserved


def chip(target: Target) -> Chip | None:
    return _CHIPS.get(str(target))


def blocks_at_once(limits: Multiprocessor, warps: int, registers: int, shared: int) -> dict[str, int]:
    """How many blocks of `warps` warps, of `registers` a thread and `shared` bytes, one multiprocessor
    holds, by what allows no more: the least of these counts."""
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
