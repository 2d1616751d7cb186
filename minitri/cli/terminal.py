"""Output that only a terminal gets, and a pipe does not: colour, a pager, and a progress bar.

    page(highlighted("tile", text))         in colour, through `less`
    with progress("check"):                 a bar, after two seconds

The first of these settings decides about colour: `--color`, NO_COLOR, FORCE_COLOR, and whether the stream is a
terminal. The libraries rich and pygments take a while to import, so they are imported only when they are used. Left
out: messages and exit codes (output.py), and the tokens of each text (lexers.py).
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pkgutil import resolve_name
from threading import Timer
from typing import Any

import click

from minitri.base.toml_tables import table_beside

STAGES = table_beside(__file__, "stages.toml")
HIGHLIGHTED = "minitri.cli.lexers:highlighted"  # imported when a text gets colour
WIDTH = 100  # columns of text that goes to no terminal
PATIENCE = 2.0  # seconds before a bar is shown
PLAIN_EVERY = 15.0  # seconds between two lines of progress that go to no terminal

Tell = Callable[[float, str], None]


# ---- streams -------------------------------------------------------------------------------


def coloured(err: bool = False) -> bool:
    """Checks whether standard output (or standard error) gets colour."""
    context = click.get_current_context(silent=True)
    if context is not None and context.color is not None:
        return context.color
    if os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "0") not in ("", "0") or _drawable(err)


def _drawable(err: bool = False) -> bool:
    """Checks whether standard output (or standard error) is a terminal that understands escape codes."""
    return os.environ.get("TERM") != "dumb" and (sys.stderr if err else sys.stdout).isatty()


def echo(text: str, err: bool = False, **style: Any) -> None:
    """Prints a text and a line end.

    `style` has the arguments of `click.style`.
    """
    click.echo(click.style(text, **style) if style else text, err=err, color=coloured(err))


def width(err: bool = False) -> int:
    """Returns the number of columns of the terminal, or `WIDTH` if the stream is not a terminal."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if (sys.stderr if err else sys.stdout).isatty() else WIDTH


def page(text: str) -> None:
    """Prints a text, on a terminal through a pager.

    The pager is the variable MINITRI_PAGER, else PAGER, else `less`.

    `less` prints a text that fits on the screen. If the variable is empty or `cat`, there is no pager.
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
    """Returns the name of the lexer for the text of a stage, or for the text after a pass.

    For example, the text `tile.rotated` has the lexer of `tile`.
    """
    row = STAGES.get(stage) or STAGES.get(stage.partition(".")[0], {})
    return row.get("lexer", "Stage")


# ---- progress ------------------------------------------------------------------------------


@contextmanager
def progress(title: str, total: float | None = None) -> Iterator[Tell]:
    """Shows a progress bar on a terminal if a command takes longer than `PATIENCE`.

        with progress("compile", total=3) as tell:
            tell(1, "ptx")                              one of three is done; "ptx" stands beside the bar

    Without a `total` the bar shows only that the command is still running. Code in the `with` block must not print. If
    standard error is not a terminal, a plain line says from time to time how much of the total is done.
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


def _plain_progress(title: str, total: float | None) -> Tell:
    next_time = time.monotonic() + PLAIN_EVERY

    def tell(done: float, text: str) -> None:
        nonlocal next_time
        if total is not None and time.monotonic() >= next_time:
            next_time = time.monotonic() + PLAIN_EVERY
            click.echo(f"{title}: {min(1.0, done / total) if total else 1:.0%}, {text}", err=True)

    return tell
