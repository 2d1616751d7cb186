"""The functions behind the commands.

In: a `Request` (which program, which sizes, which target) and the options of one command. Out:
text or JSON by way of console.py. Nothing here compiles: every line asks the same `Program`
that Python users have, so the command line can do nothing that a script could not.

`check` tries several sets of ragged sizes.

Left out: arguments (main.py), the program that they name (request.py), inputs (inputs.py), exit codes (console.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import click
import numpy as np

from minitri.base.diagnostics import CompileError, printable, suggest
from minitri.cli import console
from minitri.cli.inputs import Inputs, Size, dimensions, is_pack, make_inputs, read_files
from minitri.cli.request import Request
from minitri.explain import explain as page
from minitri.hardware.targets import StageUnavailable
from minitri.pipeline import PassRecord
from minitri.profile import Profile, profile
from minitri.program import Lowered, Program
from minitri.runtime.binding import bind
from minitri.runtime.devices import require_gpu, target_of
from minitri.trust import check as trust
from minitri.trust.check import CheckReport, culprit

# Sizes that `check` gives the dimensions, one row a round: nothing, one, odd, a block, a mixture.
ROUNDS = ((7, 33, 5), (33, 7, 17), (16,), (1,), (1, 33), (0,), (0, 7), (7, 0))
PACKS = ((2, 3), (), (3,))

# ---- compile -------------------------------------------------------------------------------


def compile(
    request: Request, emit: Sequence[str], print_after: str | None, directory: str | None, as_json: bool
) -> None:
    """Shows stages, and passes if asked; exit 3 if a stage could not be had."""
    low = request.lower()
    everything = "all" in emit or (directory is not None and not emit)
    stages = low.stages if everything else emit or (() if print_after else ("triton",))
    texts, missing = _texts(low, stages)
    passes = _passes(low, print_after) if print_after else []
    if as_json:
        names = ("name", "stage", "before", "after", "seconds")
        out: dict[str, Any] = {"stages": texts, "target": low.target, "sizes": request.sizes}
        out |= {"passes": [{n: getattr(p, n) for n in names} for p in passes]} if passes else {}
        console.show_json(out | ({"error": console.as_dict(missing)} if missing else {}))
    else:
        _show_all([(f"after {p.name}", p.stage, p.after) for p in passes], always=True)
        if directory is None:
            _show_all([(s, s, text) for s, text in texts.items()], always=bool(passes))
    if directory is not None:
        console.write_files(directory, texts)
    if missing is not None:
        if not as_json:
            console.note(str(missing))
        raise SystemExit(console.exit_code(missing))


def _texts(low: Lowered, stages: Sequence[str]) -> tuple[dict[str, str], CompileError | None]:
    """The texts that can be had here, and why the first of the others cannot."""
    texts: dict[str, str] = {}
    missing: CompileError | None = None
    for stage in stages:
        try:
            texts[stage] = low[stage]
        except StageUnavailable as error:
            missing = missing or error
    return texts, missing


def _passes(low: Lowered, name: str) -> list[PassRecord]:
    """The records of a pass, or of all passes down to the Triton source."""
    low["triton"]
    if name == "all":
        return list(low.passes)
    names = [p.name for p in low.passes]
    if name not in names:
        help = suggest(name, names) or f"there is {', '.join(names)}"
        raise click.UsageError(f"there is no pass `{name[:40]}`: {help}")
    return [p for p in low.passes if p.name == name]


def _show_all(parts: Sequence[tuple[str, str, str]], always: bool = False) -> None:
    """(title, stage, text) each under its title; one text alone goes without."""
    for title, stage, text in parts:
        if always or len(parts) > 1:
            click.echo(console.heading(title))
        console.show(stage, text)


# ---- run -----------------------------------------------------------------------------------


def run(request: Request, given: Mapping[str, str], stage: str | None, seed: int, check: bool, as_json: bool) -> None:
    """Runs a program once: the result, the time, and how far it is from the reference."""
    program = request.program(untyped=list(given))
    inputs = make_inputs(program.function, given, request.sizes, seed)
    if inputs.assumed:
        console.note(
            f"sizes not given: {console.sizes_text({n: inputs.sizes[n] for n in inputs.assumed})} (set them with -D)"
        )
    start = time.perf_counter()
    result = program.run(stage, *inputs.arrays) if stage else program(*inputs.arrays)
    seconds = time.perf_counter() - start
    outputs = [np.asarray(array) for array in (result if isinstance(result, tuple) else (result,))]
    if check and request.start not in (None, "graph") and request.against is None:
        console.note(
            f"not checked: a program that begins at `{request.start}` has no reference (give it --against FILE)"
        )
        check = False
    passes = ("interpreter", "gpu")  # of this machine; what another target would run is for `minitri check`
    report = trust.check(program, bind(program.function, inputs.arrays, {}), passes) if check else None
    if as_json:
        console.show_json(_ran(inputs, outputs, stage, seconds, report))
    else:
        _show_outputs(outputs)
        console.note(f"time: {seconds * 1e3:.1f} ms, compilation included" + (f" (stage {stage})" if stage else ""))
        if report is not None:
            _note_check(report)
    if report is not None and not report.ok:
        raise SystemExit(1)


def _show_outputs(outputs: Sequence[np.ndarray[Any, Any]]) -> None:
    for number, array in enumerate(outputs):
        if len(outputs) > 1:
            click.echo(console.heading(f"output {number}"))
        wide = array.astype(np.float32) if array.dtype.kind not in "biuf" else array  # bf16 has no printer
        text = np.array2string(wide, precision=4, suppress_small=True, threshold=1000, max_line_width=100)
        click.echo(f"{array.dtype.name}{list(array.shape)}\n{text}")


def _note_check(report: CheckReport) -> None:
    """One line if all is well, the table if not."""
    if not report.ok:
        console.note(f"{report}\ncheck: {report.first}")
        return
    worst = max(report.ran, key=lambda r: r.max_error / (r.bound or 1))
    stages = ", ".join(dict.fromkeys(r.stage for r in report.ran))
    console.note(f"check: ok ({stages}), error {worst.max_error:.2g} of {worst.bound:.2g}")


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
        say(console.heading(console.sizes_text(sizes) or program.name))
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
        console.fail(refused, as_json)
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
        console.show_json({"ok": not bad, "rounds": results})
    elif bad:
        row = next(r for r in bad[0]["rows"] if not r["ok"])
        where = ", ".join(filter(None, (row["stage"], row["variant"])))
        at = f" at {console.sizes_text(bad[0]['sizes'])}" if bad[0]["sizes"] else ""
        console.note(f"failed: {culprit(row['by'])} is wrong ({where}){at}")
    else:
        console.note(f"ok: every pass is within its bound at {len(results)} choices of sizes")
    if bad:
        raise SystemExit(1)


# ---- explain, bench ------------------------------------------------------------------------


def explain(request: Request, measure: bool) -> None:
    """The page of a program; with `measure` the table of its kernels too."""
    request, times = _measured(request) if measure else (request, None)
    click.echo(page(request.lower().compilation, times and times.measured).rstrip("\n"))
    if times is not None:
        click.echo(f"\n{times}")


def explore(
    request: Request, output: str | None, compare: Mapping[str, str], panes: Sequence[str], measure: bool, serve: bool,
    port: int,
) -> None:  # fmt: skip
    """Writes the explorer's page of a program, or of two that differ in what `compare` says; or serves an editor."""
    if serve:
        return _serve(request, port)
    from minitri.explore.document import Shown, document
    from minitri.explore.page import Page

    request, times = _measured(request) if measure else (request, None)
    first = request.lower().compilation
    second = request.changed(compare).lower().compilation if compare else None
    shown = document(first, second, shown=Shown(compare, times and times.measured, panes))
    name = output or f"{shown['title']}.html"
    if name == "-":
        click.echo(Page(shown).html, nl=False)
    else:
        console.write_file(Path(name), Page(shown).html)
    missing = next((s["missing"] for s in shown["programs"][0]["stages"] if "missing" in s), None)
    if missing:
        console.note(f"without the stages that are not available here: {missing}")
    if name != "-":
        console.note(printable(f"wrote {name}: open it in a browser"))


def _measured(request: Request) -> tuple[Request, Profile]:
    """The request for this machine's GPU (or for Triton's interpreter, if it asks for that), and how long each kernel
    takes there, for random arrays."""
    interpreted = request.target == "interpreter"
    if not interpreted:
        require_gpu()
    program = request.program()
    inputs = make_inputs(program.function, {}, request.sizes)
    if inputs.assumed:
        missing = console.sizes_text({n: inputs.sizes[n] for n in inputs.assumed})
        raise click.UsageError(f"--measure takes all sizes: -D {missing}")
    if interpreted:
        return request, profile(program, *inputs.arrays)
    target = str(target_of("cuda"))
    if request.target not in (None, target):
        raise click.UsageError(f"--measure runs on this machine's GPU, which is {target}")
    return replace(request, target=target), profile(program, *program.on_gpu(*inputs.arrays))


def _serve(request: Request, port: int) -> None:
    """Serves the explorer to this machine until it is interrupted."""
    from minitri.explore.serve import listening

    try:
        server = listening(port, request.shown())
    except OSError as error:
        raise click.UsageError(str(error)) from None
    click.echo(server.address)
    console.note("serving this address to this machine; Ctrl-C ends it")
    with suppress(KeyboardInterrupt):
        server.serve_forever()
    server.server_close()


def bench(cases: Sequence[str], json: str | None, plot: str | None, tune: bool, host: bool, ablate: bool) -> None:
    from minitri.bench import run as benchmarks

    if benchmarks.main(list(cases), json, plot, tune, host, ablate) != 0:
        raise SystemExit(1)


# ---- fuzz ------------------------------------------------------------------------------------


def fuzz(
    budget: float, programs: int | None, seed: int, jobs: int | None, on: str, directory: str | None,
    replay: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Random programs until the time is up, or one file that such a session has written; exit 1 on disagreement."""
    from minitri.fuzz import Session, Summary
    from minitri.fuzz import fuzz as run_session

    if replay is not None:
        return _replay(Path(replay), on, as_json)
    if on == "gpu":
        require_gpu()
    where = Path(directory) if directory else None
    session = Session(budget, seed, jobs or os.cpu_count() or 1, on, where, programs)
    with console.progress("fuzz", budget if programs is None else programs) as tell:

        def said(s: Summary) -> None:
            done = s.seconds if programs is None else s.programs
            tell(done, f"{s.programs} programs, {s.stages} stages, {s.pairs} pairs, {len(s.found)} disagreements")

        summary = run_session(session, said)
    if as_json:
        console.show_json(summary.as_dict())
    else:
        click.echo(str(summary))
    if summary.found:
        raise SystemExit(1)


def _replay(path: Path, on: str, as_json: bool) -> None:
    """A failure again: the program, and what there is to say of it now."""
    from minitri.fuzz.files import read
    from minitri.fuzz.trial import VARIANTS, examined

    case = read(path.read_text(encoding="utf-8"))
    found = examined(case, VARIANTS[on], shrinking=True, on=on).case
    if as_json:
        console.show_json({"ok": found is None, "guilty": found and found.guilty, "relation": found and found.relation,
                   "said": found and found.said, "sizes": case.program.sizes})  # fmt: skip
    else:
        click.echo(case.program.text.rstrip("\n"))
        console.note(f"failed: {found.said}" if found else "ok: every pass is right, and every related program agrees")
    if found:
        raise SystemExit(1)
