"""Cards: small pieces of HTML for a notebook.

    card("main", "(x: f32[N])", facts="1 kernel", tabs=[("source", "x + 1"), ("graph", …)])

In: texts. Out: HTML without scripts: tabs are radio buttons, which arrow keys move. jinja2 escapes every text, so
nothing of a program becomes markup. Long texts are cut.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from minitri.base.diagnostics import printable

LONGEST = 20_000  # characters of a text


class StageText(str):
    """The text of a stage. A notebook shows it as lines, not as a quoted string."""

    def _repr_html_(self) -> str:
        return card("", text=self)


def card(
    title: str, signature: str = "", *, facts: str = "", wrong: bool = False, text: str = "",
    tabs: Sequence[tuple[str, str]] = (), rows: Sequence[Sequence[str]] = (), fold: str = "", note: str = "",
    longest: int = LONGEST,
) -> str:  # fmt: skip
    """The HTML of a card.

    facts     a short text beside the title; red if something is `wrong`
    text      one text; `tabs` has several, each with its label
    rows      a table, the first row its head
    fold      a label under which the table is folded, unless something is `wrong`
    note      the last line
    longest   characters of a text that are shown
    """
    shown = [(label, _shown(content, longest)) for label, content in tabs]
    cells = [[printable(cell) for cell in row] for row in rows]
    return _template().render(
        title=title, signature=signature, facts=facts, wrong=wrong, text=_shown(text, longest), tabs=shown,
        rows=cells, fold=fold, note=note, group=f"minitri-{uuid4().hex[:12]}",
    )  # fmt: skip


@cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(Path(__file__).with_name("card.html").read_text(encoding="utf-8"))


def _shown(text: str, longest: int) -> str:
    """Without characters that a browser would not show as they are; cut where it is long."""
    kept = text if len(text) <= longest else f"{text[:longest]}…"
    return "\n".join(printable(line.expandtabs(4)) for line in kept.rstrip("\n").split("\n"))


def counted(number: int, thing: str, things: str = "") -> str:
    """`1 kernel`, `2 kernels`; `things` is the plural, if it is not the word with an s."""
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"
