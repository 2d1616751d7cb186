"""What each optimisation is worth: cases of the benchmark with one optimisation left out at a time.

    minitri bench --ablate --json ablation.json

In: cases and names of optimisations. Out: a `Cell` for each pair in which the generated code differs. A cell holds three
ratios, without the optimisation over with it: the time of a call, the memory of a call, and the time to a first
result. 1.25 means that the optimisation saves a fifth.

All versions of a case run in the same turns (clock.py), on the same inputs, and each result is compared with the
reference in f64. Pairs whose generated code is the same are not run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import minitri as mt
from minitri.base.tables import table
from minitri.bench import host
from minitri.bench.case import Case, Input, program, torch
from minitri.bench.cases import cases
from minitri.bench.clock import Calls, Clock, Cuda, in_turns
from minitri.bench.comparison import COMPUTING, MOVING, error_of, forget, rotated, several, tensor, within
from minitri.bench.plot import heat_map
from minitri.bench.report import write_json
from minitri.optimize.rooms import OPTIONAL
from minitri.program import Program

WHOLE = ""  # the version that leaves nothing out

# Parts of names of benchmark cases. Together they have a case for every optimisation.
NAMES = (
    "add f32", "gelu bf16 16384", "softmax f32 16384", "softmax f32 512x131072", "softmax bf16 172738", "column sum f32",
    "total sum f32", "transpose f32", "cumsum f32 16384", "cross-entropy bf16", "residual gelu", "chain of 12",
    "mean and var", "attention full bf16 4x16x4096x64", "attention causal", "decode", "relu(x@w+b) bf16 4096",
    "product bf16 16x8192", "layer bf16 1000x2050", "product w.T", "mlp", "dequantised f16 16x", "dequantised f16 256x", "layer bf16 4100x4090",
)  # fmt: skip


def cases_of(names: Sequence[str]) -> list[Case]:
    """The cases with one of these in their names; without names, those of `NAMES` and `extra_cases`."""
    known = [*cases(), *extra_cases()]
    wanted = names or [*NAMES, *(c.name for c in extra_cases())]
    return [c for c in known if any(name in c.name for name in wanted)]


def extra_cases() -> tuple[Case, ...]:
    """Cases that the comparison with other libraries lacks."""
    return (
        Case("scan f32 67108864", program("long_scan"), (Input("f32", (1 << 26,)),), lambda x: torch.cumsum(x, 0)),
        Case("total sum f32 86369x777", program("ragged_total"), (Input("f32", (86369, 777)),), lambda x: x.sum()),
        Case("band sum f32 8192x8192", program("band_sum"), (Input("f32", (8192, 8192)),), _band_sum),
    )


def _band_sum(x: Any) -> Any:
    m, n = x.shape
    rows, columns = torch.arange(m, device=x.device)[:, None], torch.arange(n, device=x.device)
    return torch.where(rows <= columns + 64, x, 0).sum(0)


def ablate(chosen: Sequence[Case], json_path: str | None = None, plot_path: str | None = None) -> int:
    """Measures the cases on this machine's GPU and prints the tables; 0 if every version ran and was right."""
    found = Ablation(torch.cuda.get_device_name(), OPTIONAL)
    mt.compile("x + x")(torch.ones(8, device="cuda"))  # imports are nobody's first result
    for k, case in enumerate(chosen, 1):
        print(f"[{k}/{len(chosen)}] {case.name}", file=sys.stderr, flush=True)
        found.cells += measure(case, OPTIONAL, partial(in_turns, device=Cuda()), "cuda")
        if json_path is not None:
            write_json(json_path, asdict(found))
    print(f"{found.device}\n\n{found}\n\n{found.matrix()}")
    if plot_path is not None:
        heat_map(asdict(found), plot_path)
    return 0 if not any(c.note for c in found.cells) else 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One case without one optimisation, over the same case with all of them.

    time, memory, first   ratios; 0.0 where nothing was measured
    note                  why the version did not run, or gave a wrong result
    """

    case: str
    without: str
    time: float = 0.0
    memory: float = 0.0
    first: float = 0.0
    note: str = ""

    @property
    def best(self) -> float:
        """The largest ratio. A version that is wrong or does not run shows that the optimisation is needed."""
        return float("inf") if self.note else max(self.time, self.memory, self.first)


@dataclass(slots=True)
class _Version:
    """The case with one optimisation left out: its calls, the bytes and seconds of its first call, what went wrong."""

    program: Program
    calls: Calls = ()
    memory: int = 0
    first: float = 0.0
    note: str = ""


@dataclass(slots=True)
class Ablation:
    """The cells of several cases, and the optimisations that changed none of them."""

    device: str
    optimisations: Sequence[str]
    cells: list[Cell] = field(default_factory=list)

    def of(self, name: str) -> list[Cell]:
        """The cells of an optimisation, the largest ratio first."""
        return sorted((c for c in self.cells if c.without == name), key=lambda c: -c.best)

    def __str__(self) -> str:
        head = ("without", "cases", "time", "memory", "first result", "most on")
        return table([head, *(self._line(name) for name in self.optimisations)])

    def _line(self, name: str) -> tuple[str, ...]:
        cells = self.of(name)
        if not cells:
            return (name, "0", "-", "-", "-", "-")
        most = [f"{max(getattr(c, what) for c in cells):.2f}" for what in ("time", "memory", "first")]
        return (name, str(len(cells)), *most, cells[0].case)

    def matrix(self) -> str:
        """Ratios of time: a row for each optimisation, a column for each case."""
        cases = list(dict.fromkeys(c.case for c in self.cells))
        found = {(c.without, c.case): "wrong" if c.note else f"{c.time:.2f}" for c in self.cells}
        numbers = [f"{k}" for k in range(1, len(cases) + 1)]
        rows = [(name, *(found.get((name, case), "") for case in cases)) for name in self.optimisations]
        legend = [f"{k}: {case}" for k, case in zip(numbers, cases)]
        return "\n".join([table([("time without / with", *numbers), *rows]), *legend])


def from_dict(found: Mapping[str, Any]) -> Ablation:
    """The ablation that `dataclasses.asdict` was given."""
    return Ablation(found["device"], found["optimisations"], [Cell(**c) for c in found["cells"]])


def measure(case: Case, optimisations: Sequence[str], clock: Clock, device: str) -> list[Cell]:
    """The cells of one case; `clock` times all versions in the same turns."""
    arrays = [tensor(i, device) for i in case.inputs]
    reference = several(case.eager(*[a.double() if a.is_floating_point() else a for a in arrays]))
    sets = rotated(arrays)
    versions = versions_of(case, optimisations, arrays)
    with _empty_caches():
        for version in versions.values():
            _make_ready(version, sets, partial(error_of, reference=reference), within(case))
    times = clock({n: v.calls for n, v in versions.items() if v.calls}, COMPUTING if case.flops else MOVING)
    return [_cell(case, name, versions, times) for name in versions if name != WHOLE]


def versions_of(case: Case, optimisations: Sequence[str], arrays: Sequence[Any]) -> dict[str, _Version]:
    """The case as it is, and without each optimisation that changes its generated code."""
    whole = mt.compile(case.program)
    versions = {WHOLE: _Version(whole)}
    text = whole.lower(*arrays)["triton"]
    for name in optimisations:
        program = whole.configured(without=[name])
        if program.lower(*arrays)["triton"] != text:
            versions[name] = _Version(program)
    return versions


def _make_ready(version: _Version, sets: Sequence[Any], error: Callable[[Any], float], within: float) -> None:
    """Compiles a version and runs it once. One that fails is a note, not the end of the run."""
    try:
        start = time.perf_counter()
        result = version.program(*sets[0])
        torch.cuda.synchronize()
        version.first = time.perf_counter() - start
        if error(result) > within:
            version.note = f"error {error(result):.1e} instead of {within:.0e}"
        version.memory = host.peak(lambda: version.program(*sets[0]))
        version.calls = [version.program.bind(*arrays) for arrays in sets]
    except Exception as failure:
        version.note = str(failure).strip().partition("\n")[0][:100] or type(failure).__name__


def _cell(case: Case, name: str, versions: Mapping[str, _Version], times: Mapping[str, float | Exception]) -> Cell:
    whole, version = versions[WHOLE], versions[name]
    seconds, most = times.get(name), times.get(WHOLE)
    if version.note or not isinstance(seconds, float) or not isinstance(most, float):
        return Cell(case.name, name, note=version.note or str(seconds)[:100])
    return Cell(case.name, name, seconds / most, version.memory / max(whole.memory, 1), version.first / whole.first)


@contextmanager
def _empty_caches() -> Iterator[None]:
    """Triton compiles every kernel again: its cache is a new folder for a while."""
    before = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("TRITON_CACHE_DIR") if before is None else os.environ.update(TRITON_CACHE_DIR=before)
            forget()
