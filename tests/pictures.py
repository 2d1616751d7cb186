"""Makes the pictures of README.md, docs/learn/explorer.md and docs/learn/notebooks.md.

    python tests/pictures.py               makes all pictures in docs/learn/ again
    python tests/pictures.py passes walk   makes two of them again

In: the programs of examples/. Out: PNG files. The one idea: headless Chromium (tests/browser.py) takes every picture.
It shows the explorer's pages, a terminal's output as HTML, and the cells of a notebook. `PICTURES` has a function for
each file. `SHOWN` lists the sections of the documents that have a picture (tests/test_docs.py). The file
docs/learn/pictures.json has a hash of the text of each page that a picture shows, so a test notices an old picture.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, chdir, redirect_stderr
from functools import cache
from html import escape
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

from browser import Browser, browser
from serving import running

import minitri as mt

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "learn"
HASHES = FOLDER / "pictures.json"
SHOWN = {
    "README.md": ["A tour", "The stages", "Command line"],
    "docs/learn/notebooks.md": ["What shows itself", "Figures"],
    "docs/learn/explorer.md": [
        "# The stage explorer", "The page", "The player", "Two programs", "What it costs", "What happened", "Served, with an editor",
    ],
}  # fmt: skip
"""The sections of documents that have a picture."""
SERVERS = ExitStack()
"""The server of the editor, once it is started."""


# ---- the explorer ------------------------------------------------------------------------------


def walk(tab: Browser) -> None:
    tab.open(_softmax().html, "#walk=7", 1280, 560)


def explorer(tab: Browser) -> None:
    shown = mt.compile("softmax(x + b)", x="f32[M, N]", b="f32[N]").explore(M=64, N=100)
    tab.open(shown.html, "#panes=source,drawn,triton,sass", 1280, 640)
    _pin(tab, "= exp")


def passes(tab: Browser) -> None:
    tab.open(_attention().html, "#panes=passes", 1100, 620)


def ledger(tab: Browser) -> None:
    tab.open(_attention().html, "#panes=ledger,resources", 1280, 700)


def player(tab: Browser) -> None:
    tab.open(mt.compile("examples/vector_add.mt").explore().html, "#panes=player", 800, 540)
    tab.find(".drop input").click()


def compare(tab: Browser) -> None:
    shown = mt.compile("examples/softmax.mt").explore(M=1000, N=300, compare={"without": "fusion"})
    tab.open(shown.html, "#panes=kernels,kernels@1,diff@1", 1280, 560)


def editor(tab: Browser) -> None:
    _served(tab)
    _pin(tab, "= exp")


def problems(tab: Browser) -> None:
    """A program with two mistakes, and the message for the first one."""
    wrong = _served(tab).replace("sum(e", "np.sum(e").replace("exp(x", "log(x, 2) + exp(x")
    tab.ask("explorer.editor.choose({text: arguments[0], sizes: {M: 1000, N: 300}})", wrong)
    tab.wait("document.querySelectorAll('.problems li').length === 2")
    tab.point(tab.all(".cm-lintRange-error")[0])
    tab.wait("document.querySelector('.cm-tooltip .cm-diagnostic')")


def _served(tab: Browser) -> str:
    """Opens the editor with a softmax whose stages are all compiled. The server answers until the script ends."""
    softmax = (ROOT / "examples" / "softmax.mt").read_text(encoding="utf-8")
    server = SERVERS.enter_context(running(first={"text": softmax, "sizes": {"M": 1000, "N": 300}}))
    server.quick.seconds = server.full.seconds = 120
    tab.visit(f"{server.address}#panes=triton,sass", 1280, 520)
    tab.wait("!explorer.document.programs[0].quick", seconds=120)
    tab.ask(
        "document.querySelectorAll('.editor > header .hint').forEach(n => { n.textContent = ''; })"
    )  # the time it took
    return softmax


@cache
def _softmax() -> Any:
    return mt.compile("examples/softmax.mt").explore(M=1000, N=300)


@cache
def _attention() -> Any:
    return mt.compile("examples/attention.mt").explore(B=(2, 4), T=512, S=512, D=64)


def _pin(tab: Browser, label: str) -> None:
    tab.ask(
        "explorer.links.pinned(0, [explorer.programs[0].marks.findIndex(m => m.label.includes(arguments[0]))])", label
    )


# ---- a terminal --------------------------------------------------------------------------------


def terminal(tab: Browser) -> None:
    """Two commands with their output: a check, and a mistake."""
    from rich.console import Console
    from rich.terminal_theme import SVG_EXPORT_THEME
    from rich.text import Text
    from test_terminal import seen

    lines = []
    for words in (
        ["check", "examples/softmax.mt"],
        ["compile", "-e", "np.where(x > 0, x, 0) + sofmax(x)", "-t", "x=f32[M, N]"],
        ["compile", "examples/gelu.mt", "--emit=tile.masked", "--target", "h200"],
    ):
        shown = " ".join(f"'{word}'" if " " in word else word for word in words)
        lines.append(f"\x1b[32m$\x1b[0m minitri {shown}\n{seen('-m', 'minitri', *words, columns=110, PAGER='cat')}")
    console = Console(record=True, width=110, file=StringIO(), force_terminal=True)
    shown = [line for line in "\n".join(lines).split("\n") if "\u2501" not in line]  # a progress bar
    console.print(Text.from_ansi("\n".join(shown)))
    code = console.export_html(theme=SVG_EXPORT_THEME, inline_styles=True, code_format="<pre>{code}</pre>")
    _page(tab, f"<div class=terminal>{code}</div>", 940)


# ---- a notebook --------------------------------------------------------------------------------


def notebook(tab: Browser) -> None:
    """Cells of a notebook, and the output below them."""
    f = mt.compile(Path("examples/softmax.mt"))
    low = f.lower(M=1000, N=300)
    _page(tab, _cells(f=f, **{"f.lower(M=1000, N=300)": low}), 900)


def figures(tab: Browser) -> None:
    f = mt.compile("softmax(x @ w, axis=-1)", x="f16[M, K]", w="f16[K, N]")
    low = f.lower(M=4096, K=4096, N=1000)
    shown = {"f.plot(M=4096, K=4096, N=1000)": f.plot(M=4096, K=4096, N=1000), "low.roofline()": low.roofline()}
    _page(tab, f"<div class=row>{_cells(**shown)}</div>", 1200)


def _cells(**shown: Any) -> str:
    cells = []
    for text, value in shown.items():
        html = value._repr_html_() if hasattr(value, "_repr_html_") else _image(value._repr_png_())
        cells.append(f"<div><pre class=cell>{escape(text)}</pre>{html}</div>")
    return "".join(cells)


def _image(png: bytes) -> str:
    from base64 import b64encode

    return f'<img src="data:image/png;base64,{b64encode(png).decode()}" style="max-width: 560px">'


def _page(tab: Browser, body: str, width: int) -> None:
    """Shows HTML in a window of its own height."""
    style = """body { margin: 0; padding: 16px; font: 14px system-ui, sans-serif; background: #fff; } pre { font: 13px/1.45 monospace; margin: 0; }
        .terminal { background: #16191d; color: #d5dae1; padding: 14px 18px; border-radius: 8px; } .terminal pre { white-space: pre-wrap; }
        .cell { background: #f4f5f7; border: 1px solid #dfe2e7; border-radius: 4px; padding: 6px 10px; margin: 8px 0; } .row { display: flex; gap: 24px; }"""
    tab.open(f"<!doctype html><meta charset=utf-8><style>{style}</style><body data-ready=yes>{body}", "", width, 400)
    tab.size(width, tab.ask("document.documentElement.scrollHeight"))


PICTURES: dict[str, Callable[[Browser], None]] = {
    make.__name__: make
    for make in (walk, explorer, passes, ledger, player, compare, editor, problems, terminal, notebook, figures)
}


STABLE = [name for name in PICTURES if name not in ("terminal", "figures")]
"""The pictures of pages whose text is the same on every machine. The text of `terminal` depends on the GPU and on rounding
of the CPU, and `figures` shows no text."""


def text_hash(tab: Browser) -> str:
    """A hash of the text of the page that a picture shows, without the line numbers of places in files."""
    tab.ask(
        "window.explorer?.panes.forEach(p => (p.view.view ?? p.view).all?.())"
    )  # rows are made as they come into sight
    text = tab.ask("(document.getElementById('app') ?? document.body).textContent")
    return hashlib.sha256(re.sub(r"\.py:\d+", ".py", text).encode()).hexdigest()[:16]


def known() -> dict[str, str]:
    """The hash of each picture, and the version of the compiler that made the texts."""
    return json.loads(HASHES.read_text(encoding="utf-8")) if HASHES.exists() else {}


def main() -> None:
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp())
    with tempfile.TemporaryDirectory() as directory, browser(Path(directory)) as tab, chdir(ROOT), SERVERS:
        for name in sys.argv[1:] or PICTURES:
            with redirect_stderr(StringIO()):
                PICTURES[name](tab)
            tab.driver.save_screenshot(str(FOLDER / f"{name}.png"))
            if name in STABLE:
                hashes = known() | {"triton": version("triton"), name: text_hash(tab)}
                HASHES.write_text(json.dumps(hashes, indent=2, sort_keys=True) + "\n", encoding="utf-8")
            print(f"docs/learn/{name}.png")


if __name__ == "__main__":
    main()
