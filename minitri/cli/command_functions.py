"""The functions that run the commands of `minitri`.

The arguments of a function in this file are the options of one command. The argument `request` names the program, the
sizes and the target. The file terminal.py prints the results of commands, as text or JSON. A command only calls methods
of `Program`, so a Python script can do all that a command does.

Other files read the command line (main.py), find the program (request.py), make arrays (inputs.py), and choose exit
codes (terminal.py).
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from minitri.base.diagnostics import CompileError, printable, suggest
from minitri.cli import terminal
from minitri.cli.check import error_text
from minitri.cli.inputs import make_inputs
from minitri.cli.request import Request
from minitri.explain import explain as page
from minitri.hardware.targets import INTERPRETER, StageUnavailable, Target
from minitri.pipeline import PassRecord
from minitri.profile import Profile, profile
from minitri.program import Lowered
from minitri.runtime.call_binding import bind
from minitri.runtime.launch import require_gpu, target_of
from minitri.trust import check_passes as trust

# ---- compile -------------------------------------------------------------------------------


def compile(
    request: Request, emit: Sequence[str], print_after: str | None, directory: str | None, as_json: bool
) -> int:
    """Runs `minitri compile`: prints the requested stages. For each requested pass, prints the program after the pass.

    If `directory` is given, the stages are written to files in this directory, and are not printed. Returns the exit
    code, which is 3 if a stage is not available on this machine.
    """
    low = request.lower()
    everything = "all" in emit or (directory is not None and not emit)
    stages = low.stages if everything else emit or (() if print_after else ("triton",))
    with terminal.progress("compile"):
        passes = _passes(low, print_after) if print_after else []
    texts, missing = _texts(low, stages)
    if as_json:
        out: dict[str, Any] = {"stages": texts, "target": low.target, "sizes": request.sizes}
        out |= {"passes": list(map(asdict, passes))} if passes else {}
        terminal.show_json(out | ({"error": missing.as_dict()} if missing else {}))
    else:
        shown = [(f"after {p.name}", p.stage, p.after) for p in passes]
        shown += [(s, s, text) for s, text in texts.items() if directory is None]
        _show(shown, titles=len(shown) > 1 or bool(passes))
    if directory is not None:
        terminal.write_files(directory, texts)
    if missing is not None and not as_json:
        terminal.note(terminal.rendered(missing))
    return terminal.exit_code(missing) if missing else 0


def _texts(low: Lowered, stages: Sequence[str]) -> tuple[dict[str, str], CompileError | None]:
    """Returns the texts of the available stages, and the error of the first unavailable stage (None if all are
    available).
    """
    texts: dict[str, str] = {}
    missing: CompileError | None = None
    for stage in terminal.track("compile", stages):
        try:
            texts[stage] = low[stage]
        except StageUnavailable as error:
            missing = missing or error
    return texts, missing


def _passes(low: Lowered, name: str) -> list[PassRecord]:
    """Returns the records of all passes, or of the pass with the given name."""
    chosen = [p for p in low.passes if name in ("all", p.name)]
    if not chosen:
        names = [p.name for p in low.passes]
        help = suggest(name, names) or f"there is {', '.join(names)}"
        raise click.UsageError(f"there is no pass `{name[:40]}`: {help}")
    return chosen


def _show(parts: Sequence[tuple[str, str, str]], titles: bool) -> None:
    """Prints several texts, with or without a title above each text."""
    lines: list[str] = []
    for title, stage, text in parts:  # the stage decides the colours
        lines += [terminal.heading(title)] if titles else []
        lines.append(terminal.highlighted(stage, text.rstrip("\n")))
    if lines:
        terminal.page("\n".join(lines))


# ---- run -----------------------------------------------------------------------------------


def run(request: Request, given: Mapping[str, str], stage: str | None, seed: int, check: bool, as_json: bool) -> int:
    """Runs a program once, and prints the result, the time, and how the result compares with the reference.

    Returns the exit code, which is 1 if the check fails.
    """
    program = request.program(untyped=list(given))
    inputs = make_inputs(program.function, given, request.sizes, seed)
    if inputs.assumed:
        terminal.note(f"sizes not given: {terminal.sizes_text(inputs.assumed)} (set them with -D)")
    start = time.perf_counter()
    with terminal.progress("run"):
        result = program.run(stage, *inputs.arrays) if stage else program(*inputs.arrays)
    seconds = time.perf_counter() - start
    outputs = [np.asarray(array) for array in (result if isinstance(result, tuple) else (result,))]
    if check and request.start not in (None, "graph") and request.against is None:
        what = f"a program that begins at `{request.start}`"
        terminal.note(f"not checked: {what} has no reference (give it --against FILE)")
        check = False
    passes = ("interpreter", "gpu")  # what this machine runs; `minitri check` tries kernels for other targets
    with terminal.progress("check"):
        report = trust.check(program, bind(program.function, inputs.arrays, {}), passes) if check else None
    if as_json:
        made = [{"dtype": a.dtype.name, "shape": a.shape, "values": a.tolist()} for a in outputs]
        checked = None if report is None else report.as_dict()
        out = {"outputs": made, "stage": stage, "sizes": inputs.sizes, "seconds": seconds, "check": checked}
        terminal.show_json(out)
    else:
        _show_outputs(outputs)
        where = f" (stage {stage})" if stage else ""
        terminal.note(f"time: {seconds * 1e3:.1f} ms, compilation included{where}")
        if report is not None and report.ok:
            terminal.note(f"check: ok at {len({r.stage for r in report.ran})} stages, {error_text(report)}")
        elif report is not None:
            terminal.note(f"{report}\ncheck: {report.first}")
    return int(report is not None and not report.ok)


def _show_outputs(outputs: Sequence[np.ndarray[Any, Any]]) -> None:
    for number, array in enumerate(outputs):
        if len(outputs) > 1:
            terminal.echo(terminal.heading(f"output {number}"))
        wide = array.astype(np.float32) if array.dtype.kind not in "biuf" else array  # numpy cannot print bf16
        text = np.array2string(wide, precision=4, suppress_small=True, threshold=1000, max_line_width=terminal.width())
        click.echo(f"{array.dtype.name}{list(array.shape)}\n{text}")


# ---- explain, bench ------------------------------------------------------------------------


def explain(request: Request, measure: bool) -> None:
    """Prints which decisions the compiler made about a program, and why.

    If `measure` is true, also prints the measured time of each kernel.
    """
    with terminal.progress("explain"):
        request, times = _measured(request) if measure else (request, None)
        text = page(request.lower().compilation, times and times.measured).rstrip("\n")
    terminal.page(text if times is None else f"{text}\n\n{times}")


def explore(
    request: Request, path: str | None, compare: Mapping[str, str], panes: Sequence[str], measure: bool, serve: bool,
    port: int | None,
) -> None:  # fmt: skip
    """Writes the explorer's page (HTML) of a program to a file. If `serve` is true, serves the page to browsers.

    `compare`: different settings for a second compilation, such as another target. The page then shows both programs
        side by side.
    """
    request = request.as_shared()
    if serve:
        return _serve(request, port)
    from minitri.explore.document import document
    from minitri.explore.page import Page

    request, times = _measured(request) if measure else (request, None)
    first = request.lower().compilation
    second = request.changed(compare).lower().compilation if compare else None
    with terminal.progress("explore", 1) as tell:
        shown = document(first, second, compare=compare, measured=times and times.measured, panes=panes, tell=tell)
        html = Page(shown).html
    name = path or f"{shown['title']}.html"
    if name == "-":
        click.echo(html, nl=False)
    else:
        terminal.write_file(Path(name), html)
    if missing := next((s["missing"] for s in shown["programs"][0]["stages"] if "missing" in s), None):
        terminal.note(f"without the stages that are not available here: {missing}")
    if name != "-":
        terminal.note(printable(f"wrote {name}: open it in a browser"))


def _measured(request: Request) -> tuple[Request, Profile]:
    """Measures each kernel of a request, and returns the request and the times."""
    wanted = None if request.target is None else Target.parse(request.target)
    if wanted != INTERPRETER:
        require_gpu()
    program = request.program()
    inputs = make_inputs(program.function, {}, request.sizes)  # random arrays
    if inputs.assumed:
        raise click.UsageError(f"--measure takes all sizes: -D {terminal.sizes_text(inputs.assumed)}")
    if wanted == INTERPRETER:
        return request, profile(program, *inputs.arrays)
    here = target_of("cuda")
    if wanted is not None and (wanted.kind, wanted.arch) != (here.kind, here.arch):
        raise click.UsageError(f"--measure runs on this machine's GPU, which is {here}")
    return replace(request, target=str(here)), profile(program, *program.on_gpu(*inputs.arrays))


def _serve(request: Request, port: int | None) -> None:
    """Serves the explorer's page to browsers on this machine, until the user interrupts the command."""
    from minitri.explore.serve import PORT, listening

    try:
        server = listening(port, request.shown())
    except OSError as error:
        raise click.UsageError(str(error)) from None
    click.echo(server.address)
    if port is None and server.server_port != PORT:
        terminal.note(f"port {PORT} is taken: links of earlier runs do not lead here")
    terminal.note("serving this address to this machine; Ctrl-C ends it")
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()


def bench(
    cases: Sequence[str], json: str | None, plot: str | None, figures: str | None, tune: bool, host: bool, ablate: bool,
    programs: int | None, seed: int, dtype: str, shrink: float, budget: float | None,
) -> int:  # fmt: skip
    """Runs `minitri bench`: measures cases of the benchmark, measures random programs, or draws figures.

    With `programs=20`, measures 20 random programs. With `figures` (the results file of an earlier run), draws figures
    from this file and measures nothing. If neither `programs` nor `figures` is given, measures the benchmark cases in
    `cases`. Returns the exit code.
    """
    from minitri.bench import random_run, run as benchmarks
    from minitri.bench.roofline_plot import plot_file

    if figures is not None:
        if plot is None or cases or json or tune or host or ablate or programs:
            raise click.UsageError("--from takes --plot and nothing else: it draws figures, and measures none")
        plot_file(figures, plot)
        return 0
    if programs is not None:
        if cases or plot or tune or host or ablate:
            raise click.UsageError("--random takes --seed, --dtype, --shrink, --budget and --json, and nothing else")
        return random_run.main(random_run.Session(programs, seed, dtype, shrink, budget, json))
    return benchmarks.main(cases, json, plot, tune, host, ablate)


# ---- fuzz ------------------------------------------------------------------------------------


def fuzz(
    budget: float, programs: int | None, seed: int, jobs: int | None, on: str, directory: str | None,
    replay: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Runs `minitri fuzz`: checks random programs for `budget` seconds. If `programs` is given, the command stops after
    this number of programs, even if time is left.

    If `replay` names a file that an earlier run wrote, only the program in this file is checked again.

    Returns the exit code, which is 1 if the check of some program fails.
    """
    from minitri.fuzz.session import Session, Summary, fuzz as run_session

    if replay is not None:
        return _replay(Path(replay), on, as_json)
    if on == "gpu":
        require_gpu()
    session = Session(budget, seed, jobs or os.cpu_count() or 1, on, Path(directory) if directory else None, programs)
    with terminal.progress("fuzz", budget if programs is None else programs) as tell:

        def said(s: Summary) -> None:
            done = s.seconds if programs is None else s.counts["programs"]
            counts = ", ".join(f"{s.counts[name]} {name}" for name in ("programs", "stages", "pairs"))
            tell(done, f"{counts}, {len(s.found)} disagreements")

        summary = run_session(session, said)
    if as_json:
        terminal.show_json(summary.as_dict())
    else:
        click.echo(str(summary))
    return int(bool(summary.found))


def _replay(path: Path, on: str, as_json: bool) -> int:
    """Checks a program from a file of `minitri fuzz`, and returns the exit code."""
    from minitri.fuzz.trial import VARIANTS, examined, read

    case = read(path.read_text(encoding="utf-8"))
    with terminal.progress("fuzz"):
        found = examined(case, VARIANTS[on], shrinking=True, on=on).case
    if as_json:
        terminal.show_json({"ok": found is None, "guilty": found and found.guilty, "relation": found and found.relation,
                   "said": found and found.said, "sizes": case.program.sizes})  # fmt: skip
    else:
        click.echo(case.program.text.rstrip("\n"))
        terminal.note(f"failed: {found.said}" if found else "ok: every pass is right, and every related program agrees")
    return int(found is not None)
