"""Output of the command line: data and verdicts on stdout, errors and notes on stderr, exit codes.

In: the results of a command, or the exception that stopped it. Out: text on the two streams, and an exit code:

    0 fine    1 a diagnostic or a failed check    2 usage    3 not available here    130 interrupted

The one idea: only `reported` turns an exception into an exit code, so no command shows a traceback. Left out: colour
and the pager (terminal.py), arguments, and what commands do.
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
    """Returns sizes in the form that the option -D takes: `M=7 B=2,3`."""
    each = {n: s if isinstance(s, int) else ",".join(map(str, s)) for n, s in sizes.items()}
    return " ".join(f"{n}={s}" for n, s in each.items())


def rendered(error: CompileError) -> str:
    """Returns a diagnostic as standard error shows it.

    On a terminal, the text is in colour and cut to the width of the terminal.
    """
    return terminal.diagnostic(report(error, max(20, terminal.width(err=True) - MARGIN)))


INFINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def show_json(value: Any) -> None:
    """Prints one JSON value, in ASCII.

    JSON has no NaN and no infinities, so these become strings.
    """
    plain = json.loads(json.dumps(value, default=dict), parse_constant=INFINITE.get)
    click.echo(json.dumps(plain, indent=2))


def write_files(directory: str, texts: Mapping[str, str]) -> None:
    """Writes one file for each stage, under the name of the stage."""
    with _writing(directory):
        Path(directory).mkdir(parents=True, exist_ok=True)
    for stage, text in texts.items():
        path = Path(directory, stage + STAGES.get(stage, {}).get("suffix", ".txt"))
        write_file(path, text.rstrip("\n") + "\n")
        note(printable(f"wrote {path}"))


def write_file(path: Path, text: str) -> None:
    """Writes a file.

    If the path is a symbolic link, this function raises an error and does not follow the link.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise click.UsageError(f"{path.name} in that directory is not a plain file; nothing was written to it")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with _writing(path.name), os.fdopen(os.open(path, flags, 0o644), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


@contextmanager
def _writing(name: str) -> Iterator[None]:
    """Turns an OSError into a usage error."""
    try:
        yield
    except OSError as error:
        name = Path(error.filename or name).name
        raise click.UsageError(printable(f"cannot write {name}: {(error.strerror or 'refused').lower()}")) from None


# ---- endings -----------------------------------------------------------------------------


@contextmanager
def reported(as_json: bool = False) -> Iterator[None]:
    """Turns an exception of a command into a message and an exit code. Warnings become notes.

    Exceptions of the library click pass through.
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
    """Ends the command with a diagnostic."""
    _end(error.as_dict(), rendered(error), exit_code(error), as_json)


def _end(error: Mapping[str, Any], text: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        show_json({"error": error})
    else:
        note(text)
    raise SystemExit(code)


def exit_code(error: CompileError) -> int:
    """Returns the exit code for an error.

    The code is 3 for a stage that is not available, and 2 for a stage, target, pass or option that does not exist. For
    any other error the exit code is 1.
    """
    return 3 if isinstance(error, mt.StageUnavailable) else 2 if error.code in ("MT0402", "MT0404") else 1


def _crash(error: Exception, as_json: bool) -> NoReturn:
    """Reports a bug of minitri with the file and line that raised the exception.

    The message of the exception may contain user data, so it is not shown.
    """
    *_, (frame, line) = walk_tb(error.__traceback__)
    where = f"{Path(frame.f_code.co_filename).name}:{line}"
    message = f"minitri failed inside: {type(error).__name__} at {where}"
    help = "this is a bug in minitri; `python -X dev -m minitri ...` shows the traceback"
    said = {"code": None, "message": message, "line": None, "column": None, "help": help}
    _end(said, terminal.diagnostic(f"error: {message}\n  = help: {help}"), 1, as_json)
