"""The functions behind the commands, except `run` and `check` (run_and_check.py).

In: a `Request` (which program, which sizes, which target) and the options of one command. Out:
text or JSON by way of console.py. Nothing here compiles: every line asks the same `Program`
that Python users have, so the command line can do nothing that a script could not.

Left out: arguments (main.py), the program that they name (request.py), inputs (inputs.py), exit codes (console.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import minitri as mt
from minitri.base.diagnostics import CODES, CompileError, printable, suggest
from minitri.cli import console

if TYPE_CHECKING:
    from minitri.cli.request import Request
    from minitri.pass_manager import PassRecord
    from minitri.profile import Profile
    from minitri.program import Lowered

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
            click.echo(console.heading(title))
        console.show(stage, text)


# ---- explain, bench ------------------------------------------------------------------------


def explain_code(code: str) -> None:
    """The page of an error code; usage error if there is none."""
    from minitri.errors.pages import PAGES, as_text

    code = code.upper()
    if code not in CODES:
        raise click.UsageError(f"no error code {code[:20]}; {suggest(code, CODES) or 'they look like MT0203'}")
    click.echo(as_text(code, PAGES[code]).rstrip("\n"))


def explain(request: Request, measure: bool) -> None:
    """The page of a program; with `measure` the table of its kernels too."""
    from minitri.explain import explain as page

    request, profile = _measured(request) if measure else (request, None)
    click.echo(page(request.lower().compilation, profile and profile.measured).rstrip("\n"))
    if profile is not None:
        click.echo(f"\n{profile}")


def explore(
    request: Request, output: str | None, compare: Mapping[str, str], panes: Sequence[str], measure: bool, serve: bool,
    port: int,
) -> None:  # fmt: skip
    """Writes the explorer's page of a program, or of two that differ in what `compare` says; or serves an editor."""
    if serve:
        return _serve(request, port)
    from minitri.explore.document import Shown, document
    from minitri.explore.page import Page

    request, profile = _measured(request) if measure else (request, None)
    first = request.lower().compilation
    second = request.changed(compare).lower().compilation if compare else None
    shown = document(first, second, shown=Shown(compare, profile and profile.measured, panes))
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
    from minitri.cli.inputs import make_inputs
    from minitri.profile import profile
    from minitri.runtime.devices import require_gpu, target_of

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
        from minitri.runtime.devices import require_gpu

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
