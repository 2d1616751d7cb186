"""How large pages of the explorer are, how soon they are open, how soon they answer: the table of docs/learn/explorer.md.

    python tests/opening.py                 measures, writes docs/log/opening.json; tests/documents.py fills in the table
    python tests/opening.py --pictures      makes the document's pictures anew

In: the pages of the gallery, and attention for any sizes, the largest of all. Out: for each its bytes; seconds from
asking Chromium for the file until the page is ready, the best of five; and the longest that it takes to light up
the counterparts of a node in four panes (source, ttgir, ptx, sass), each node the best of three. tests/test_explore.py
holds `REQUIRED` for two of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

from browser import Browser, browser
from gallery import gallery
from serving import running

import minitri as mt

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "log" / "opening.json"
REQUIRED = {"bytes": {"matmul": 300_000, "attention": 600_000}, "opens": 1.0, "hover": 0.05}
PANES = "#panes=source,ttgir,ptx,sass"
HOVER = """(() => {
    const {links} = explorer, marks = explorer.programs[0].marks.map((_, k) => k), times = [];
    for (const mark of marks) {
        const took = [1, 2, 3].map(() => {
            links.point(0, []);
            const start = performance.now();
            links.point(0, [mark]);
            document.body.offsetHeight;
            return performance.now() - start;
        });
        times.push(Math.min(...took));  // others use this machine too
    }
    links.point(0, []);
    return Math.max(...times) / 1000;
})()"""


def slowest_hover(tab: Browser) -> float:
    """Seconds, of the page that is open."""
    return tab.ask(HOVER)


def opened(tab: Browser, html: str, times: int = 5) -> float:
    """Seconds until a page is ready, the best of some."""
    return min(tab.open(html, PANES) for _ in range(times))


def pages() -> Iterator[tuple[str, str]]:
    """Names and files of the gallery, and attention for any sizes."""
    with tempfile.TemporaryDirectory() as directory:
        for path in gallery(ROOT / "examples", Path(directory), {"D": 64})[1:]:
            yield path.stem, path.read_text(encoding="utf-8")
    yield "attention, any sizes", mt.compile(ROOT / "examples" / "attention.mt").explore().html


def measured(tab: Browser) -> Iterator[dict[str, Any]]:
    for name, html in pages():
        seconds = opened(tab, html)
        yield {
            "page": name,
            "bytes": len(html.encode()),
            "opens": round(seconds, 3),
            "hover": round(slowest_hover(tab), 4),
        }


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| page | size | open after | slowest answer |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {r['page']} | {r['bytes'] / 1000:,.0f} kB | {r['opens']:.2f} s | {1000 * r['hover']:.0f} ms |" for r in rows
    ]
    return "\n".join(lines) + "\n"


def known() -> str:
    """The table of what was measured last."""
    return table(json.loads(FIGURES.read_text(encoding="utf-8")))


def pictures(tab: Browser) -> None:
    """Those of docs/learn/explorer.md."""
    shown = mt.compile("softmax(x + b)", x="f32[M, N]", b="f32[N]").explore(M=64, N=100)
    tab.open(shown.html, "#panes=source,drawn,triton,sass", 1280, 640)
    tab.ask("explorer.links.pinned(0, [explorer.programs[0].marks.findIndex(m => m.label.includes('= exp'))])")
    tab.driver.save_screenshot(str(ROOT / "docs" / "learn" / "explorer.png"))
    tab.open(mt.compile("examples/vector_add.mt").explore().html, "#panes=player", 800, 540)
    tab.find(".drop input").click()
    tab.driver.save_screenshot(str(ROOT / "docs" / "learn" / "player.png"))
    softmax = mt.compile("examples/softmax.mt").explore(M=1000, N=300)
    tab.open(softmax.html, "#walk=7", 1280, 560)
    tab.driver.save_screenshot(str(ROOT / "docs" / "learn" / "walk.png"))


def pictures_of_the_editor(tab: Browser) -> None:
    softmax = (ROOT / "examples" / "softmax.mt").read_text(encoding="utf-8")
    with running(first={"text": softmax, "sizes": {"M": 1000, "N": 300}}) as server:
        server.quick.seconds = server.full.seconds = 120
        tab.visit(f"{server.address}#panes=triton,sass", 1280, 520)
        tab.wait("!explorer.document.programs[0].quick", seconds=120)
        tab.ask("explorer.links.pinned(0, [explorer.programs[0].marks.findIndex(m => m.label.includes('= exp'))])")
        tab.driver.save_screenshot(str(ROOT / "docs" / "learn" / "editor.png"))
        wrong = softmax.replace("sum(e", "np.sum(e").replace("exp(x", "log(x, 2) + exp(x")
        tab.ask("explorer.editor.choose({text: arguments[0], sizes: {M: 1000, N: 300}})", wrong)
        tab.wait("document.querySelectorAll('.problems li').length === 2")
        tab.point(tab.all(".cm-lintRange-error")[0])
        tab.wait("document.querySelector('.cm-tooltip .cm-diagnostic')")
        tab.driver.save_screenshot(str(ROOT / "docs" / "learn" / "problems.png"))


def main() -> None:
    if sys.argv[1:] == ["--pictures"]:
        with tempfile.TemporaryDirectory() as directory, browser(Path(directory)) as tab, chdir(ROOT):
            pictures(tab)
            return pictures_of_the_editor(tab)
    with tempfile.TemporaryDirectory() as directory, browser(Path(directory)) as tab:
        rows = list(measured(tab))
    FIGURES.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
