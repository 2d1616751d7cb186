"""Output of the command line: data and verdicts on stdout, errors and notes on stderr, exit codes.

In: the results of a command, or the exception that stopped the command. Out: text on stdout and stderr, and an exit
code:

    0 success    1 an error or a failed check    2 a usage error    3 a stage is not available    130 interrupted

The one idea: the function `reported` turns every exception of a command into a message and an exit code, so no command
shows a traceback. Left out: colour and the pager (terminal.py), the command line (main.py), and the commands
(command_functions.py).
"""

import errno
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any, NoReturn

import click

import minitri as mt
from minitri.base.diagnostics import CompileError, printable, report
from minitri.cli import terminal
from minitri.cli.terminal import STAGES

MARGIN = 10  # columns beside the text of an excerpt: `  120 | `, and `…` at both ends


def note(text: str) -> None:
    """Prints a line on standard error."""
    terminal.echo(text, err=True)


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
    return terminal.diagnostic(report(error, max(20, terminal.width(err=True) - MARGIN)))


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
    """Turns an OSError inside the `with` block into a usage error, which says that `name` cannot be written."""
    try:
        yield
    except OSError as error:
        name = Path(error.filename or name).name
        raise click.UsageError(printable(f"cannot write {name}: {(error.strerror or 'refused').lower()}")) from None


# ---- endings -----------------------------------------------------------------------------


@contextmanager
def reported(as_json: bool = False) -> Iterator[None]:
    """Turns an exception in the `with` block into a message and an exit code. A warning becomes a note.

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
    """Ends the command after printing an error, with the exit code that belongs to this error."""
    _end(error.as_dict(), rendered(error), exit_code(error), as_json)


def _end(error: Mapping[str, Any], text: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        show_json({"error": error})
    else:
        note(text)
    raise SystemExit(code)


def exit_code(error: CompileError) -> int:
    """Returns the exit code for an error.

    The exit code is 3 for a stage that this machine cannot make. The exit code is 2 for a stage, target, pass or option
    that does not exist. For any other error, the exit code is 1.
    """
    return 3 if isinstance(error, mt.StageUnavailable) else 2 if error.code in ("MT0402", "MT0404") else 1


def _crash(error: Exception, as_json: bool) -> NoReturn:
    """Ends the command with a report of a bug in minitri. The report names the line that raised the exception.

    The report does not show the message of the exception, because the message possibly contains data of the user.
    """
    *_, (frame, line) = walk_tb(error.__traceback__)
    where = f"{Path(frame.f_code.co_filename).name}:{line}"
    message = f"minitri failed inside: {type(error).__name__} at {where}"
    help = "this is a bug in minitri; `python -X dev -m minitri ...` shows the traceback"
    said = {"code": None, "message": message, "line": None, "column": None, "help": help}
    _end(said, terminal.diagnostic(f"error: {message}\n  = help: {help}"), 1, as_json)
