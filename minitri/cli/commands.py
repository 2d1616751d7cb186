"""What each command does, once its arguments are read.

In: a `Request` (which program, which sizes, which target) and the options of one command. Out:
text or JSON by way of console.py. Nothing here compiles: every line asks the same `Program`
that Python users have, so the command line can do nothing that a script could not.

Left out: arguments (cli.py), the program that they name (request.py), inputs (inputs.py), exit codes (console.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import minitri as mt
from minitri.base.diagnostics import CODES, CompileError, printable, suggest
from minitri.cli.console import (
    as_dict,
    exit_code,
    fail,
    heading,
    note,
    progress,
    show,
    show_json,
    sizes_text,
    write_file,
    write_files,
)
from minitri.cli.request import Request, usage

if TYPE_CHECKING:
    from minitri.cli.inputs import Inputs, Size
    from minitri.lowered import Lowered
    from minitri.passes.pass_manager import PassRecord
    from minitri.profile import Profile
    from minitri.program import Program
    from minitri.trust.check import CheckReport

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
    stages = list(low.stages) if everything else list(emit)
    stages = stages or ([] if print_after else ["triton"])
    texts, missing = _texts(low, stages)
    passes = _passes(low, print_after) if print_after else []
    if as_json:
        show_json(_compiled(request, low, texts, missing, passes))
    else:
        _show_all([(f"after {p.name}", p.stage, p.after) for p in passes], always=True)
        if directory is None:
            _show_all([(s, s, text) for s, text in texts.items()], always=bool(passes))
    if directory is not None:
        write_files(directory, texts)
    if missing is not None:
        if not as_json:
            note(str(missing))
        raise SystemExit(exit_code(missing))


def _texts(low: Lowered, stages: Sequence[str]) -> tuple[dict[str, str], CompileError | None]:
    """The texts that can be had here, and why the first of the others cannot."""
    texts: dict[str, str] = {}
    missing: CompileError | None = None
    for stage in stages:
        try:
            texts[stage] = low[stage]
        except mt.StageUnavailable as error:
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
            click.echo(heading(title))
        show(stage, text)


def _compiled(
    request: Request,
    low: Lowered,
    texts: Mapping[str, str],
    missing: CompileError | None,
    passes: list[PassRecord],
) -> dict[str, Any]:
    out: dict[str, Any] = {"stages": texts, "target": low.target, "sizes": request.sizes}
    if passes:
        names = ("name", "stage", "before", "after", "seconds")
        out["passes"] = [{n: getattr(p, n) for n in names} for p in passes]
    if missing is not None:
        out["error"] = as_dict(missing)
    return out


# ---- run -----------------------------------------------------------------------------------


def run(request: Request, given: Mapping[str, str], stage: str | None, seed: int, check: bool, as_json: bool) -> None:
    """Runs a program once: the result, the time, and how far it is from the reference."""
    program = request.program(untyped=list(given))
    inputs = _inputs(program, given, request.sizes, seed)
    if inputs.assumed:
        note(f"sizes not given: {sizes_text({n: inputs.sizes[n] for n in inputs.assumed})} (set them with -D)")
    start = time.perf_counter()
    result = program.run(stage, *inputs.arrays) if stage else program(*inputs.arrays)
    seconds = time.perf_counter() - start
    outputs = result if isinstance(result, tuple) else (result,)
    if check and request.start not in (None, "graph") and request.against is None:
        note(f"not checked: a program that begins at `{request.start}` has no reference (give it --against FILE)")
        check = False
    report = _checked(program, inputs) if check else None
    if as_json:
        show_json(_ran(inputs, outputs, stage, seconds, report))
    else:
        _show_outputs(outputs)
        note(f"time: {seconds * 1e3:.1f} ms, compilation included" + (f" (stage {stage})" if stage else ""))
        if report is not None:
            _note_check(report)
    if report is not None and not report.ok:
        raise SystemExit(1)


def _checked(program: Program, inputs: Inputs) -> CheckReport:
    """The passes for this machine. What another target would run is for `minitri check`."""
    from minitri.runtime.binding import bind
    from minitri.trust import check

    return check.check(program, bind(program.function, inputs.arrays, {}), ("interpreter", "gpu"))


def _inputs(program: Program, given: Mapping[str, str], sizes: Mapping[str, Size], seed: int) -> Inputs:
    from minitri.cli.inputs import make_inputs

    with usage():
        return make_inputs(program.function, given, sizes, seed)


def _show_outputs(outputs: Sequence[Any]) -> None:
    import numpy as np

    for number, output in enumerate(outputs):
        array = np.asarray(output)
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
    inputs: Inputs, outputs: Sequence[Any], stage: str | None, seconds: float, report: CheckReport | None
) -> dict[str, Any]:
    import numpy as np

    arrays = [np.asarray(o) for o in outputs]
    return {
        "outputs": [{"dtype": a.dtype.name, "shape": a.shape, "values": a.tolist()} for a in arrays],
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
            report = program.check(*_inputs(program, given, sizes, seed).arrays)
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
    """The sizes of each round: those given, and a row of ROUNDS for the others."""
    from minitri.cli.inputs import dimensions, file_sizes, is_pack

    function = program.function
    with usage():
        sizes = {**file_sizes(function, given), **sizes}
    free = [n for n in dimensions(function) if n not in sizes]
    for row, axes in zip(ROUNDS, cycle(PACKS)):
        numbers = cycle(row)
        yield dict(sizes) | {n: axes if is_pack(function, n) else next(numbers) for n in free}
        if not free:
            return


def _conclude(results: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    from minitri.trust.check import culprit

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


# ---- explain, bench ------------------------------------------------------------------------


def explain_code(code: str) -> None:
    """The page of an error code; usage error if there is none."""
    code = code.upper()
    if code not in CODES:
        raise click.UsageError(f"no error code {code[:20]}; {suggest(code, CODES) or 'they look like MT0203'}")
    from minitri.errors.pages import as_text
    from minitri.errors.texts import PAGES

    click.echo(as_text(code, PAGES[code]).rstrip("\n"))


def explain(request: Request, measure: bool) -> None:
    """The page of a program; with `measure` the table of its kernels too."""
    from minitri.explain import explain as page

    request, profile = _measured(request) if measure else (request, None)
    click.echo(page(request.lower().compilation, profile and profile.measured).rstrip("\n"))
    if profile is not None:
        click.echo(f"\n{profile}")


def explore(
    request: Request, output: str | None, compare: Mapping[str, str], panes: Sequence[str], measure: bool
) -> None:
    """Writes the explorer's page of a program, or of two that differ in what `compare` says."""
    from minitri.explore.document import Shown, document
    from minitri.explore.page import Page

    request, profile = _measured(request) if measure else (request, None)
    first = request.lower().compilation
    second = request.changed(compare).lower().compilation if compare else None
    shown = document(first, second, shown=Shown(compare, profile and profile.measured, panes))
    name = output or f"{shown['title']}.html"
    write_file(name, Page(shown).html)
    missing = next((s["missing"] for s in shown["programs"][0]["stages"] if "missing" in s), None)
    if missing:
        note(f"without the stages that are not available here: {missing}")
    if name != "-":
        note(printable(f"wrote {name}: open it in a browser"))


def _measured(request: Request) -> tuple[Request, Profile]:
    """The request for this machine's GPU (or for Triton's interpreter, if it asks for that), and how long each kernel
    takes there, for random arrays."""
    from minitri.profile import profile
    from minitri.runtime.devices import require_gpu, target_of

    interpreted = request.target == "interpreter"
    if not interpreted:
        require_gpu()
    program = request.program()
    inputs = _inputs(program, {}, request.sizes, 0)
    if inputs.assumed:
        raise click.UsageError(
            f"--measure takes all sizes: -D {sizes_text({n: inputs.sizes[n] for n in inputs.assumed})}"
        )
    if interpreted:
        return request, profile(program, *inputs.arrays)
    target = str(target_of("cuda"))
    if request.target not in (None, target):
        raise click.UsageError(f"--measure runs on this machine's GPU, which is {target}")
    return replace(request, target=target), profile(program, *program.on_gpu(*inputs.arrays))


def serve(request: Request, port: int) -> None:
    """Serves the explorer to this machine until it is interrupted."""
    from minitri.explore.serve import listening

    try:
        server = listening(port, request.shown())
    except OSError as error:
        raise click.UsageError(str(error)) from None
    click.echo(server.address)
    note("serving this address to this machine; Ctrl-C ends it")
    with suppress(KeyboardInterrupt):
        server.serve_forever()
    server.server_close()


def bench(cases: Sequence[str], json: str | None, plot: str | None, tune: bool, host: bool) -> None:
    from minitri.bench import run as benchmarks

    if benchmarks.main(list(cases), json, plot, tune, host) != 0:
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
        from minitri.runtime.devices import require_gpu

        require_gpu()
    where = Path(directory) if directory else None
    session = Session(budget, seed, jobs or os.cpu_count() or 1, on, where, programs)
    with progress("fuzz", budget if programs is None else programs) as tell:

        def said(s: Summary) -> None:
            done = s.seconds if programs is None else s.programs
            tell(done, f"{s.programs} programs, {s.stages} stages, {s.pairs} pairs, {len(s.found)} disagreements")

        summary = run_session(session, said)
    if as_json:
        show_json(summary.as_dict())
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
        show_json({"ok": found is None, "guilty": found and found.guilty, "relation": found and found.relation,
                   "said": found and found.said, "sizes": case.program.sizes})  # fmt: skip
    else:
        click.echo(case.program.text.rstrip("\n"))
        note(f"failed: {found.said}" if found else "ok: every pass is right, and every related program agrees")
    if found:
        raise SystemExit(1)
