"""The arguments of `minitri`, and nothing else.

In: a command line. Out: a call of one function in commands.py, run_and_check.py or doctor.py. This file imports only
click, so `--help` answers at once. Each command imports the compiler, numpy and rich when it needs them.

Exit codes: 0 fine, 1 a diagnostic or a failed check, 2 usage, 3 not available here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minitri.base.diagnostics import printable
from minitri.cli.console import reported

if TYPE_CHECKING:
    from minitri.cli.request import Request

STAGES = "ast, graph, graph.simplified, kernels, tile, tile.masked, triton, ttir, ttgir, llir, ptx, sass (amdgcn)"
READABLE = ("graph", "graph.simplified", "kernels", "tile", "tile.masked")
RUNNABLE = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "triton", "gpu")

Command = Callable[..., None]


# ---- values --------------------------------------------------------------------------------


def pair(value: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, text = (part.strip() for part in value.partition("="))
    if not (equals and text and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII)):
        raise click.BadParameter(f"`{value[:60]}` is not NAME=VALUE")
    return name, text


def size(value: str) -> Any:
    """`M=4096`, or `B=8,16` for the axes of `*B`."""
    from minitri.cli.inputs import InputError, parse_size

    try:
        return parse_size(value)
    except InputError as error:
        raise click.BadParameter(str(error)) from None


def duration(value: str) -> float:
    """`90s`, `10m`, `1.5h`, in seconds."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", value.strip(), re.ASCII)
    if not found:
        raise click.BadParameter(f"`{value[:40]}` is not a duration: write 90s, 10m or 1h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def words(value: str) -> tuple[str, ...]:
    """`a,b,c`."""
    return tuple(dict.fromkeys(word.strip() for word in value.split(",") if word.strip()))


def once(ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Pairs as a dictionary; a name given twice is a mistake."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"`{name}` is given twice", ctx, param)
    return dict(pairs)


# ---- options that several commands share -----------------------------------------------------


class ProgramFile(click.Path):
    """A file that is there, or `-`. An expression in its place is a common slip."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, allow_dash=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            text = str(value)
            if Path(text).exists() or text.endswith(".mt") or not re.search(r"[-+*/@()\[\]<>=\s]", text):
                raise
            message = f"there is no file `{text[:60]}`; if it is an expression, write -e '{text[:60]}'"
            raise click.BadParameter(message, ctx, param) from None


FILE = click.argument("file", required=False, type=ProgramFile())
SIZE = click.option(
    "-D", "--size", "sizes", type=size, multiple=True, callback=once, metavar="NAME=SIZE",
    help="Size of a dimension, as in M=4096, or B=8,16 for the axes of *B. Repeatable.",
)  # fmt: skip
LIMITS = click.option(
    "--limit", "allowed", type=pair, multiple=True, callback=once, metavar="NAME=N",
    help="Raise a limit, as in source=200000 or seconds=600, for a program you trust. Repeatable.",
)  # fmt: skip
PROGRAM = (
    FILE,
    click.option("-e", "--expression", metavar="EXPR", help="The program is this expression."),
    click.option(
        "-t", "--type", "types", type=pair, multiple=True, callback=once, metavar="NAME=TYPE",
        help="Type of a parameter of EXPR, as in x=f32[M,N]. Repeatable.",
    ),
    click.option(
        "--from", "start", type=click.Choice(READABLE), metavar="STAGE",
        help=f"FILE is the text of a stage, perhaps edited: go on from there. One of {', '.join(READABLE)}.",
    ),
    click.option("--entry", metavar="NAME", help="The function to compile; the last one by default."),
    SIZE,
    LIMITS,
)  # fmt: skip
AGAINST = click.option(
    "--against", metavar="FILE", help="With --from: the program that the text came from, or its graph."
)
TARGET = click.option(
    "--target", metavar="TARGET", help="cuda:80, cuda:90, cuda:100, hip:gfx942, ..., or a GPU: a100, h200."
)
WITHOUT = click.option(
    "--without", multiple=True, metavar="PASS", help="Leave out an optional pass, or `all` of them. Repeatable."
)
LEVEL = click.option(
    "-O",
    "level",
    type=click.Choice(("0", "1")),
    default="1",
    help="-O0 leaves out every optional pass; the default is -O1.",
)
MEASURE = click.option(
    "--measure", is_flag=True,
    help="Time each kernel on this machine's GPU (or in Triton's interpreter: --target=interpreter), for the roofline.",
)  # fmt: skip
INPUTS = (
    click.option(
        "-i", "--input", "given", type=pair, multiple=True, callback=once, metavar="NAME=VALUE",
        help="x=array.npy, x=randn, x=arange, x=zeros, x=ones, x=randint:100 or x=3.5. Repeatable.",
    ),
    click.option("--seed", metavar="N", default=0, show_default=True, type=click.IntRange(min=0), help="Of random inputs."),
)  # fmt: skip
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")


def options(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Adds options in the order in which --help shows them, and the handling of errors."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def guarded(**given: Any) -> None:
            with reported(given.get("as_json", False)), allowed(given.pop("allowed", {})):
                command(**given)

        return reduce(lambda c, decorator: decorator(c), reversed(decorators), guarded)

    return decorate


@contextmanager
def allowed(given: dict[str, str]) -> Iterator[None]:
    """Runs a command under the limits that --limit raises."""
    if not given:
        yield
        return
    from minitri.base.limits import limits

    with limits(**{name: _number(name, text) for name, text in given.items()}):
        yield


def _number(name: str, text: str) -> float:
    if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
        raise click.UsageError(f"--limit {name}: `{text[:40]}` is not a natural number")
    return int(text)


def request(given: dict[str, Any]) -> Request:
    """Takes the options of PROGRAM (and --target, --without) out of a command's options."""
    from minitri.cli.request import Request

    names = ("file", "expression", "types", "start", "against", "entry", "sizes", "target", "without")
    if given.pop("level", "1") == "0":
        given["without"] = (*given.get("without", ()), "all")
    return Request(**{name: given.pop(name) for name in names if name in given})


def version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        from minitri.doctor import version

        click.echo(f"minitri {version('minitri') or '(not installed)'}")
        ctx.exit()


# ---- commands --------------------------------------------------------------------------------


class Commands(click.Group):
    """The commands. What click says of wrong usage shows nothing raw of what was typed."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            message = error.format_message()
            if all(c.isprintable() or c == "\n" for c in message):
                raise
            raise click.UsageError(printable(message), error.ctx) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=version, help="Show it.")
def main() -> None:
    """A small array language, compiled to Triton one visible step at a time.

    A program is a .mt FILE, `-` for standard input, or -e EXPR with types:

    \b
        minitri compile -e "relu(x @ w)" -t "x=f16[M,K]" -t "w=f16[K,N]" --emit=tile
        minitri run -e "softmax(x)" -t "x=f32[M,N]" -D M=4 -i x=randn
    """


@main.command("compile")
@options(
    *PROGRAM,
    click.option("--emit", type=words, default="", metavar="STAGE,...", help=f"all, or of {STAGES}."),
    TARGET,
    WITHOUT,
    LEVEL,
    click.option("--print-after", metavar="PASS", help="Show the program after a pass, or after `all`."),
    click.option("-o", "--output", "directory", metavar="DIR", help="Write one file a stage into DIR."),
    JSON,
)
def compile_command(**given: Any) -> None:
    """Show the program at any stage (the Triton source by default)."""
    from minitri.cli import commands

    commands.compile(request(given), **given)


@main.command("run")
@options(
    *PROGRAM,
    AGAINST,
    *INPUTS,
    WITHOUT,
    LEVEL,
    click.option("--stage", type=click.Choice(RUNNABLE), help="Run the program as it is at this stage."),
    click.option("--check/--no-check", default=True, show_default=True, help="Compare with the reference."),
    JSON,
)
def run_command(**given: Any) -> None:
    """Run the program once: its result, the time, and a check."""
    from minitri.cli import run_and_check

    run_and_check.run(request(given), **given)


@main.command("check")
@options(*PROGRAM, AGAINST, *INPUTS, WITHOUT, LEVEL, JSON)
def check_command(**given: Any) -> None:
    """Compare every pass with the reference, at several ragged sizes."""
    from minitri.cli import run_and_check

    run_and_check.check(request(given), **given)


@main.command("explain")
@options(click.argument("what", required=False, metavar="[CODE|FILE]"), *PROGRAM[1:], TARGET, WITHOUT, LEVEL, MEASURE)
def explain_command(what: str | None, measure: bool, **given: Any) -> None:
    """Explain an error code, or what was fused in a program and why."""
    from minitri.cli import commands

    if what is not None and re.fullmatch(r"MT\d*", what, re.ASCII | re.IGNORECASE):
        commands.explain_code(what)
    else:
        given["file"] = None if what is None else ProgramFile().convert(what, None, None)
        commands.explain(request(given), measure)


@main.command("explore")
@options(
    *PROGRAM,
    TARGET,
    WITHOUT,
    LEVEL,
    click.option(
        "--compare", type=pair, multiple=True, callback=once, metavar="NAME=VALUE",
        help="Beside it the same with target=cuda:80, without=fusion, warps=8, blocks=i:32, M=64, file=other.mt, entry=... Repeatable.",
    ),
    click.option("--panes", type=words, default="", metavar="PANE,...", help="What is open: player, ledger, passes, a stage, ..."),
    MEASURE,
    click.option("-o", "--output", metavar="FILE", help="The file to write, `-` for standard output; NAME.html if none is given."),
    click.option("--serve", is_flag=True, help="Serve it to this machine, with an editor, instead of writing a file."),
    click.option("--port", metavar="N", type=click.IntRange(0, 65535), default=0, help="Where to serve; any free one by default."),
)  # fmt: skip
def explore_command(serve: bool, port: int, **given: Any) -> None:
    """Write one HTML file that shows all stages, and what belongs together."""
    from minitri.cli import commands

    if serve:
        commands.serve(request(given), port)
    else:
        commands.explore(request(given), **given)


@main.command("bench")
@options(
    click.argument("cases", nargs=-1),
    click.option("--json", "json", metavar="FILE", help="Write the figures to FILE as well."),
    click.option("--plot", metavar="FILE", help="Draw them, as SVG (needs matplotlib)."),
    click.option("--tune", is_flag=True, help="Measure schedules for every program too (effort quick)."),
    click.option("--host", is_flag=True, help="Measure host times and first results whatever the cases are."),
    click.option("--ablate", is_flag=True, help="Measure each optimisation: every case without it, over with it."),
)
def bench_command(cases: tuple[str, ...], json: str | None, plot: str | None, **settings: bool) -> None:
    """Measure programs against PyTorch on this machine's GPU.

    CASES: parts of their names, or kinds (`memory`, `attention`); all cases if there are none."""
    from minitri.cli import commands

    commands.bench(cases, json, plot, **settings)


@main.command("fuzz")
@options(
    click.option("--budget", type=duration, default="1m", show_default=True, help="How long: 90s, 10m, 1h."),
    click.option("--programs", metavar="N", type=click.IntRange(min=1), help="Stop after so many programs."),
    click.option("--seed", metavar="N", default=0, show_default=True, type=click.IntRange(min=0), help="The first seed."),
    click.option("--jobs", metavar="N", type=click.IntRange(1, 256), help="Processes; one a core by default."),
    click.option("--on", type=click.Choice(("cpu", "gpu")), default="cpu", show_default=True, help="Where kernels run."),
    click.option("-o", "--output", "directory", metavar="DIR", help="Write a file for each disagreement into DIR."),
    click.option(
        "--replay", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="Run such a file again."
    ),
    JSON,
)  # fmt: skip
def fuzz_command(**given: Any) -> None:
    """Try random programs at every pass and stage."""
    from minitri.cli import commands

    commands.fuzz(**given)


@main.command("demo")
@options(click.argument("file", type=ProgramFile()), SIZE)
def demo_command(file: str, sizes: dict[str, Any]) -> None:
    """A first look at a module: its main operation at every stage, and a checked run."""
    from minitri.cli import demo

    demo.demo(file, sizes)


@main.command("doctor")
@options(JSON)
def doctor_command(as_json: bool) -> None:
    """Say what is here and what is missing, with a fix for each."""
    from minitri import doctor

    doctor.main(as_json)
