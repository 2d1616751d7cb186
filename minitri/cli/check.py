"""`minitri check`: compares the result of every pass with the numpy reference, at several choices of sizes.

    $ minitri check -e "max(x, axis=1)" -t "x=f32[M, N]"
    M=7 N=33  ok       no error
    M=33 N=7  ok       no error
    M=0 N=0   skipped  max over an axis of size 0 has no value
    ok: every pass is within its bound at 2 choices of sizes

Most of the checked sizes are no multiples of block sizes, and some of them are 0 or 1. The command prints a line for
each choice of sizes, and a last line that says whether the check passed. At the first choice of sizes with a wrong
result, the command also prints a table of all passes. With `--verbose`, the command prints this table for every choice
of sizes that the program accepts. The exit code is 1 if a pass is wrong.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle

import click

from minitri.base.diagnostics import CompileError
from minitri.cli import terminal
from minitri.cli.inputs import Size, make_inputs, missing_sizes, read_files
from minitri.cli.request import Request
from minitri.program import Program
from minitri.trust.check_report import CheckReport

# Sizes for the dimensions. Each row is one choice: odd sizes, a block size, 1, 0, or a mixture.
SIZES = ((7, 33, 5), (33, 7, 17), (16,), (1,), (1, 33), (0,), (0, 7), (7, 0))
PACKS = ((2, 3), (), (3,))
# Error codes of programs that do not accept every size. For example, an axis of size 0 has no maximum, and 7 elements
# cannot be split into 4 equal pieces.
REFUSALS = ("MT0201", "MT0205", "MT0206", "MT0209", "MT0306")


Outcome = CheckReport | CompileError  # a CompileError if the program does not accept the sizes


def check(request: Request, given: Mapping[str, str], seed: int, verbose: bool, as_json: bool) -> int:
    """Runs `minitri check` for a program, and prints a line for each choice of sizes.

    Returns the exit code, which is 1 if a pass is wrong.
    """
    program = request.program(untyped=list(given))
    choices = _choices(program, given, request.sizes)
    names = [terminal.sizes_text(sizes) or program.name for sizes in choices]
    outcomes: list[Outcome] = []
    for number, (name, sizes) in enumerate(zip(names, choices), 1):
        with terminal.progress(f"check {number} of {len(names)}: {name}"):
            outcome = _tried(program, given, sizes, seed)
        if not as_json:
            terminal.echo(f"{name.ljust(max(map(len, names)))}  {_result(outcome)}")
            first_wrong = _is_wrong(outcome) and not any(map(_is_wrong, outcomes))
            if first_wrong or (verbose and isinstance(outcome, CheckReport)):
                terminal.echo(str(outcome).rstrip())
        outcomes.append(outcome)
    return _conclude(choices, outcomes, as_json)


def error_text(report: CheckReport) -> str:
    """Returns a text such as "error 1e-07, allowed 3e-06". Both numbers come from one row of the report: the row in
    which the error is largest, relative to the allowed error.

    The argument `report` must be a report in which no pass is wrong.
    """
    worst = max(report.ran, key=lambda r: r.max_error / (r.bound or 1))
    return f"error {worst.max_error:.2g}, allowed {worst.bound:.2g}" if worst.bound else "no error"


def _choices(program: Program, given: Mapping[str, str], sizes: Mapping[str, Size]) -> list[dict[str, Size]]:
    """Returns the choices of sizes to check, each with a size for every dimension."""
    function = program.function
    fixed: dict[str, Size] = {}
    read_files(function, given, fixed)
    fixed |= sizes  # sizes from files and options are the same in every choice
    # each row of `SIZES` gives the other sizes of one choice
    choices = [fixed | missing_sizes(function, fixed, row, axes) for row, axes in zip(SIZES, cycle(PACKS))]
    return [choice for number, choice in enumerate(choices) if choice not in choices[:number]]


def _tried(program: Program, given: Mapping[str, str], sizes: Mapping[str, Size], seed: int) -> Outcome:
    """Returns the report of a check with random arrays, or the CompileError if the program does not accept the
    sizes.
    """
    try:
        return program.check(*make_inputs(program.function, given, sizes, seed).arrays)
    except CompileError as error:
        if error.code in REFUSALS or () in sizes.values():
            return error
        raise


def _is_wrong(outcome: Outcome) -> bool:
    return isinstance(outcome, CheckReport) and not outcome.ok


def _result(outcome: Outcome) -> str:
    if isinstance(outcome, CompileError):
        return f"{click.style('skipped', fg='yellow')}  {outcome.message}"
    if not outcome.ok:
        return f"{click.style('WRONG', fg='red')}    {outcome.first}"
    return f"{click.style('ok', fg='green')}       {error_text(outcome)}"


def _conclude(choices: Sequence[Mapping[str, Size]], outcomes: Sequence[Outcome], as_json: bool) -> int:
    """Prints the verdict on all checked choices of sizes, and returns the exit code."""
    reports = [(sizes, found) for sizes, found in zip(choices, outcomes) if isinstance(found, CheckReport)]
    wrong = [(sizes, report) for sizes, report in reports if not report.ok]
    if isinstance(outcomes[-1], CompileError) and not reports:
        terminal.fail(outcomes[-1], as_json)  # the program accepts none of the sizes
    if as_json:
        terminal.show_json({"ok": not wrong, "rounds": [{"sizes": s, **r.as_dict()} for s, r in reports]})
    elif wrong:
        sizes, report = wrong[0]
        at = f" at {terminal.sizes_text(sizes)}" if sizes else ""
        terminal.echo(f"{click.style('failed', fg='red', bold=True)}: {report.first}{at}")
    else:
        count = f" at {len(reports)} choices of sizes" if len(reports) > 1 else ""
        terminal.echo(f"{click.style('ok', fg='green', bold=True)}: every pass is within its bound{count}")
        terminal.echo(reports[0][1].scope)
    return int(bool(wrong))
