"""Tables of measurements: times, errors, memory, means, and the distribution of speedups over many random programs.

A `Row` has the measurements of one benchmark case, or of one random program. The function `report` returns the tables
about several `Row`s as text. The function `distribution` returns the report about random programs as text. The function
`as_dict` makes a dictionary for JSON from a `Row`.

The ratio of a random program is the time of torch divided by the time of minitri. If the ratio of a random program is
above 1, minitri is faster than torch. The time of torch is the shorter time of eager torch and torch.compile. The
report about random programs has a line for each class of programs and a table of the times to first results. The report
about random programs also has the rank correlation of predicted and measured times, and the text of the ten slowest
programs.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.base.text_tables import table

PEERS = ("eager", "library", "cudnn", "flash", "flex", "compile", "max-autotune")
TORCH = ("eager", "compile")  # the implementations with which random programs are compared
BOUNDS = (0.95, 0.9, 0.8)  # ratios below which random programs are counted
WORST = 10  # how many random programs are printed


@dataclass(slots=True)
class Peer:
    """The time in seconds and the relative error of one implementation.

    If the time is missing, the field `note` gives the reason.

    `first`: the seconds until the first result, including the compilation.
    """

    seconds: float | None = None
    error: float | None = None
    first: float | None = None
    note: str = ""


@dataclass(slots=True)
class Row:
    """The measurements of one case.

    `program`: the text of the program in the language.
    `within`: the largest relative error that a right result can have.
    `judged`: whether the relative error decides if a result counts as right. A result of NaN is wrong in any case.
    `floor`: the seconds that a memory copy takes if it moves as many bytes as the case.
    `copy_bytes_per_second`: the rate of a memory copy that was timed together with the implementations.
    `peak`: the bytes of memory that a call of minitri's program allocates.
    `planned`: the number of bytes in all outputs and temporaries of minitri's program.
    `predicted`: the seconds that the cost model predicts (minitri/hardware/roofline.py).
    `tuning`: the seconds that were spent on measuring schedules.
    `work`: for each stage of the compiler, the predicted numbers of bytes and operations.
    `peers`: the measured implementations, by name. "minitri" is one of them.
    `beside`: measurements of programs that compute something else from the same inputs, by name.
    """

    name: str
    within: float
    kind: str = "memory"
    bytes: int = 0
    flops: int = 0
    floor: float = 0.0
    copy_bytes_per_second: float = 0.0
    peak: int = 0
    planned: int = 0
    predicted: float | None = None
    tuning: float = 0.0
    work: dict[str, dict[str, int]] = field(default_factory=dict)
    peers: dict[str, Peer] = field(default_factory=dict)
    beside: dict[str, Peer] = field(default_factory=dict)
    program: str = ""
    judged: bool = True

    @property
    def ok(self) -> bool:
        own = self.peers["minitri"]
        return own.error is not None and own.error <= (self.within if self.judged else math.inf)

    def best(self, *names: str) -> float | None:
        """Returns the time of the fastest given implementation, in seconds.

        Implementations with a wrong result are left out.
        """
        right = [self.peers[n] for n in names if n in self.peers]
        return min((p.seconds for p in right if p.seconds and (p.error or 0) <= 10 * self.within), default=None)

    def ratio(self, *others: str) -> float | None:
        own, best = self.best("minitri"), self.best(*others)
        return best / own if own and best else None


def ratios(rows: Sequence[Row], *others: str) -> list[float]:
    """Returns a ratio for each case or random program: the shortest time of the implementations `others`, divided by
    the time of minitri.

    A case without a time of minitri has no ratio. A case without any time of the `others` has no ratio either.
    """
    return [x for r in rows if (x := r.ratio(*others))]


def report(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    names = [n for n in ("minitri", "minitri tuned", *PEERS) if any(n in r.peers for r in rows)]
    rate = facts["copy_bytes_per_second"] / 1e12
    head = f"{facts['device']}, torch {facts['torch']}, triton {facts['triton']}; a copy moves {rate:.2f} TB/s"
    times: list[tuple[str, ...]] = [("ms (median)", *names, "best/ours", "compile/ours", "of copy", "predicted")]
    errors = [("relative error", *names, "ours")]
    for r in rows:
        each = [r.peers.get(n) for n in names]
        over = (number(r.ratio(*others), ".2f") for others in (PEERS, ("compile",)))
        times.append((r.name, *map(time_of, each), *over, _share(r), number(r.predicted, ".3f", 1e3)))
        errors.append((r.name, *(number(p and p.error, ".1e") for p in each), "ok" if r.ok else "WRONG"))
    notes = [f"{r.name}, {n}: {p.note}" for r in rows for n, p in (*r.peers.items(), *r.beside.items()) if p.note]
    compared = [*_means(rows), *_beside(rows), *_tuning(rows), *predictions(rows)]
    return "\n".join([head, "", table(times), *compared, "", table(errors), "", *_memory(rows), *notes])


def _memory(rows: Sequence[Row]) -> list[str]:
    """Returns lines that say whether calls allocate exactly the memory of their outputs and temporaries."""
    known = [r for r in rows if r.planned]
    more = [f"{r.name}: {r.peak:,} bytes instead of {r.planned:,}" for r in known if r.peak != r.planned]
    exact = f"{len(known) - len(more)} of {len(known)} cases"
    return [f"memory of outputs and planned temporaries, to the byte: {exact}", *more]


def _means(rows: Sequence[Row]) -> list[str]:
    """Returns a line with the geometric mean speedups of each kind of cases."""
    lines: list[str] = []
    for what in dict.fromkeys(r.kind for r in rows):
        group = [r for r in rows if r.kind == what]
        best, compiled = ratios(group, *PEERS), ratios(group, "compile")
        if best and compiled:
            mean = f"best/ours {geometric_mean(best):.2f} (least {min(best):.2f}), compile/ours {geometric_mean(compiled):.2f}"
            lines.append(f"{what}, geometric mean of {len(group)} cases: {mean}")
    return lines


def _beside(rows: Sequence[Row]) -> list[str]:
    """Returns lines that compare each program's speed with the speed of related programs."""
    pairs = [(r, n, p.seconds) for r in rows for n, p in r.beside.items() if p.seconds]
    return [f"{r.name}: {s / own:.2f} times as fast as our own {n}" for r, n, s in pairs if (own := r.best("minitri"))]


def _tuning(rows: Sequence[Row]) -> list[str]:
    """Returns a line about measured schedules: the longest measurement and the largest speedup."""
    known = [(r.tuning, share, r.name) for r in rows if r.tuning and (share := r.ratio("minitri tuned"))]
    if not known:
        return []
    (longest, _, where), (_, least, which) = max(known), min(known, key=lambda found: found[1])
    seconds = f"{longest:.1f} s at most ({where})"
    return [f"schedules of {len(known)} programs measured, in {seconds}; without that {least:.2f} at least ({which})"]


def predictions(rows: Sequence[Row]) -> list[str]:
    """Returns a line with the ratio of predicted to measured times, and with Spearman's rank correlation of these
    times.
    """
    pairs = [(r.predicted, own) for r in rows if r.predicted and (own := r.best("minitri"))]
    if len(pairs) < 2:
        return []
    over = [guess / own for guess, own in pairs]
    ranks = [[sorted(times).index(t) for t in times] for times in zip(*pairs)]
    apart = sum((a - b) ** 2 for a, b in zip(*ranks))
    span = f"{min(over):.2f} to {max(over):.2f}"
    correlation = f"{1 - 6 * apart / (len(pairs) * (len(pairs) ** 2 - 1)):.3f} of {len(pairs)} cases"
    return [f"predicted/ours {geometric_mean(over):.2f} ({span}), rank correlation {correlation}"]


def time_of(peer: Peer | None) -> str:
    if peer is None:
        return "-"
    return "failed" if peer.seconds is None else number(peer.seconds, ".3f", 1e3)


def number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else format(value * scale, form)


def _share(row: Row) -> str:
    own = row.best("minitri")
    if not own:
        return "-"
    return f"{row.flops / own / 1e12:.0f} TFLOP/s" if row.flops else f"{row.floor / own:.2f}"


# ---- random programs ------------------------------------------------------------------------


def distribution(rows: Sequence[Row], shrunk: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """Returns the whole report about random programs as text.

    Each row in `shrunk` is the smallest slow part of a slow program.
    """
    wrong = [r for r in rows if not r.ok]
    slow = sorted((r for r in rows if r.ok and ratio(r) < math.inf), key=ratio)[:WORST]
    head = f"{facts['device']}, torch {facts['torch']}, triton {facts['triton']}"
    counts = f"{len(rows)} programs of {facts['dtype']} from seed {facts['seed']}: {len(rows) - len(wrong)} right"
    if lost := sum(not r.judged for r in rows):
        counts += f" ({lost} not judged: eager torch has no correct digit)"
    return "\n".join([
        f"{head}\n{counts}\n", _classes(rows), "", _first_results(rows), "", *predictions(rows),
        *(f"\nWRONG {_text(r)}" for r in wrong), *(f"\n{_text(r)}" for r in slow),
        *(f"\nthe smallest part that is slow: {_text(r)}" for r in shrunk),
    ])  # fmt: skip


def ratio(row: Row) -> float:
    """Returns the time of torch divided by the time of minitri, or inf if one of the times is missing."""
    return row.ratio(*TORCH) or math.inf


def _classes(rows: Sequence[Row]) -> str:
    """Returns a table of the speedups of all programs and of each class of programs."""
    words = sorted({word for r in rows for word in r.kind.split(", ")})
    head = ("torch/minitri", "programs", "mean", "compile/ours", *(f"< {b}" for b in BOUNDS), "least")
    lines: list[tuple[str, ...]] = [head]
    for word in ("all", *words):
        group = [r for r in rows if r.ok and word in ("all", *r.kind.split(", "))]
        over, compiled = ratios(group, *TORCH), ratios(group, "compile")
        if over and compiled:
            below = (f"{sum(x < b for x in over) / len(over):.0%}" for b in BOUNDS)
            means = (f"{geometric_mean(x):.2f}" for x in (over, compiled))
            lines.append((word, str(len(over)), *means, *below, f"{min(over):.2f}"))
    return table(lines)


def _first_results(rows: Sequence[Row]) -> str:
    lines: list[tuple[str, ...]] = [("first result (s)", "median", "95%", "longest")]
    for name in ("minitri", "compile"):
        if seconds := sorted(s for r in rows if name in r.peers and (s := r.peers[name].first)):
            chosen = (median(seconds), seconds[math.ceil(0.95 * len(seconds)) - 1], seconds[-1])
            lines.append((name, *(f"{s:.2f}" for s in chosen)))
    return table(lines)


def _text(row: Row) -> str:
    """Returns a program as text, with its times, its errors and its speedup over torch."""
    times = "".join(f"{n} {time_of(p)}, " for n, p in row.peers.items())
    errors = ", ".join(f"{n} {number(p.error, '.1e')}" for n, p in row.peers.items())
    notes = "".join(f"\n    {n}: {p.note}" for n, p in row.peers.items() if p.note)
    first = f"{row.name}: {number(row.ratio(*TORCH), '.2f')} ({row.kind})"
    return f"{first}\n    ms: {times}predicted {number(row.predicted, '.3f', 1e3)}\n    errors: {errors}{notes}\n{row.program}".rstrip()


# ---- JSON ----------------------------------------------------------------------------------


def as_dict(row: Row) -> dict[str, Any]:
    ratios = {"best_over_minitri": row.ratio(*PEERS), "compile_over_minitri": row.ratio("compile")}
    own = row.best("minitri")
    return {**asdict(row), "ok": row.ok, **ratios, "of_copy": row.floor / own if own and row.floor else None}


def write_json(path: str | None, value: Mapping[str, Any]) -> None:
    """Writes `value` as JSON to the file `path`, or does nothing if `path` is None. Raises CompileError MT0003 if the
    file cannot be written.
    """
    if path is None:
        return
    try:
        Path(path).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise CompileError("MT0003", f"cannot write {path[:200]}: {error.strerror}") from None
