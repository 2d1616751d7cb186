"""Reads the command line of `minitri`.

This module reads the commands and their options from the table commands.toml. Each command calls one function in
command_functions.py, check.py, demo.py or doctor.py. The module main.py imports no library except click, so `minitri
--help` answers at once. The function of a command imports the compiler, numpy and rich only when the command needs
them.

The exit code 0 means success, and 1 means an error in the program or a failed check. The exit code 2 means a usage
error, and 3 means that this machine cannot make a stage.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from minitri import __version__
from minitri.base.diagnostics import CODES, printable, suggest
from minitri.base.resource_limits import limits
from minitri.base.toml_tables import table_beside
from minitri.cli import terminal

NAMES = tuple(terminal.STAGES)
STAGES = f"{', '.join(NAMES[:-1])} ({NAMES[-1]})"
RUNNABLE = (*NAMES[: NAMES.index("triton") + 1], "gpu")
READABLE = NAMES[1 : NAMES.index("triton")]


# ---- values --------------------------------------------------------------------------------


def pair(value: str) -> tuple[str, str]:
    """Reads an option of the form `NAME=VALUE`."""
    name, equals, text = (part.strip() for part in value.partition("="))
    if not (equals and text and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII)):
        raise click.BadParameter(f"`{value[:60]}` is not NAME=VALUE")
    return name, text


def size(value: str) -> Any:
    """Reads a size of the form `M=4096`. For the pack `*B`, the form `B=8,16` gives the sizes of two axes."""
    return resolve_name("minitri.cli.inputs:parse_size")(value)


def duration(value: str) -> float:
    """Reads a duration such as `90s`, `10m` or `1.5h`, and returns the number of seconds."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", value.strip(), re.ASCII)
    if not found:
        raise click.BadParameter(f"`{value[:40]}` is not a duration: write 90s, 10m or 1h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def words(value: str) -> tuple[str, ...]:
    """Reads a list of names of the form `a,b,c`. A name that occurs in the list twice is returned once."""
    return tuple(dict.fromkeys(word.strip() for word in value.split(",") if word.strip()))


def once(ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Makes a dictionary from (name, value) pairs: one pair for each occurrence of an option on the command line. If a
    name occurs twice, raises a usage error.
    """
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"`{name}` is given twice", ctx, param)
    return dict(pairs)


class ProgramFile(click.Path):
    """The type of a command-line argument that names an existing file, or is `-` for standard input.

    If the argument names no file, but looks like an expression, the error message suggests the option -e.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            text = str(value)
            if Path(text).exists() or text.endswith(".mt") or not re.search(r"[-+*/@()\[\]<>=\s]", text):
                raise
            message = f"there is no file `{text[:60]}`; if it is an expression, write -e '{text[:60]}'"
            raise click.BadParameter(message, ctx, param) from None


FILE = ProgramFile(exists=True, dir_okay=False, allow_dash=True)


# ---- options that can end a command early ------------------------------------------------------


def colour(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Stores the value of the option --color in click's context, from which click and terminal.py read the value."""
    if value is not None:
        ctx.color = {"always": True, "never": False}.get(value)


def code_or_file(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Returns the argument of `minitri explain` if the argument is the name of a file.

    If the argument is an error code such as MT0203, the function prints the page about this error and ends the command.
    """
    if value is None or not re.fullmatch(r"MT\d*", value, re.ASCII | re.IGNORECASE):
        return value and FILE.convert(value, param, ctx)
    from minitri.errors.pages import PAGES, as_text

    code = value.upper()
    if code not in CODES:
        raise click.UsageError(f"no error code {code[:20]}; {suggest(code, CODES) or 'they look like MT0203'}")
    terminal.page(as_text(code, PAGES[code]).rstrip("\n"))
    ctx.exit()


# ---- the table of options --------------------------------------------------------------------


PAIRS: dict[str, Any] = {"multiple": True, "callback": once}
# For each kind of option in commands.toml, the keyword arguments for click.
KINDS: dict[str, dict[str, Any]] = {
    "colour": {"type": click.Choice(("auto", "always", "never")), "callback": colour},
    "pairs": {"type": pair, "metavar": "NAME=VALUE", **PAIRS},
    "sizes": {"type": size, "metavar": "NAME=SIZE", **PAIRS},
    "words": {"type": words, "default": ""},
    "duration": {"type": duration},
    "ratio": {"type": click.FloatRange(0, 100), "metavar": "RATIO", "default": 0.0},
    "readable": {"type": click.Choice(READABLE), "metavar": "STAGE"},
    "runnable": {"type": click.Choice(RUNNABLE)},
    "file": {"type": FILE, "required": False},
    "code or file": {"callback": code_or_file, "required": False},
    "old file": {"type": click.Path(exists=True, dir_okay=False), "metavar": "FILE"},
}
TABLE = table_beside(__file__, "commands.toml")
OPTIONS = TABLE.pop("options")


def parameter(name: str, command: Mapping[str, Any]) -> click.Parameter:
    """Describes the option or argument `name` of a command for click.

    The file commands.toml has the settings of each option and argument, such as the help text. The table `options` has
    the settings for all commands, and the table of one command can change the settings. If `name` has no flag such as
    "--json" in commands.toml, `name` is a positional argument.
    """
    row = {**OPTIONS.get(name, {}), **command.get(name, {})}
    settings = {**KINDS.get(row.pop("kind", ""), {}), **row}
    if "choices" in row:
        settings["type"] = click.Choice(settings.pop("choices"))
    if "range" in row:
        settings |= {"type": click.IntRange(*settings.pop("range")), "metavar": "N"}
    if "flags" not in row:
        return click.Argument([name], **settings)
    help = settings.pop("help").format(stages=STAGES, readable=", ".join(READABLE))
    return click.Option([*settings.pop("flags"), name], help=help, **settings)


# ---- commands --------------------------------------------------------------------------------


class Commands(click.Group):
    """The group of all commands of `minitri`.

    click's error messages contain parts of the command line. Control characters are removed from click's error
    messages, so that the terminal does not obey such characters.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            lines = error.format_message().split("\n")
            raise click.UsageError("\n".join(map(printable, lines)), error.ctx) from None


HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=Commands, context_settings=HELP, params=[parameter("color", {})])
@click.version_option(__version__, prog_name="minitri", message="%(prog)s %(version)s", help="Show it.")
def main() -> None:
    """A small array language, compiled to Triton one visible step at a time.

    A program is a .mt FILE, `-` for standard input, or -e EXPR with types:

    \b
        minitri compile -e "relu(x @ w)" -t "x=f16[M,K]" -t "w=f16[K,N]" --emit=tile
        minitri run -e "softmax(x)" -t "x=f32[M,N]" -D M=4 -i x=randn
    """


def add_command(name: str, row: Mapping[str, Any]) -> None:
    """Adds a command that is described by a row of commands.toml.

    The field `where` of the row names the function that runs the command. Without a field `where`, the command runs the
    function of command_functions.py that has the command's name. The function that runs the command is imported only
    when the command runs. The function that runs the command gets the values of the command's options as arguments. If
    the command takes a program, the first argument of the function is a `Request`. The function that runs the command
    returns the exit code; None stands for 0.
    """

    def run(**given: Any) -> None:
        with terminal.reported(given.get("as_json", False)), allowed(given.pop("allowed", {})):
            request = _request(given) if "expression" in given else ()
            raise SystemExit(resolve_name(row.get("where", f"minitri.cli.command_functions:{name}"))(*request, **given))

    params = [parameter(p, row) for p in (*row["takes"], "color")]
    main.add_command(click.Command(name, callback=run, params=params, help=row["help"]))


def _request(given: dict[str, Any]) -> tuple[Any]:
    """Moves the options about the program, target and passes from `given` into a `Request`."""
    from minitri.cli.request import Request

    if given.pop("level") == "0":
        given["without"] = (*given["without"], "all")
    return (Request(**{field.name: given.pop(field.name) for field in fields(Request) if field.name in given}),)


def allowed(given: Mapping[str, str]) -> AbstractContextManager[object]:
    """Returns a context manager in which the compiler's limits have the values that the option --limit gave."""
    for name, text in given.items():
        if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
            raise click.UsageError(f"--limit {name}: `{text[:40]}` is not a natural number")
    return limits(**{name: int(text) for name, text in given.items()})


for name, row in TABLE.items():
    add_command(name, row)
