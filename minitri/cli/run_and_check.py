"""`minitri run` and `minitri check`: a program called with arrays from files, or random ones.

In: a `Request`, the inputs that were given and the options of the command. Out: results, reports and exit codes, by way
of console.py. A check tries several sets of ragged sizes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import click
import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.cli.console import fail, heading, note, show_json, sizes_text
from minitri.cli.inputs import Inputs, Size, dimensions, is_pack, make_inputs, read_files
from minitri.cli.request import Request
from minitri.program import Program
from minitri.runtime.binding import bind
from minitri.trust import check as trust
from minitri.trust.check import CheckReport, culprit

# Sizes that `check` gives the dimensions, one row a round: nothing, one, odd, a block, a mixture.
ROUNDS = ((7, 33, 5), (33, 7, 17), (16,), (1,), (1, 33), (0,), (0, 7), (7, 0))
PACKS = ((2, 3), (), (3,))


# ---- run -----------------------------------------------------------------------------------


def run(request: Request, given: Mapping[str, str], stage: str | None, seed: int, check: bool, as_json: bool) -> None:
    """Runs a program once: the result, the time, and how far it is from the reference."""
    program = request.program(untyped=list(given))
    inputs = make_inputs(program.function, given, request.sizes, seed)
    if inputs.assumed:
        note(f"sizes not given: {sizes_text({n: inputs.sizes[n] for n in inputs.assumed})} (set them with -D)")
    start = time.perf_counter()
    result = program.run(stage, *inputs.arrays) if stage else program(*inputs.arrays)
    seconds = time.perf_counter() - start
    outputs = [np.asarray(array) for array in (result if isinstance(result, tuple) else (result,))]
    if check and request.start not in (None, "graph") and request.against is None:
        note(f"not checked: a program that begins at `{request.start}` has no reference (give it --against FILE)")
        check = False
    passes = ("interpreter", "gpu")  # of this machine; what another target would run is for `minitri check`
    report = trust.check(program, bind(program.function, inputs.arrays, {}), passes) if check else None
    if as_json:
        show_json(_ran(inputs, outputs, stage, seconds, report))
    else:
        _show_outputs(outputs)
        note(f"time: {seconds * 1e3:.1f} ms, compilation included" + (f" (stage {stage})" if stage else ""))
        if report is not None:
            _note_check(report)
    if report is not None and not report.ok:
        raise SystemExit(1)


def _show_outputs(outputs: Sequence[np.ndarray[Any, Any]]) -> None:
    for number, array in enumerate(outputs):
        if len(outputs) > 1:
            click.echo(heading(f"output {number}"))
        wide = array.astype(np.float32) if array.dtype.kind not in "biuf" else array  # bf16 has no printer
        text = np.array2string(wide, precision=4, suppress_small=True, threshold=1000, max_line_width=100)
        click.echo(f"{array.dtype.name}{list(array.shape)}\n{text}")


def _note_check(report: CheckReport) -> None:
    """One line if all is well, the table if not."""
    if not report.ok:
        note(f"{report}\ncheck: {report.first}")
        return
    ran = [r for r in report.rows if not r.note.startswith("not run")]
    worst = max(ran, key=lambda r: r.max_error / (r.bound or 1))
    stages = ", ".join(dict.fromkeys(r.stage for r in ran))
    note(f"check: ok ({stages}), error {worst.max_error:.2g} of {worst.bound:.2g}")


def _ran(
    inputs: Inputs,
    outputs: Sequence[np.ndarray[Any, Any]],
    stage: str | None,
    seconds: float,
    report: CheckReport | None,
) -> dict[str, Any]:
    return {
        "outputs": [{"dtype": a.dtype.name, "shape": a.shape, "values": a.tolist()} for a in outputs],
        "stage": stage, "sizes": inputs.sizes, "seconds": seconds,
        "check": None if report is None else report.as_dict(),
    }  # fmt: skip


# ---- check ---------------------------------------------------------------------------------


def check(request: Request, given: Mapping[str, str], seed: int, as_json: bool) -> None:
    """Every pass against the reference at several ragged sizes; exit 1 if one is wrong."""
    program = request.program(untyped=list(given))
    results: list[dict[str, Any]] = []
    refused: CompileError | None = None
    say = (lambda text: None) if as_json else click.echo
    for sizes in _rounds(program, given, request.sizes):
        say(heading(sizes_text(sizes) or program.name))
        try:
            report = program.check(*make_inputs(program.function, given, sizes, seed).arrays)
        except CompileError as error:
            if not _may_refuse(error, sizes):
                raise
            refused = error
            say(f"skipped: {error.message}")
            continue
        say(str(report).rstrip("\n"))
        results.append({"sizes": sizes, **report.as_dict()})
    if not results and refused is not None:
        fail(refused, as_json)
    _conclude(results, as_json)


def _may_refuse(error: CompileError, sizes: Mapping[str, Size]) -> bool:
    """Some programs are not for all sizes: the largest of nothing, a quarter of 7, a matrix of no axes."""
    return error.code in ("MT0201", "MT0205", "MT0206", "MT0209", "MT0306") or () in sizes.values()


def _rounds(program: Program, given: Mapping[str, str], sizes: Mapping[str, Size]) -> Iterator[dict[str, Size]]:
    """The sets of sizes to check: the given sizes, and for the others a row of `ROUNDS`."""
    function = program.function
    fixed: dict[str, Size] = {}
    read_files(function, given, fixed)
    fixed |= sizes
    free = [n for n in dimensions(function) if n not in fixed]
    for row, axes in zip(ROUNDS, cycle(PACKS)):
        numbers = cycle(row)
        yield fixed | {n: axes if is_pack(function, n) else next(numbers) for n in free}
        if not free:
            return


def _conclude(results: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    bad = [r for r in results if not r["ok"]]
    if as_json:
        show_json({"ok": not bad, "rounds": results})
    elif bad:
        row = next(r for r in bad[0]["rows"] if not r["ok"])
        where = ", ".join(filter(None, (row["stage"], row["variant"])))
        at = f" at {sizes_text(bad[0]['sizes'])}" if bad[0]["sizes"] else ""
        note(f"failed: {culprit(row['by'])} is wrong ({where}){at}")
    else:
        note(f"ok: every pass is within its bound at {len(results)} choices of sizes")
    if bad:
        raise SystemExit(1)
