"""The resources of a multiprocessor that each compiled kernel takes, and its instructions by kind.

In: a compilation for a GPU. Out: a `Resources` for each kernel:

  - registers and local memory, as the assembler has allocated them (cuobjdump for NVIDIA, LLVM's report for AMD),
  - shared memory, as Triton launches the kernel,
  - how many of its warps run at once, and what limits them (minitri/hardware/occupancy.py),
  - a count of instructions by kind.

Instructions are counted in the text, not as they run: those of a loop count once. Left out: what can only be measured.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from minitri.base.diagnostics import listed
from minitri.hardware.occupancy import blocks_at_once, compute_unit, multiprocessor
from minitri.hardware.targets import Target
from minitri.pipeline import Compilation
from minitri.triton.artifacts import Built, inspected, kernel_text
from minitri.triton.emit import EmittedKernel


@dataclass(frozen=True, slots=True)
class Resources:
    """`registers`, `local` (bytes: stack and spilled registers) are a thread's, `shared` (bytes) a block's.
    `spills`: instructions that read or write local memory. `blocks`: how many a multiprocessor runs at
    once, None where no limits are known; `occupancy`: the part of its warps that these are; `bound`: what
    stops there being more."""

    kernel: str
    warps: int
    registers: int
    shared: int
    local: int
    spills: int
    blocks: int | None
    occupancy: float | None
    bound: str
    instructions: Mapping[str, int]


def resources(compiled: Compilation) -> tuple[Resources, ...]:
    """One for each kernel; StageUnavailable as of its machine code, nothing without a GPU's target."""
    target = compiled.context.target
    measure = {"cuda": _nvidia, "hip": _amd}.get(target.kind)
    if measure is None:
        return ()
    return tuple(measure(k, built, target) for k, built in zip(compiled.value("triton"), compiled.compiled))


# ---- NVIDIA --------------------------------------------------------------------------------


def _nvidia(kernel: EmittedKernel, built: Built, target: Target) -> Resources:
    usage = inspected(built.asm["cubin"], kernel.name, "cuobjdump", "-res-usage")
    registers, stack, static, local = (_number(rf"\b{n}:(\d+)", usage) for n in ("REG", "STACK", "SHARED", "LOCAL"))
    counts = _mix(_opcodes(kernel_text(built.asm, "sass", kernel.name)), SASS)
    shared = max(built.shared, static)
    blocks, occupancy, bound = _nvidia_occupancy(target, kernel.warps, registers, shared)
    return Resources(kernel.name, kernel.warps, registers, shared, max(stack, local),
                     counts.get("local memory", 0), blocks, occupancy, bound, counts)  # fmt: skip


def _nvidia_occupancy(target: Target, warps: int, registers: int, shared: int) -> tuple[int | None, float | None, str]:
    limits = multiprocessor(target)
    if limits is None:
        return None, None, ""
    counts = blocks_at_once(limits, warps, registers, shared)
    blocks = min(counts.values())
    bound = listed([name for name, count in counts.items() if count == blocks])
    return blocks, blocks * warps / limits.warps, "" if blocks == counts["warps"] else bound


# ---- AMD -----------------------------------------------------------------------------------


def _amd(kernel: EmittedKernel, built: Built, target: Target) -> Resources:
    text = kernel_text(built.asm, "amdgcn", kernel.name)
    counts = _mix(re.findall(r"^\t([a-z]\w*)", text, re.MULTILINE), AMDGCN)
    registers = _number(r"; TotalNumVgprs: (\d+)", text) or _number(r"; NumVgprs: (\d+)", text)
    blocks, occupancy, bound = _amd_occupancy(target, kernel.warps, _number(r"; Occupancy: (\d+)", text), built.shared)
    return Resources(kernel.name, kernel.warps, registers, built.shared, _number(r"; ScratchSize: (\d+)", text),
                     counts.get("local memory", 0), blocks, occupancy, bound, counts)  # fmt: skip


def _amd_occupancy(target: Target, warps: int, waves: int, shared: int) -> tuple[int | None, float | None, str]:
    """`waves`: how many a SIMD runs, by its registers."""
    limits = compute_unit(target)
    if limits is None or not waves:
        return None, None, ""
    most = limits.waves * limits.simds
    by_registers = waves * limits.simds // warps
    by_memory = limits.shared // shared if shared else by_registers
    blocks = min(by_registers, by_memory)
    bound = "" if blocks * warps >= most else "shared memory" if by_memory < by_registers else "registers"
    return blocks, blocks * warps / most, bound


# ---- instructions --------------------------------------------------------------------------

# (kind, what the name of an instruction begins with), the first that fits; any other is "integer and moves".
SASS = (
    ("matrix", r"[HIQDB]G?MMA|UTC\w*MMA|OMMA|LDTM|STTM|WARPGROUP"),
    ("global memory", r"LDG|STG|LD$|ST$|RED|ATOMG|ATOM$|UTMA|UBLK|CCTL"),
    ("shared memory", r"LDS|STS|ATOMS"),
    ("local memory", r"LDL|STL"),
    ("special", r"MUFU"),
    ("convert", r"[FI]2[FI]|F2FP|I2FP|FRND"),
    ("float", r"[FHD](ADD|MUL|FMA|SET|SETP|SEL|MNMX|CHK|SWZADD)"),
    ("control", r"BRA|EXIT|BAR|CALL|RET|BSSY|BSYNC|WARPSYNC|NOP|ELECT|DEPBAR|SYNCS|YIELD|BPT|MEMBAR|ERRBAR|FENCE|NANOSLEEP|JMP"),
)  # fmt: skip
AMDGCN = (
    ("matrix", r"v_mfma|v_smfma|v_wmma|v_accvgpr"),
    ("global memory", r"global_|flat_|buffer_|s_load|s_buffer"),
    ("shared memory", r"ds_"),
    ("local memory", r"scratch_"),
    ("special", r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_"),
    ("convert", r"v_cvt"),
    ("float", r"v_(pk_)?\w+_(f|bf)(16|32|64)"),
    ("control", r"s_(waitcnt|barrier|c?branch|endpgm|nop|setprio|cbranch)"),
)  # fmt: skip
OTHER = "integer and moves"


def _opcodes(sass: str) -> Iterator[str]:
    for line in sass.split("\n"):
        match = re.match(r"(?:@!?\S+\s+)?([A-Z0-9_]+)", line.partition("\t")[2])
        if match:
            yield match[1]


def _mix(opcodes: Iterator[str] | list[str], kinds: tuple[tuple[str, str], ...]) -> dict[str, int]:
    """How many instructions of each kind, the most frequent first."""
    counts = Counter(next((kind for kind, start in kinds if re.match(start, name)), OTHER) for name in opcodes)
    return dict(counts.most_common())


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0
