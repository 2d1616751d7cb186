"""A document as one HTML file that needs nothing else: no network, no other file.

In: a document (document.py). Out: HTML. The one idea: the file is a template of ours, our own style
and script, and data. The data is JSON, deflated, in base64, so that nothing of a program can be taken
for HTML; the page writes it as text only. A content policy forbids the rest: any script but ours,
by its hash, any connection, and any use of HTML from a text.

A card is the small form for a notebook: a program's text, its kernels, and how to see more, without scripts. It takes
milliseconds: Triton is not asked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from minitri.base.diagnostics import CompileError, printable
from minitri.pipeline import Compilation

FOLDER = Path(__file__).parent / "page"
SCRIPTS = ("load", "links", "text", "drawing", "panes", "live", "diff", "ledger", "figures", "player", "start")


class Page:
    """A page of the explorer: a notebook shows it, `save` writes it. `document`: its data."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document

    @cached_property
    def html(self) -> str:
        return page(self.document)

    def save(self, path: str | Path) -> Path:
        """Writes the page as one file that any browser opens."""
        Path(path).write_text(self.html, encoding="utf-8")
        return Path(path)

    def __repr__(self) -> str:
        return f"<explorer page of {self.document['title']}: .save('{self.document['title']}.html')>"

    def _repr_html_(self) -> str:
        frame = "width:100%;height:640px;border:1px solid #8888;border-radius:4px"
        return f'<iframe sandbox="allow-scripts" style="{frame}" srcdoc="{escape(self.html)}"></iframe>'


def page(document: Mapping[str, Any], connect: bool = False) -> str:
    """The file. `connect`: it is served, may ask its own server, and has an editor."""
    style, script = (FOLDER / "page.css").read_text(encoding="utf-8"), _script()
    policy = [
        "default-src 'none'", f"script-src '{_hash(script)}'", f"style-src '{_hash(style)}'", "img-src data:",
        "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
        *["connect-src 'self'"] * connect,
    ]  # fmt: skip
    return template("page.html").render(
        title=document["title"], policy="; ".join(policy), style=style, script=script, data=packed(document),
    )  # fmt: skip


def packed(document: Mapping[str, Any]) -> str:
    """JSON, deflated, in base64."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    deflated = zlib.compress(text.encode("utf-8", "surrogatepass"), 9, wbits=-15)
    return base64.b64encode(deflated).decode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _script() -> str:
    parts = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n'use strict';\n(() => {\n" + "\n".join(parts) + "\n})();\n"


@cache
def template(name: str) -> Any:
    """A template of ours; what is put into it is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string((FOLDER / name).read_text(encoding="utf-8"))


# ---- a card for a notebook ----------------------------------------------------------------------


SHOWN = ("graph.simplified", "kernels")
LONGEST = 4000  # characters of a text


def card(name: str, parameters: str, source: str, compiled: Compilation | None) -> str:
    """The card; without stages where the types of the parameters come with a call."""
    facts, stages = _stages(compiled) if compiled is not None else ("", [])
    parts = {"name": name, "parameters": parameters, "source": _shown(source), "facts": facts, "stages": stages}
    return template("card.html").render(parts)


def _stages(compiled: Compilation) -> tuple[str, list[tuple[str, str]]]:
    try:
        count = len(compiled.value("kernels").kernels)
        texts = [(s, _shown(compiled[s])) for s in SHOWN if s in compiled.stages]
    except (CompileError, KeyError):
        return "", []
    return f"{count} kernel{'' if count == 1 else 's'}", texts


def _shown(text: str) -> str:
    """Without what a browser would not show as it is; cut where it is long."""
    kept = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return "\n".join(printable(line.expandtabs(4)) for line in kept.rstrip("\n").split("\n"))
