"""Output of the command line: texts and JSON on stdout, everything else on stderr, exit codes.

In: what a command has made, or the exception that stopped it. Out: bytes on two streams and
one of the exit codes

    0 fine    1 a diagnostic or a failed check    2 usage    3 not available here    130 interrupted

The one idea: `reported` is the only place where an exception becomes an exit code, so no
command can leak a traceback. Colour is for a terminal alone: nothing here reads or imports
rich when stdout is a pipe or NO_COLOR is set. Left out: arguments, and what commands do.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any, NoReturn

import click

import minitri as mt
from minitri.base.diagnostics import CompileError, printable

STAGES = tomllib.loads(Path(__file__).with_name("stages.toml").read_text(encoding="utf-8"))
PLAIN_EVERY = 15.0  # seconds between lines of progress that no terminal shows


def note(text: str) -> None:
    """A line for the person at the terminal."""
    click.echo(text, err=True)


def heading(text: str) -> str:
    return f"# ---- {text} ----"


def sizes_text(sizes: Mapping[str, int | tuple[int, ...]]) -> str:
    """`M=7 B=2,3`: as -D takes them."""
    each = {n: s if isinstance(s, int) else ",".join(map(str, s)) for n, s in sizes.items()}
    return " ".join(f"{n}={s}" for n, s in each.items())


def show(stage: str, text: str) -> None:
    """The text of a stage; in colour on a terminal."""
    text = text.rstrip("\n")
    if not coloured():
        return click.echo(text)
    from rich.console import Console
    from rich.syntax import Syntax

    syntax = Syntax("", STAGES.get(stage, {}).get("lexer", "llvm"), theme="ansi_dark", background_color="default")
    # `highlight` and a soft wrap: a Syntax printed as such would cut long lines at the window's edge.
    Console().print(syntax.highlight(text), soft_wrap=True)


@contextmanager
def progress(title: str, total: float) -> Iterator[Callable[[float, str], None]]:
    """A bar on a terminal; elsewhere a plain line now and then. What it gives takes (how much is done, a text)."""
    if not sys.stderr.isatty():
        yield _plain_progress(title, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.fields[title]}"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, title=title)
        yield lambda done, text: bar.update(task, completed=min(done, total), description=text)


def _plain_progress(title: str, total: float) -> Callable[[float, str], None]:
    next_time = time.monotonic() + PLAIN_EVERY

    def tell(done: float, text: str) -> None:
        nonlocal next_time
        if time.monotonic() >= next_time:
            next_time = time.monotonic() + PLAIN_EVERY
            note(f"{title}: {min(1.0, done / total) if total else 1:.0%}, {text}")

    return tell


def coloured() -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


INFINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def show_json(value: Any) -> None:
    """One JSON value, in ASCII; NaN and infinities (which JSON lacks) as strings."""
    plain = json.loads(json.dumps(value, default=dict), parse_constant=INFINITE.get)
    click.echo(json.dumps(plain, indent=2))


def write_files(directory: str, texts: Mapping[str, str]) -> None:
    """One file a stage, named after it."""
    with _writing(directory):
        Path(directory).mkdir(parents=True, exist_ok=True)
    for stage, text in texts.items():
        path = Path(directory, stage + STAGES.get(stage, {}).get("suffix", ".txt"))
        write_file(path, text.rstrip("\n") + "\n")
        note(printable(f"wrote {path}"))


def write_file(path: Path, text: str) -> None:
    """One file. A link in the way is not followed."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise click.UsageError(f"{path.name} in that directory is not a plain file; nothing was written to it")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with _writing(path.name), os.fdopen(os.open(path, flags, 0o644), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


@contextmanager
def _writing(name: str) -> Iterator[None]:
    """What cannot be written is wrong usage."""
    try:
        yield
    except OSError as error:
        name = Path(error.filename or name).name
        raise click.UsageError(printable(f"cannot write {name}: {(error.strerror or 'refused').lower()}")) from None


# ---- endings -----------------------------------------------------------------------------


@contextmanager
def reported(as_json: bool = False) -> Iterator[None]:
    """Turns what a command raises into a message and an exit code. click's own exceptions pass."""
    try:
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
    _end(as_dict(error), str(error), exit_code(error), as_json)


def _end(error: Mapping[str, Any], text: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        show_json({"error": error})
    else:
        note(text)
    raise SystemExit(code)


def exit_code(error: CompileError) -> int:
    """A stage that cannot be had here is 3; one that does not exist (or a target, a pass, an option) is 2."""
    if isinstance(error, mt.StageUnavailable):
        return 3
    return 2 if error.code in ("MT0402", "MT0404") else 1


def as_dict(error: CompileError) -> dict[str, Any]:
    line, column = error.span.source.line_column(error.span.start) if error.span else (None, None)
    return {
        "code": error.code, "message": error.message, "line": line, "column": column,
        "label": error.label, "help": error.help,
    }  # fmt: skip


def _crash(error: Exception, as_json: bool) -> NoReturn:
    """A bug. Says where, but not with what data: no message of the exception, no traceback."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    where = f"{Path(frame.f_code.co_filename).name}:{line}"
    message = f"minitri failed inside: {type(error).__name__} at {where}"
    help = "this is a bug in minitri; `python -X dev -m minitri ...` shows the traceback"
    said = {"code": None, "message": message, "line": None, "column": None, "help": help}
    _end(said, f"error: {message}\n  = help: {help}", 1, as_json)
