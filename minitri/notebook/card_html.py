"""Makes cards, which are small pieces of HTML for a notebook.

    card("main", "(x: f32[N])", facts="1 kernel", tabs=[("source", "x + 1"), ("graph", …)])

The function `card` takes a title, and pairs of a label and a text, such as ("source", "x + 1"). The function `card`
returns one card, as HTML without scripts. The tabs of a card are radio buttons, so the arrow keys move from tab to tab.
The library jinja2 escapes every text, so no text of a program is read as HTML. Texts that are too long are cut.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from minitri.base.diagnostics import printable

LONGEST = 20_000  # characters of a text that are shown


class StageText(str):
    """The text of a stage. A notebook shows the text line by line, not as a quoted Python string."""

    def _repr_html_(self) -> str:
        return card("", text=self)


def card(
    title: str, signature: str = "", *, facts: str = "", wrong: bool = False, text: str = "",
    tabs: Sequence[tuple[str, str]] = (), rows: Sequence[Sequence[str]] = (), fold: str = "", note: str = "",
    longest: int = LONGEST,
) -> str:  # fmt: skip
    """Returns the HTML of a card.

    `facts`: a short text beside the title, in red if `wrong` is true.
    `text`: the text of the card, unless the card has several texts (`tabs`).
    `tabs`: pairs of a label and a text, for a card with several texts.
    `rows`: the rows of a table. The first row has the titles of the columns.
    `fold`: the label of a control that shows or hides the table. The table is visible at first only if `wrong` is true.
    `note`: the last line of the card.
    `longest`: the number of characters after which a text is cut.
    """
    shown = [(label, _shown(content, longest)) for label, content in tabs]
    cells = [[printable(cell) for cell in row] for row in rows]
    return template(Path(__file__).with_name("card.html")).render(
        title=title, signature=signature, facts=facts, wrong=wrong, text=_shown(text, longest), tabs=shown,
        rows=cells, fold=fold, note=note, group=f"minitri-{uuid4().hex[:12]}",
    )  # fmt: skip


@cache
def template(path: Path) -> Any:
    """Returns the HTML template in a file. The template escapes every text that is inserted."""
    from jinja2 import Environment, StrictUndefined

    return Environment(autoescape=True, undefined=StrictUndefined).from_string(path.read_text(encoding="utf-8"))


def _shown(text: str, longest: int) -> str:
    """Cuts a text to `longest` characters, and replaces unprintable characters by `?`."""
    kept = text if len(text) <= longest else f"{text[:longest]}…"
    return "\n".join(printable(line.expandtabs(4)) for line in kept.rstrip("\n").split("\n"))


def counted(number: int, thing: str, things: str = "") -> str:
    """Returns a number with a noun, such as `1 kernel` or `2 kernels`.

    The argument `things` gives the plural, such as `queries`, if the plural is not the noun with an added s.
    """
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"
