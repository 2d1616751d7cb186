"""Measures pages of the explorer: size, time to open, time to react to the pointer. Makes a table of
docs/learn/explorer.md.

    python tests/opening.py                 measures, writes docs/log/opening.json; tests/documents.py fills in the table

In: the pages of the gallery, and attention for symbolic sizes, which has the largest page. Out, for each page:

    bytes      the size of the file
    opening    seconds from the request until the page is ready, the best of five
    reaction   the longest time to highlight the counterparts of a node in four panes (source, ttgir, ptx, sass);
               each node is measured three times, and the best time counts

tests/test_explore.py requires the limits of `REQUIRED` for two of the pages.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from browser import Browser, browser
from gallery import gallery

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
    """The seconds of the slowest reaction on the page that is open."""
    return tab.ask(HOVER)


def opened(tab: Browser, html: str, times: int = 5) -> float:
    """The seconds until a page is ready, the best of some attempts."""
    return min(tab.open(html, PANES) for _ in range(times))


def pages() -> Iterator[tuple[str, str]]:
    """Names and files of the gallery's pages, and of attention for symbolic sizes."""
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
    """The table of the latest measurement."""
    return table(json.loads(FIGURES.read_text(encoding="utf-8")))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, browser(Path(directory)) as tab:
        rows = list(measured(tab))
    FIGURES.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
