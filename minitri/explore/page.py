"""Writes a document of the explorer as one HTML file. The HTML file needs no network and no other file.

The function `page` takes a document (document.py), and returns the HTML. The HTML file consists of a template, one
style sheet, one script, and data. The data is JSON, deflated, in base64, so a browser cannot take any part of a program
for HTML. The script inserts parts of a user's program into the page as text, never as HTML. The content policy of the
page allows only the script in the HTML file. The policy identifies this script by a hash. The content policy of the
page forbids all other scripts, connections to servers, and the conversion of text to HTML.

Only a page that `minitri explore --serve` serves has an editor. The editor is the library CodeMirror, and the page uses
no other library. The file page/codemirror.js is a bundle of CodeMirror's packages with their licences;
tests/codemirror/ makes this bundle.
"""

import base64
import hashlib
import json
import secrets
import zlib
from collections.abc import Mapping
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import Any

from minitri.notebook.card_html import template

FOLDER = Path(__file__).parent / "page"
SCRIPTS = (
    "load", "links", "tip", "text", "drawing", "pane", "split", "sketch", "walk", "frame", "diff", "ledger", "figures",
    "cells", "player", "start",
)  # fmt: skip
EDITOR = ("codemirror", "completion", "editor", "problems", "sizes", "gallery", "share", "live")  # for an editor


class Page:
    """A page of the explorer.

    A notebook shows the page. The method `save` writes the page as a file. `document` is the data of the page.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document

    @cached_property
    def html(self) -> str:
        return page(self.document)[0]

    def save(self, path: str | Path) -> Path:
        """Writes the page as one HTML file that any browser opens."""
        Path(path).write_text(self.html, encoding="utf-8")
        return Path(path)

    def __repr__(self) -> str:
        return f"<explorer page of {self.document['title']}: .save('{self.document['title']}.html')>"

    def _repr_html_(self) -> str:
        frame = "width:100%;height:640px;border:1px solid #8888;border-radius:4px"
        return f'<iframe sandbox="allow-scripts" style="{frame}" srcdoc="{escape(self.html)}"></iframe>'


def page(document: Mapping[str, Any], live: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """Returns the HTML of a document, and the Content-Security-Policy of this HTML.

    The argument `live` is the data for the page's editor, or None for a page without an editor. Only a page that a
    server serves has an editor.
    """
    style, script = (FOLDER / "page.css").read_text(encoding="utf-8"), _script(live is not None)
    nonce = secrets.token_urlsafe(16)  # for the style sheet that CodeMirror makes
    rules = [
        "default-src 'none'", f"script-src '{_hash(script)}'", f"style-src '{_hash(style)}'", "img-src data:",
        "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
    ]  # fmt: skip
    if live is not None:
        rules[2] += f" 'nonce-{nonce}'"
        rules.append("connect-src 'self'")
        document = {**document, "live": {**live, "nonce": nonce}}
    policy = "; ".join(rules)
    made = template(FOLDER / "page.html").render(
        title=document["title"], policy=policy, style=style, script=script, data=packed(document),
    )  # fmt: skip
    return made, policy


def packed(document: Mapping[str, Any]) -> str:
    """Returns the document as JSON, deflated, in base64."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 9, wbits=-15)).decode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _script(editor: bool) -> str:
    parts = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in (*EDITOR * editor, *SCRIPTS)]
    return "\n'use strict';\n(() => {\n" + "\n".join(parts) + "\n})();\n"
