"""Prints the results of commands on stdout, prints errors and notes on stderr, and ends commands with an exit code.

    page(highlighted("tile", text))         prints the text in colour, through `less`
    with progress("check"):                 shows a progress bar, after two seconds
    with reported():                        an exception becomes a message and an exit code

Every command ends with one of these exit codes:

`0`: success.
`1`: an error or a failed check.
`2`: a usage error.
`3`: a stage is not available.
`130`: the user interrupted the command.

The one idea: the function `reported` turns every exception of a command into a message and an exit code, so no command
shows a traceback. A command uses the pager and the progress bar only on a terminal. The option `--color` decides
whether text is coloured. Without the option `--color`, the environment variables NO_COLOR and FORCE_COLOR decide. By
default, a command colours text only for a terminal. The libraries rich and pygments take long to import, so they are
imported only when they are used. Other files split a text into tokens (lexers.py), read the command line (main.py), and
run the commands (command_functions.py).
"""

import errno
import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from threading import Timer
from traceback import walk_tb
from typing import Any, NoReturn, TypeVar

import click

import minitri as mt
from minitri.base.diagnostics import CompileError, printable, report
from minitri.base.toml_tables import table_beside

STAGES = table_beside(__file__, "stages.toml")
HIGHLIGHTED = "minitri.cli.lexers:highlighted"  # imported when a text gets colour
WIDTH = 100  # columns of text that does not go to a terminal
MARGIN = 10  # columns beside the text of an excerpt: `  120 | `, and `…` at both ends
PATIENCE = 2.0  # seconds before a bar is shown
PLAIN_EVERY = 15.0  # seconds between two lines of progress, if stderr is not a terminal

T = TypeVar("T")
Tell = Callable[[float, str], None]


# ---- streams -------------------------------------------------------------------------------


def coloured(err: bool = False) -> bool:
    """Checks whether standard output (or standard error, if `err` is true) gets colour."""
    context = click.get_current_context(silent=True)
    if context is not None and context.color is not None:
        return context.color
    if os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "0") not in ("", "0") or _drawable(err)


def _drawable(err: bool = False) -> bool:
    """Checks whether standard output or standard error is a terminal that understands escape codes."""
    return os.environ.get("TERM") != "dumb" and (sys.stderr if err else sys.stdout).isatty()


def echo(text: str, err: bool = False) -> None:
    """Prints a text and a line end on standard output, or on standard error if `err` is true."""
    click.echo(text, err=err, color=coloured(err))


def width(err: bool = False) -> int:
    """Returns the number of columns of the terminal, or `WIDTH` if the output does not go to a terminal."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if (sys.stderr if err else sys.stdout).isatty() else WIDTH


def page(text: str) -> None:
    """Prints a text. If standard output is a terminal, the text goes through a pager, such as `less`.

    The environment variable MINITRI_PAGER names the pager. If MINITRI_PAGER is not set, the variable PAGER names the
    pager. If neither MINITRI_PAGER nor PAGER is set, the pager is `less`.

    If a text fits on the screen, `less` only prints the text and ends. If the name of the pager is empty or `cat`, no
    pager is used.
    """
    pager = os.environ.get("MINITRI_PAGER", os.environ.get("PAGER", "less")).strip()
    if pager in ("", "cat") or not _drawable():
        return echo(text)
    os.environ["PAGER"] = pager  # click reads it
    os.environ.setdefault("LESS", "FRX")  # `less` ends at once if all fits, keeps colour, leaves the text on the screen
    click.echo_via_pager(text, color=coloured())


# ---- colour --------------------------------------------------------------------------------


def highlighted(stage: str, text: str) -> str:
    """Returns the text of a stage, in colour if standard output has colour."""
    return resolve_name(HIGHLIGHTED)(lexer_name(stage), text) if coloured() else text


def diagnostic(text: str) -> str:
    """Returns the text of an error, in colour if standard error has colour."""
    return resolve_name(HIGHLIGHTED)("Diagnostic", text) if coloured(err=True) else text


def lexer_name(stage: str) -> str:
    """Returns the name of the lexer that colours the text of a stage.

    For example, the lexer of the stage `tile` colours the text of a program after the pass `tile.rotated`.
    """
    row = STAGES.get(stage) or STAGES.get(stage.partition(".")[0], {})
    return row.get("lexer", "Stage")


# ---- progress ------------------------------------------------------------------------------


@contextmanager
def progress(title: str, total: float | None = None) -> Iterator[Tell]:
    """Shows a progress bar on a terminal if the `with` block takes longer than `PATIENCE` seconds.

        with progress("compile", total=3) as tell:
            tell(1, "ptx")                              one of three is done; "ptx" stands beside the bar

    If `total` is None, the bar shows only that the command is still running. Code in the `with` block must not print,
    because printed text would damage the progress bar. If standard error is not a terminal, lines of text report the
    progress from time to time, and no bar is shown.
    """
    if not _drawable(err=True):
        yield _plain_progress(title, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn(title, markup=False), BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn(),
        console=Console(stderr=True, no_color=not coloured(err=True)), transient=True, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip
    task = bar.add_task("", total=total)
    timer = Timer(PATIENCE, bar.start)
    timer.start()
    try:
        yield lambda done, text: bar.update(task, completed=min(done, total or done), description=text)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def track(title: str, items: Sequence[T], name: Callable[[T], str] = str) -> Iterator[T]:
    """Yields the items, while a progress bar shows the name of the current item, and how many items are done."""
    with progress(title, len(items)) as tell:
        for done, item in enumerate(items):
            tell(done, name(item))
            yield item


def _plain_progress(title: str, total: float | None) -> Tell:
    next_time = time.monotonic() + PLAIN_EVERY

    def tell(done: float, text: str) -> None:
        nonlocal next_time
        if total is not None and time.monotonic() >= next_time:
            next_time = time.monotonic() + PLAIN_EVERY
            click.echo(f"{title}: {min(1.0, done / total) if total else 1:.0%}, {text}", err=True)

    return tell


# ---- messages and results --------------------------------------------------------------------


def note(text: str) -> None:
    """Prints a line on standard error."""
    echo(text, err=True)


def heading(text: str) -> str:
    return f"# ---- {text} ----"


def sizes_text(sizes: Mapping[str, int | tuple[int, ...]]) -> str:
    """Returns sizes as a text such as `M=7 B=2,3`, which is the form that the option -D takes."""
    each = {n: s if isinstance(s, int) else ",".join(map(str, s)) for n, s in sizes.items()}
    return " ".join(f"{n}={s}" for n, s in each.items())


def rendered(error: CompileError) -> str:
    """Returns the text of an error, as it is printed to standard error.

    If standard error is a terminal, the text has colours, and its lines are not wider than the terminal.
    """
    return diagnostic(report(error, max(20, width(err=True) - MARGIN)))


INFINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def show_json(value: Any) -> None:
    """Prints one JSON value, in ASCII.

    JSON has no NaN and no infinities, so such numbers are printed as strings.
    """
    plain = json.loads(json.dumps(value, default=dict), parse_constant=INFINITE.get)
    click.echo(json.dumps(plain, indent=2))


def write_files(directory: str, texts: Mapping[str, str]) -> None:
    """Writes the text of each stage to a file in the directory. The name of the file is the name of the stage."""
    with _writing(directory):
        Path(directory).mkdir(parents=True, exist_ok=True)
    for stage, text in texts.items():
        path = Path(directory, stage + STAGES.get(stage, {}).get("suffix", ".txt"))
        write_file(path, text.rstrip("\n") + "\n")
        note(printable(f"wrote {path}"))


def write_file(path: Path, text: str) -> None:
    """Writes a file.

    If the path is a symbolic link, raises a usage error, so that the file to which the link points does not change.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise click.UsageError(f"{path.name} in that directory is not a plain file; nothing was written to it")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with _writing(path.name), os.fdopen(os.open(path, flags, 0o644), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


@contextmanager
def _writing(name: str) -> Iterator[None]:
    """Turns an OSError inside the `with` block into a usage error."""
    try:
        yield
    except OSError as error:
        name = Path(error.filename or name).name
        raise click.UsageError(printable(f"cannot write {name}: {(error.strerror or 'refused').lower()}")) from None


# ---- endings -----------------------------------------------------------------------------


@contextmanager
def reported(as_json: bool = False) -> Iterator[None]:
    """Turns an exception in the `with` block into a message and an exit code. A warning in the `with` block becomes a
    note on standard error.

    An exception of the library click is raised again, because click itself handles its own exceptions.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: note(f"note: {message}")
            yield
    except CompileError as error:
        fail(error, as_json)
    except KeyboardInterrupt:
        note("interrupted")
        raise SystemExit(130) from None
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except MemoryError:
        fail(CompileError("MT0401", "there is not enough memory for this", help="take smaller sizes"), as_json)
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            note("error: cannot write: no space left on device")
            raise SystemExit(1) from None
        if sys.flags.dev_mode:
            raise
        _crash(error, as_json)


def fail(error: CompileError, as_json: bool = False) -> NoReturn:
    """Prints an error, and ends the command with the exit code for this error."""
    _end(error.as_dict(), rendered(error), exit_code(error), as_json)


def _end(error: Mapping[str, Any], text: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        show_json({"error": error})
    else:
        note(text)
    raise SystemExit(code)


def exit_code(error: CompileError) -> int:
    """Returns the exit code for an error:

    `3`: a stage is not available on this machine.
    `2`: a stage, target, pass or option does not exist.
    `1`: any other error.
    """
    return 3 if isinstance(error, mt.StageUnavailable) else 2 if error.code in ("MT0402", "MT0404") else 1


def _crash(error: Exception, as_json: bool) -> NoReturn:
    """Ends the command with a report of a bug in minitri."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    # Without the message of the exception, which may contain data of the user.
    message = f"minitri failed inside: {type(error).__name__} at {Path(frame.f_code.co_filename).name}:{line}"
    help = "this is a bug in minitri; `python -X dev -m minitri ...` shows the traceback"
    said = {"code": None, "message": message, "line": None, "column": None, "help": help}
    _end(said, diagnostic(f"error: {message}\n  = help: {help}"), 1, as_json)
