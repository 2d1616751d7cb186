"""Output that is meant for a terminal, and is left out in a pipe: colour, a pager, and a progress bar.

    page(highlighted("tile", text))         prints the text in colour, through `less`
    with progress("check"):                 shows a progress bar, after two seconds

Whether text is coloured depends on the first of these settings that is given: the option `--color`, the variables
NO_COLOR and FORCE_COLOR, and whether the stream is a terminal. The libraries rich and pygments take long to import, so
they are imported only when they are used. Left out: messages and exit codes (error_reporting.py), and how a text is
split into tokens (lexers.py).
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name
from threading import Timer
from typing import TypeVar

import click

from minitri.base.toml_tables import table_beside

STAGES = table_beside(__file__, "stages.toml")
HIGHLIGHTED = "minitri.cli.lexers:highlighted"  # imported when a text gets colour
WIDTH = 100  # columns of text that goes to no terminal
PATIENCE = 2.0  # seconds before a bar is shown
PLAIN_EVERY = 15.0  # seconds between two lines of progress that go to no terminal

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
    """Checks whether standard output (if `err`, standard error) is a terminal that understands escape codes."""
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
    """Returns the name of the lexer that colours the text of a stage, or of the program after a pass.

    For example, the text after the pass `tile.rotated` has the lexer of the stage `tile`.
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
    because printing would damage the bar. If standard error is not a terminal, a plain line, instead of a bar, says
    from time to time how much of the total is done.
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
    """Yields the items. Meanwhile, a progress bar shows the name of the current item, and how many are done."""
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
