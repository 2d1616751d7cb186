"""Measures how many operations of each Triton stage are mapped to graph nodes. Makes a table of
docs/learn/explorer.md.

    python tests/tracing.py                 measures, writes docs/log/tracing.json; tests/documents.py fills in the table

In: the programs of `SIZES` (every example, and more), with symbolic and with known sizes, for the targets of TARGETS.
Out, for each Triton stage: how many operations there are, and how many of them have their own nodes, serve other
operations, or belong to the kernel as a whole (`Origin.how`). tests/test_provenance.py requires `REQUIRED` for a few
programs in every run, and for all programs in the full profile.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import minitri as mt
from minitri.explore.provenance import Trace

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "log" / "tracing.json"
TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942")
# The required share, for each program: operations that lead to a node and so to the source.
REQUIRED = {"ttir": 0.9, "ttgir": 0.9, "llir": 0.9, "ptx": 0.95, "sass": 0.95, "amdgcn": 0.9}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "attention": {"B": (4,), "T": 256, "S": 256, "D": 64},
    "cross_entropy": {"N": 1000, "C": 5000},
    "embedding": {"V": 1000, "D": 256, "B": (64, 32)},
    "layer_norm": {"B": (4096,), "D": 1024},
    "linear": {"M": 4096, "K": 512, "N": 1024},
    "matmul": {"M": 4096, "K": 512, "N": 1024},
    "relu_matmul": {"M": 4096, "K": 512, "N": 1024},
    "softmax": {"M": 1000, "N": 300},
    "gelu": {"S": (1000, 300)},
    "vector_add": {"N": 1_000_000},
    "w[idx]": {"V": 1000, "D": 256, "N": 2048},
    "a * b + c": {"M": 1000, "N": 300},
}
# Programs that are not files of examples/, with their types.
TYPES: Mapping[str, Mapping[str, str]] = {
    "w[idx]": {"w": "f32[V, D]", "idx": "i64[N]"},
    "a * b + c": {"a": "f32[M, N]", "b": "f32[M, N]", "c": "f32[N]"},
}
Row = dict[str, Any]


def compiled(program: str) -> mt.Program:
    types = TYPES.get(program)
    return mt.compile(program, **types) if types else mt.compile(ROOT / "examples" / f"{program}.mt")


def measured(program: str, sizes: Mapping[str, Any], target: str) -> Iterator[Row]:
    """One row for each Triton stage."""
    low = compiled(program).lower(target=target, **sizes)
    trace = Trace(low.compilation)
    for stage in low.stages[8:]:
        shown = trace[stage]
        known = [how if nodes else "nothing" for how, nodes in zip(shown.how, shown.lines) if how]
        counts = Counter(known)
        assert not counts["nothing"], f"{program}, {stage}: operations without a node"
        yield {"program": program, "sizes": bool(sizes), "target": target, "stage": stage,
               "operations": len(known), "own": counts["own"], "serves": counts["serves"]}  # fmt: skip


def share(rows: Iterable[Row], *kinds: str) -> float:
    rows = list(rows)
    return sum(r[k] for r in rows for k in kinds) / sum(r["operations"] for r in rows)


def table(rows: Sequence[Row]) -> str:
    """The share of operations that are mapped. For each stage: all programs together, and the lowest of them."""
    lines = ["| target | stage | operations | their own | serve others | mapped | the least |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | --- |"]
    for target, stage in dict.fromkeys((r["target"], r["stage"]) for r in rows):
        own = [r for r in rows if (r["target"], r["stage"]) == (target, stage)]
        least = min(own, key=lambda r: share([r], "own", "serves"))
        lines.append(
            f"| {target} | `{stage}` | {sum(r['operations'] for r in own):,} | {share(own, 'own'):.1%} | "
            f"{share(own, 'serves'):.1%} | {share(own, 'own', 'serves'):.1%} | "
            f"{share([least], 'own', 'serves'):.1%}, `{least['program']}` |"
        )
    return "\n".join(lines) + "\n"


def known() -> str:
    """The table of the latest measurement."""
    return table(json.loads(FIGURES.read_text(encoding="utf-8")))


def main() -> None:
    rows: list[Row] = []
    for target in TARGETS:
        for program, sizes in SIZES.items():
            for given in ({}, sizes):
                rows += measured(program, given, target)
                print(f"{target} {program}", flush=True)
    FIGURES.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
