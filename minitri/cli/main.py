"""The arguments of `minitri`, and nothing else.

In: a command line. Out: a call of one function in commands.py, demo.py or doctor.py. This file imports
only click, so `--help` answers at once. Each command imports the compiler, numpy and rich when it needs them.

Exit codes: 0 fine, 1 a diagnostic or a failed check, 2 usage, 3 not available here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click
from click import Argument, Choice, IntRange, Option

from minitri.base.diagnostics import CODES, printable, suggest
from minitri.cli.console import reported

STAGES = "ast, graph, graph.simplified, kernels, tile, tile.masked, tile.target, triton, ttir, ttgir, llir, ptx, sass (amdgcn)"
READABLE = ("graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target")
RUNNABLE = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton", "gpu")


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
        raise click.BadParameter(error.message) from None


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


# ---- what ends a command before it begins ------------------------------------------------------


def version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        from minitri.doctor import version

        click.echo(f"minitri {version('minitri') or '(not installed)'}")
        ctx.exit()


def code_or_file(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """A file. Of an error code the page is shown in its place; usage error if there is no such code."""
    if value is None or not re.fullmatch(r"MT\d*", value, re.ASCII | re.IGNORECASE):
        return value and ProgramFile().convert(value, param, ctx)
    from minitri.errors.pages import PAGES, as_text

    code = value.upper()
    if code not in CODES:
        raise click.UsageError(f"no error code {code[:20]}; {suggest(code, CODES) or 'they look like MT0203'}")
    click.echo(as_text(code, PAGES[code]).rstrip("\n"))
    ctx.exit()


# ---- options that several commands share -----------------------------------------------------


def pairs(*names: str, help: str, metavar: str = "NAME=VALUE", type: Callable[[str], Any] = pair) -> Option:
    """An option with a name and a value, which may be repeated."""
    return Option(names, type=type, multiple=True, callback=once, metavar=metavar, help=f"{help} Repeatable.")


FILE = Argument(["file"], required=False, type=ProgramFile())
SIZE = pairs(
    "-D", "--size", "sizes", type=size, metavar="NAME=SIZE",
    help="Size of a dimension, as in M=4096, or B=8,16 for the axes of *B.",
)  # fmt: skip
PROGRAM = (
    Option(["-e", "--expression"], metavar="EXPR", help="The program is this expression."),
    pairs("-t", "--type", "types", metavar="NAME=TYPE", help="Type of a parameter of EXPR, as in x=f32[M,N]."),
    Option(
        ["--from", "start"], type=Choice(READABLE), metavar="STAGE",
        help=f"FILE is the text of a stage, perhaps edited: go on from there. One of {', '.join(READABLE)}.",
    ),
    Option(["--entry"], metavar="NAME", help="The function to compile; the last one by default."),
    SIZE,
    pairs(
        "--limit", "allowed", metavar="NAME=N",
        help="Raise a limit, as in source=200000 or seconds=600, for a program you trust.",
    ),
)  # fmt: skip
TARGET = Option(
    ["--target"], metavar="TARGET", help="cuda:80, cuda:90, cuda:100, hip:gfx942, ..., or a GPU: a100, h200."
)
PASSES = (
    Option(["--without"], multiple=True, metavar="PASS", help="Leave out an optional pass, or `all` of them. Repeatable."),
    Option(
        ["-O", "level"], type=Choice(("0", "1")), default="1",
        help="-O0 leaves out every optional pass; the default is -O1.",
    ),
)  # fmt: skip
MEASURE = Option(
    ["--measure"], is_flag=True,
    help="Time each kernel on this machine's GPU (or in Triton's interpreter: --target=interpreter), for the roofline.",
)  # fmt: skip
SEED = partial(Option, ["--seed"], metavar="N", default=0, show_default=True, type=IntRange(min=0))
CALL = (
    FILE,
    *PROGRAM,
    Option(["--against"], metavar="FILE", help="With --from: the program that the text came from, or its graph."),
    pairs("-i", "--input", "given", help="x=array.npy, x=randn, x=arange, x=zeros, x=ones, x=randint:100 or x=3.5."),
    SEED(help="Of random inputs."),
    *PASSES,
)
JSON = Option(["--json", "as_json"], is_flag=True, help="One JSON object on standard output.")


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


def command(where: str, help: str, *params: click.Parameter) -> None:
    """Adds the command with the name of a function, and with these options in the order in which --help shows them.

    The function, `minitri.cli.commands:compile`, is imported when the command runs. It takes the values of the options,
    and before them a `Request`, if there are options of PROGRAM.
    """

    def run(**given: Any) -> None:
        with reported(given.get("as_json", False)), allowed(given.pop("allowed", {})):
            request = _request(given) if "expression" in given else ()
            resolve_name(where)(*request, **given)

    main.add_command(click.Command(where.partition(":")[2], callback=run, params=list(params), help=help))


def _request(given: dict[str, Any]) -> tuple[Any]:
    """Takes the options of PROGRAM (and --target, --without) out of a command's options."""
    from minitri.cli.request import Request

    names = ("file", "expression", "types", "start", "against", "entry", "sizes", "target", "without")
    if given.pop("level") == "0":
        given["without"] = (*given["without"], "all")
    return (Request(**{name: given.pop(name) for name in names if name in given}),)


@contextmanager
def allowed(given: dict[str, str]) -> Iterator[None]:
    """Runs a command under the limits that --limit raises."""
    if not given:
        yield
        return
    from minitri.base.limits import limits

    for name, text in given.items():
        if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
            raise click.UsageError(f"--limit {name}: `{text[:40]}` is not a natural number")
    with limits(**{name: int(text) for name, text in given.items()}):
        yield


command(
    "minitri.cli.commands:compile", "Show the program at any stage (the Triton source by default).",
    FILE, *PROGRAM,
    Option(["--emit"], type=words, default="", metavar="STAGE,...", help=f"all, or of {STAGES}."),
    TARGET, *PASSES,
    Option(["--print-after"], metavar="PASS", help="Show the program after a pass, or after `all`."),
    Option(["-o", "--output", "directory"], metavar="DIR", help="Write one file a stage into DIR."),
    JSON,
)  # fmt: skip
command(
    "minitri.cli.commands:run", "Run the program once: its result, the time, and a check.",
    *CALL,
    Option(["--stage"], type=Choice(RUNNABLE), help="Run the program as it is at this stage."),
    Option(["--check/--no-check"], default=True, show_default=True, help="Compare with the reference."),
    JSON,
)  # fmt: skip
command(
    "minitri.cli.commands:check", "Compare every pass with the reference, at several ragged sizes.",
    *CALL, JSON,
)  # fmt: skip
command(
    "minitri.cli.commands:explain", "Explain an error code, or what was fused in a program and why.",
    Argument(["file"], required=False, metavar="[CODE|FILE]", callback=code_or_file),
    *PROGRAM, TARGET, *PASSES, MEASURE,
)  # fmt: skip
command(
    "minitri.cli.commands:explore", "Write one HTML file that shows all stages, and what belongs together.",
    FILE, *PROGRAM, TARGET, *PASSES,
    pairs("--compare", help="Beside it the same with target=cuda:80, without=fusion, warps=8, blocks=i:32, M=64, file=other.mt, entry=..."),
    Option(["--panes"], type=words, default="", metavar="PANE,...", help="What is open: player, ledger, passes, a stage, ..."),
    MEASURE,
    Option(["-o", "--output"], metavar="FILE", help="The file to write, `-` for standard output; NAME.html if none is given."),
    Option(["--serve"], is_flag=True, help="Serve it to this machine, with an editor, instead of writing a file."),
    Option(["--port"], metavar="N", type=IntRange(0, 65535), default=0, help="Where to serve; any free one by default."),
)  # fmt: skip
command(
    "minitri.cli.commands:bench",
    "Measure programs against PyTorch on this machine's GPU.\n\n"
    "CASES: parts of their names, or kinds (`memory`, `attention`); all cases if there are none.",
    Argument(["cases"], nargs=-1),
    Option(["--json", "json"], metavar="FILE", help="Write the figures to FILE as well."),
    Option(["--plot"], metavar="FILE", help="Draw them, as SVG (needs matplotlib)."),
    Option(["--tune"], is_flag=True, help="Measure schedules for every program too (effort quick)."),
    Option(["--host"], is_flag=True, help="Measure host times and first results whatever the cases are."),
    Option(["--ablate"], is_flag=True, help="Measure each optimisation: every case without it, over with it."),
)
command(
    "minitri.cli.commands:fuzz", "Try random programs at every pass and stage.",
    Option(["--budget"], type=duration, default="1m", show_default=True, help="How long: 90s, 10m, 1h."),
    Option(["--programs"], metavar="N", type=IntRange(min=1), help="Stop after so many programs."),
    SEED(help="The first seed."),
    Option(["--jobs"], metavar="N", type=IntRange(1, 256), help="Processes; one a core by default."),
    Option(["--on"], type=Choice(("cpu", "gpu")), default="cpu", show_default=True, help="Where kernels run."),
    Option(["-o", "--output", "directory"], metavar="DIR", help="Write a file for each disagreement into DIR."),
    Option(["--replay"], metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="Run such a file again."),
    JSON,
)  # fmt: skip
command(
    "minitri.cli.demo:demo", "A first look at a module: its main operation at every stage, and a checked run.",
    Argument(["file"], type=ProgramFile()), SIZE,
)  # fmt: skip
command("minitri.doctor:doctor", "Say what is here and what is missing, with a fix for each.", JSON)
