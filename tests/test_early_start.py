"""The pass early-start: which kernels start early, that they wait before their first memory access, and their
results.
"""

from __future__ import annotations

import re

import pytest
import torch

import minitri as mt
from minitri.explore.provenance import Trace
from minitri.hardware.targets import ARCHITECTURES, TARGETS, Target
from minitri.triton.cached_compile import compile_options

XW = {"x": "f16[M, K]", "w": "i8[K, N]"}
CASES: dict[str, tuple[str, dict[str, str], dict[str, int], int]] = {  # the last number: how many kernels there are
    "one kernel": ("x + 1", {"x": "f32[N]"}, {"N": 1 << 20}, 1),
    "a split sum": ("sum(x)", {"x": "f32[N]"}, {"N": 1 << 20}, 2),
    "a split mean and a difference": ("x - mean(x)", {"x": "f32[N]"}, {"N": 1 << 20}, 3),
    "columns": ("sum(x, axis=0)", {"x": "bf16[M, N]"}, {"M": 16384, "N": 8192}, 2),
    "a split product": ("relu(x @ w)", {"x": "bf16[M, K]", "w": "bf16[K, N]"}, {"M": 16, "K": 8192, "N": 1024}, 2),
    "a copied factor": ("x @ (w.astype(f16) * 0.5)", XW, {"M": 2048, "K": 2048, "N": 2048}, 2),
    "a running sum": ("cumsum(x)", {"x": "f32[N]"}, {"N": 1 << 20}, 3),
    "few queries": ("softmax(x @ y.T) @ y", {"x": "f16[M, 64]", "y": "f16[N, 64]"}, {"M": 8, "N": 1 << 16}, 2),
}  # fmt: skip
MEMORY = re.compile(
    r"\b(LDG|LDGSTS|LD|STG|ST|ATOMG?|REDG?|UTMA[A-Z]+|UBLK[A-Z]+)\b"
)  # accesses of GPU memory, not of shared memory


def lowered(name: str, target: str = "cuda:90") -> mt.Lowered:
    text, types, sizes, _ = CASES[name]
    return mt.compile(text, **types).lower(target=target, **sizes)


@pytest.mark.parametrize("name", list(CASES))
def test_all_kernels_except_the_first_wait(name: str) -> None:
    text = lowered(name)["triton"]
    kernels = re.findall(r"def (k\d+)\(.*\n( +rt\.wait_for_previous\(\)\n)?", text)
    assert [bool(waits) for _, waits in kernels] == [False] + [True] * (CASES[name][3] - 1)
    assert text.count("wait_for_previous") == text.count("launch_pdl=True") == CASES[name][3] - 1


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_start_early_only_on_gpus_that_support_it(target: str) -> None:
    known = Target.parse(target)
    archs = list(ARCHITECTURES["cuda"])
    assert known.has_early_starts == (known.kind == "cuda" and known.arch in archs[archs.index("90") :])
    text = lowered("a split sum", target)["triton"]
    assert ("wait_for_previous" in text) == ("launch_pdl" in text) == known.has_early_starts


@pytest.mark.parametrize("target", ["cuda:90", "cuda:100"])
@pytest.mark.parametrize("name", list(CASES))
def test_no_memory_access_precedes_the_wait(name: str, target: str) -> None:
    """ACQBULK is griddepcontrol.wait. If a read came before it, wrong results would be too rare for other tests."""
    _, *following = re.split(r"(?=// kernel k\d)", lowered(name, target)["sass"])[1:]
    assert len(following) == CASES[name][3] - 1
    for kernel in following:
        before, wait, after = kernel.partition("ACQBULK")
        assert wait and not MEMORY.findall(before) and MEMORY.findall(after)


def test_memory_accesses_are_recognised() -> None:
    seen = "LDG.E R2, STG.E, @P0 UTMALDG.2D [UR4], LDGSTS.E, ATOMG.ADD, LD.E R1, REDG.E"
    assert len(MEMORY.findall(seen)) == 7
    assert not MEMORY.findall(
        "LDC R1, c[0x0][0x28]; LDCU UR4; ULDC.64 UR6; LDS R2; STS [R1]; ATOMS.CAS R1; S2R R0, SR_CTAID.X; MOV R1, R2"
    )


def test_triton_receives_the_option() -> None:
    kernels = lowered("a split mean and a difference").compilation.value("triton")
    told = [compile_options(k, Target.parse("cuda:90"))["launch_pdl"] for k in kernels]
    assert told == [False, True, True]


def test_the_wait_belongs_to_all_nodes_of_the_kernel() -> None:
    low = lowered("a split sum")
    traced = Trace(low.compilation)
    for stage, word in {"triton": "wait_for_previous", "ptx": "griddepcontrol", "sass": "ACQBULK"}.items():
        s = traced[stage]
        (nodes,) = [nodes for line, nodes in zip(s.text.splitlines(), s.lines) if word in line]
        assert nodes, stage


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(CASES))
def test_results_belong_to_this_call(name: str) -> None:
    """Two inputs alternate. So a value that an earlier call left in memory gives a wrong result."""
    text, types, sizes, _ = CASES[name]
    program = mt.compile(text, **types)
    dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8}

    def some(annotation: str) -> torch.Tensor:
        dtype, shape = annotation.rstrip("]").split("[")
        extents = [sizes.get(e) or int(e) for e in shape.split(", ")]
        return torch.randn(extents, device="cuda").mul(3).to(dtypes[dtype])

    calls = [{n: some(t) for n, t in types.items()} for _ in range(2)]
    first = [program(**c).clone() for c in calls]
    kept = {n: a.clone() for n, a in calls[0].items()}
    again = program.bind(**kept), program.capture(**kept)
    for turn in range(100):
        for c, wanted in zip(calls, first):
            for n, a in c.items():
                kept[n].copy_(a)
            assert all(torch.equal(r, wanted) for r in (program(**c), *(run() for run in again))), f"turn {turn}"
    for c, result in zip(calls, first):
        wide = {n: a.double() for n, a in c.items()}
        reference = REFERENCES[name](**wide)
        assert (result.double() - reference).norm() <= 2e-3 * reference.norm()


REFERENCES = {
    "one kernel": lambda x: x + 1,
    "a split sum": lambda x: x.sum(),
    "a split mean and a difference": lambda x: x - x.mean(),
    "columns": lambda x: x.sum(0),
    "a split product": lambda x, w: (x @ w).relu(),
    "a copied factor": lambda x, w: x @ (w * 0.5),
    "a running sum": lambda x: x.cumsum(0),
    "few queries": lambda x, y: torch.softmax(x @ y.T, 1) @ y,
}
