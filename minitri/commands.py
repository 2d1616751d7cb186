"""What each command does, once its arguments are read.

In: a `Request` (which program, which sizes, which target) and the options of one command. Out:
text or JSON by way of console.py. Nothing here compiles: every line asks the same `Program`
that Python users have, so the command line can do nothing that a script could not.

Left out: arguments (cli.py), inputs (inputs.py), exit codes (console.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import minitri as mt
from minitri.console import as_dict, exit_code, fail, heading, note, show, show_json, write_files
from minitri.diagnostics import CODES, CompileError, suggest
from minitri.syntax import ast

if TYPE_CHECKING:
    from minitri.inputs import Inputs, Size

# Sizes that `check` gives the dimensions, one row a round: nothing, one, odd, a block, a mixture.
ROUNDS = ((7, 33, 5), (33, 7, 17), (16,), (1,), (1, 33), (0,), (0, 7))
PACKS = ((2, 3), (), (3,))


@dataclass(frozen=True, slots=True)
class Request:
    """The program that the arguments name, and what to lower it for."""

    file: str | None = None
    expression: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    entry: str | None = None
    sizes: Mapping[str, Size] = field(default_factory=dict)
    target: str | None = None
    without: tuple[str, ...] = ()

    def program(self, untyped: Sequence[str] = ()) -> Any:
        """Compiles it. `untyped`: more parameters of an expression; the call gives their types."""
        types: dict[str, Any] = dict(self.types)
        if self.expression is not None:
            types = {name: None for name in untyped} | types
        return mt.compile(self._source(), entry=self.entry, **types)

    def _source(self) -> str | Path:
        if (self.file is None) == (self.expression is None):
            raise click.UsageError("give one program: a file, `-` for standard input, or -e EXPR")
        if self.expression is not None:
            return self.expression
        assert self.file is not None
        return click.get_text_stream("stdin").read() if self.file == "-" else Path(self.file)

    def lower(self) -> Any:
        options = {} if self.target is None else {"target": self.target}
        return self.program().lower(without=self.without, **options, **self.sizes)


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


def _texts(low: Any, stages: Sequence[str]) -> tuple[dict[str, str], CompileError | None]:
    """The texts that can be had here, and why the first of the others cannot."""
    texts: dict[str, str] = {}
    missing: CompileError | None = None
    for stage in stages:
        try:
            texts[stage] = low[stage]
        except mt.StageUnavailable as error:
            missing = missing or error
    return texts, missing


def _passes(low: Any, name: str) -> list[Any]:
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
    request: Request, low: Any, texts: Mapping[str, str], missing: CompileError | None, passes: list[Any]
) -> dict[str, Any]:
    out: dict[str, Any] = {"stages": texts, "target": getattr(low, "target", request.target)}
    out["target"] = None if out["target"] is None else str(out["target"])
    out["sizes"] = request.sizes
    if passes:
        names = ("name", "stage", "before", "after", "seconds")
        out["passes"] = [{n: getattr(p, n) for n in names} for p in passes]
    if missing is not None:
        out["error"] = as_dict(missing)
    return out


# ---- run -----------------------------------------------------------------------------------


def run(
    request: Request, given: Mapping[str, str], stage: str | None, seed: int, check: bool, as_json: bool
) -> None:
    """Runs a program once: the result, the time, and how far it is from the reference."""
    program = request.program(untyped=list(given))
    inputs = _inputs(program, given, request.sizes, seed)
    if inputs.assumed:
        note(
            f"sizes not given: {_sizes_text({n: inputs.sizes[n] for n in inputs.assumed})} (set them with -D)"
        )
    start = time.perf_counter()
    result = program.run(stage, *inputs.arrays) if stage else program(*inputs.arrays)
    seconds = time.perf_counter() - start
    outputs = result if isinstance(result, tuple) else (result,)
    report = program.check(*inputs.arrays) if check else None
    if as_json:
        show_json(_ran(inputs, outputs, stage, seconds, report))
    else:
        _show_outputs(outputs)
        note(f"time: {seconds * 1e3:.1f} ms, compilation included" + (f" (stage {stage})" if stage else ""))
        if report is not None:
            _note_check(report)
    if report is not None and not report.ok:
        raise SystemExit(1)


def _inputs(program: Any, given: Mapping[str, str], sizes: Mapping[str, Size], seed: int) -> Inputs:
    from minitri.inputs import make_inputs

    with _usage():
        return make_inputs(entry_of(program), given, sizes, seed)


@contextmanager
def _usage() -> Iterator[None]:
    """What is wrong with --input and -D is wrong usage."""
    from minitri.inputs import InputError

    try:
        yield
    except InputError as error:
        raise click.UsageError(str(error)) from None


def entry_of(program: Any) -> ast.Function:
    return next(f for f in program.module.functions if f.name == program.name)


def _sizes_text(sizes: Mapping[str, Size]) -> str:
    """`M=7 B=2,3`: as -D takes them."""
    each = {n: s if isinstance(s, int) else ",".join(map(str, s)) for n, s in sizes.items()}
    return " ".join(f"{n}={s}" for n, s in each.items())


def _show_outputs(outputs: Sequence[Any]) -> None:
    import numpy as np

    for number, output in enumerate(outputs):
        array = np.asarray(output)
        if len(outputs) > 1:
            click.echo(heading(f"output {number}"))
        wide = array.astype(np.float32) if array.dtype.kind not in "biuf" else array  # bf16 has no printer
        text = np.array2string(wide, precision=4, suppress_small=True, threshold=1000, max_line_width=100)
        click.echo(f"{array.dtype.name}{list(array.shape)}\n{text}")


def _note_check(report: Any) -> None:
    for stage, ok, error, bound, remark in report.rows:
        word = "ok" if ok else "DIFFERS"
        note(f"check {stage}: {word}, error {error:.3g} of {bound:.3g}" + (f" ({remark})" if remark else ""))


def _ran(
    inputs: Inputs, outputs: Sequence[Any], stage: str | None, seconds: float, report: Any
) -> dict[str, Any]:
    import numpy as np

    arrays = [np.asarray(o) for o in outputs]
    return {
        "outputs": [{"dtype": a.dtype.name, "shape": a.shape, "values": a.tolist()} for a in arrays],
        "stage": stage, "sizes": inputs.sizes, "seconds": seconds,
        "check": None if report is None else _report_dict(report),
    }  # fmt: skip


def _report_dict(report: Any) -> dict[str, Any]:
    names = ("stage", "ok", "max_error", "bound", "note")
    rows = [dict(zip(names, row)) for row in report.rows]
    return {"ok": bool(report.ok), "first_bad": report.first_bad, "rows": rows}


# ---- check ---------------------------------------------------------------------------------


def check(request: Request, given: Mapping[str, str], seed: int, as_json: bool) -> None:
    """Every stage against the reference at several ragged sizes; exit 1 if one differs."""
    program = request.program(untyped=list(given))
    results: list[dict[str, Any]] = []
    refused: CompileError | None = None
    for sizes in _rounds(program, given, request.sizes):
        try:
            report = program.check(*_inputs(program, given, sizes, seed).arrays)
        except CompileError as error:
            if not _may_refuse(error, sizes):
                raise
            refused = error
            note(f"skipped {_sizes_text(sizes)}: {error.message}")
            continue
        results.append({"sizes": sizes, **_report_dict(report)})
        if not as_json:
            click.echo(heading(_sizes_text(sizes) or program.name))
            click.echo(str(report).rstrip("\n"))
    if not results and refused is not None:
        fail(refused, as_json)
    _conclude(results, as_json)


def _may_refuse(error: CompileError, sizes: Mapping[str, Size]) -> bool:
    """Some programs are not for all sizes: the largest of nothing, a quarter of 7, a matrix of no axes."""
    return error.code in ("MT0209", "MT0306") or () in sizes.values()


def _rounds(program: Any, given: Mapping[str, str], sizes: Mapping[str, Size]) -> Iterator[dict[str, Size]]:
    """The sizes of each round: those given, and a row of ROUNDS for the others."""
    from minitri.inputs import dimensions, file_sizes, is_pack

    function = entry_of(program)
    with _usage():
        sizes = {**file_sizes(function, given), **sizes}
    free = [n for n in dimensions(function) if n not in sizes]
    for row, axes in zip(ROUNDS, cycle(PACKS)):
        numbers = cycle(row)
        yield dict(sizes) | {n: axes if is_pack(function, n) else next(numbers) for n in free}
        if not free:
            return


def _conclude(results: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    bad = [r for r in results if not r["ok"]]
    if as_json:
        show_json({"ok": not bad, "rounds": results})
    elif bad:
        note(f"failed: {bad[0]['first_bad']} differs from the reference at {_sizes_text(bad[0]['sizes'])}")
    else:
        note(f"ok: every stage is within its bound at {len(results)} choices of sizes")
    if bad:
        raise SystemExit(1)


# ---- explain, bench ------------------------------------------------------------------------


def explain_code(code: str) -> None:
    """The page of an error code; usage error if there is none."""
    code = code.upper()
    if code not in CODES:
        raise click.UsageError(
            f"no error code {code[:20]}; {suggest(code, CODES) or 'they look like MT0203'}"
        )
    click.echo(f"{code}: {CODES[code]}")


def explain(request: Request) -> None:
    click.echo(str(request.program().explain(**request.sizes)).rstrip("\n"))


def bench(cases: Sequence[str], json: str | None) -> None:
    from minitri import bench as benchmarks

    benchmarks.main(list(cases), json)
