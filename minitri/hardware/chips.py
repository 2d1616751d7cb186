"""What each chip can do. The cost models take their figures from here, and from nowhere else.

    chip_of(Target.parse("a100")).multiprocessors        108
    chip_of(Target.parse("cuda:80")).name                "an NVIDIA GPU": an A100, or an A30 of 56 multiprocessors

In: a target. Out: `chip_of(target)`, the `Chip` that cost models plan for, and `peak(target)`, the rates of a roofline.
A target that names its GPU gets the figures of that GPU. An architecture stands for many GPUs, so `cuda:80` gets the
generic description of its vendor. `cuda:90` alone is described by the H200: its schedules were measured on one.

`sources` says for each figure where it comes from. Where no source is known the figure is None, and `sources` says why.
Rates are those of the data sheets, without sparsity. No program reaches them: a copy on an H200 gets about 90% of its
bandwidth. Limits that all chips of an architecture share are in minitri/hardware/occupancy.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from minitri.hardware.occupancy import KIB, shared_bytes
from minitri.hardware.targets import Target

MIB = 1024 * KIB
SHARED_SOURCE = "minitri/hardware/occupancy.py, the limit of the architecture"


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


def _peak(name: str, bandwidth: float, f16: float, tf32: float, f32: float, f64: float, special: int) -> Peak:
    """TB/s and TFLOP/s; one special function takes the time of `special` operations of f32."""
    rates = {"f16": f16, "tf32": tf32, "f32": f32, "f64": f64, "special": f32 / special}
    return Peak(name, bandwidth * 1e12, {unit: rate * 1e12 for unit, rate in rates.items()})


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


def _shared(gpu: str) -> int:
    found = shared_bytes(Target.parse(gpu))
    assert found is not None
    return found


# How many special functions and operations of f32 run in a cycle: "Throughput of Native Arithmetic Instructions" in the
# CUDA programming guide (16 of 64 or 128 lanes, each of which does two operations); AMD's are transcendental
# instructions at a quarter of the rate, of f32 that is packed ("AMD CDNA 3 Instruction Set Architecture").
A100 = Chip(
    "A100 SXM 80 GB", 108, _shared("a100"), 192 * KIB, 40 * MIB,
    _peak("A100 SXM 80 GB", 2.039, 312, 156, 19.5, 9.7, 8),
    {
        "multiprocessors": 'white paper "NVIDIA A100 Tensor Core GPU Architecture", table of GPU features',
        "shared": SHARED_SOURCE,
        "l1": "NVIDIA Ampere GPU Architecture Tuning Guide, Unified Shared Memory/L1/Texture Cache",
        "l2": 'white paper "NVIDIA A100 Tensor Core GPU Architecture", table of GPU features',
        "peak": "NVIDIA A100 Tensor Core GPU data sheet",
    },
)  # fmt: skip
H100 = Chip(
    "H100 SXM", 132, _shared("h100"), 256 * KIB, 50 * MIB,
    _peak("H100 SXM", 3.35, 989, 494, 67, 34, 16),
    {
        "multiprocessors": 'white paper "NVIDIA H100 Tensor Core GPU Architecture", table of GPU features',
        "shared": SHARED_SOURCE,
        "l1": "NVIDIA Hopper Tuning Guide, Unified Shared Memory/L1/Texture Cache",
        "l2": 'white paper "NVIDIA H100 Tensor Core GPU Architecture", table of GPU features',
        "peak": "NVIDIA H100 Tensor Core GPU data sheet",
    },
)  # fmt: skip
H200 = Chip(
    "H200 SXM", 132, _shared("h200"), 256 * KIB, None,
    _peak("H200 SXM", 4.8, 989, 494, 67, 34, 16),
    {
        "multiprocessors": "CUDA device attribute MultiProcessorCount of the H200 that schedules were measured on",
        "shared": SHARED_SOURCE,
        "l1": "NVIDIA Hopper Tuning Guide, Unified Shared Memory/L1/Texture Cache",
        "l2": "None: the data sheet does not say",
        "peak": "NVIDIA H200 Tensor Core GPU data sheet",
    },
)  # fmt: skip
B200 = Chip(
    "B200", 148, _shared("b200"), 256 * KIB, 126 * MIB,
    _peak("B200", 7.7, 2250, 1100, 75, 37, 16),
    {
        "multiprocessors": "CUDA device properties of a B200, in github.com/pytorch/ao/pull/4002",
        "shared": SHARED_SOURCE,
        "l1": 'Chips and Cheese, "Nvidia\'s B200: Keeping the CUDA Juggernaut Rolling"',
        "l2": "CUDA device properties of a B200, in github.com/pytorch/ao/pull/4002 (126.5 MiB, whole ones here)",
        "peak": "NVIDIA Blackwell data sheet, HGX B200, a GPU",
    },
)  # fmt: skip
RTX4090 = Chip(
    "GeForce RTX 4090", 128, _shared("rtx4090"), 128 * KIB, 72 * MIB,
    _peak("GeForce RTX 4090", 1.008, 165.2, 82.6, 82.6, 82.6 / 64, 16),
    {
        "multiprocessors": 'white paper "NVIDIA Ada GPU Architecture", appendix A',
        "shared": SHARED_SOURCE,
        "l1": 'white paper "NVIDIA Ada GPU Architecture", appendix A',
        "l2": 'white paper "NVIDIA Ada GPU Architecture", appendix A',
        "peak": 'white paper "NVIDIA Ada GPU Architecture", appendix A: sums in f32; f64 is 1/64 of f32',
    },
)  # fmt: skip
MI300X = Chip(
    "MI300X", 304, _shared("mi300x"), 32 * KIB, 32 * MIB,
    _peak("MI300X", 5.3, 1307.4, 653.7, 163.4, 81.7, 16),
    {
        "multiprocessors": "AMD Instinct MI300X data sheet",
        "shared": SHARED_SOURCE,
        "l1": 'ROCm documentation, "AMD GPU specifications"',
        "l2": 'ROCm documentation, "AMD GPU specifications": 4 MiB in each of 8 dies, beside 256 MiB of L3',
        "peak": "AMD Instinct MI300X data sheet",
    },
)  # fmt: skip

_CHOSEN = "no chip's figure: the one that the rules of thumb were tried with for every target"
GENERIC_NVIDIA = Chip(
    "an NVIDIA GPU", 132, 48 * KIB, 256 * KIB, None, None,
    {
        "multiprocessors": _CHOSEN,
        "shared": 'CUDA programming guide: what a block has on every architecture; "shared memory per block"',
        "l1": _CHOSEN,
        "l2": "None: it differs from chip to chip",
        "peak": "None: they differ from chip to chip",
    },
)  # fmt: skip
GENERIC_AMD = replace(
    GENERIC_NVIDIA, name="an AMD GPU", shared=64 * KIB,
    sources={**GENERIC_NVIDIA.sources, "shared": "AMD's ISA manuals, Local Data Share: the limit of a workgroup"},
)  # fmt: skip
# Options for a large GPU (tensor descriptors, say) are interpreted, too, so its programs may be as large.
INTERPRETED = replace(
    GENERIC_NVIDIA, name="the interpreter", shared=227 * KIB,
    sources={**GENERIC_NVIDIA.sources, "shared": "no chip's figure: room for the programs of any GPU that is interpreted"},
)  # fmt: skip

CHIPS = {
    "a100": A100, "h100": H100, "h200": H200, "b200": B200, "rtx4090": RTX4090, "mi300x": MI300X,
}  # fmt: skip
_GENERIC = {"cuda": GENERIC_NVIDIA, "hip": GENERIC_AMD, "interpreter": INTERPRETED}
# The GPU that an architecture is usually run on. A roofline names it, so a reader sees whose rates they are.
_USUAL = {"cuda:80": A100, "cuda:90": H200, "cuda:100": B200, "hip:gfx942": MI300X}


def chip_of(target: Target) -> Chip:
    """The chip that cost models plan for. One that is not known gets the generic description of its vendor."""
    if target.gpu:
        return CHIPS[target.gpu]
    if (target.kind, target.arch) == ("cuda", "90"):
        return H200
    generic = _GENERIC[target.kind]
    shared = shared_bytes(target)
    return generic if shared is None else replace(generic, shared=shared)


def peak(target: Target) -> Peak | None:
    """The rates of the GPU that a target names, or is usually run on; None where no data sheet is known here."""
    chip = CHIPS.get(target.gpu) or _USUAL.get(str(target))
    return None if chip is None else chip.peak
