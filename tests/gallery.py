"""Writes explorer pages for a folder of programs, and a page that lists them.

    python tests/gallery.py examples build/gallery -D D=64

In: a folder of `.mt` files and some sizes. Out: a page for each program (NAME.html) and index.html, which lists the
programs with the fewest operations first. A dimension without a given size is 512; the axes of `*B` are 2 and 4.
The content of a page comes from minitri/explore/page.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from minitri.api import compile
from minitri.base.text_tables import byte_size
from minitri.explore.document import document
from minitri.explore.page import Page
from minitri.graph.parameter_binding import sizes_of
from minitri.program import Program

USUAL, AXES = 512, (2, 4)


def gallery(folder: Path, output: Path, sizes: Mapping[str, int]) -> list[Path]:
    """Writes the pages and returns their paths, index.html first."""
    output.mkdir(parents=True, exist_ok=True)
    entries: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.mt")):
        program = compile(path)
        shown = document(program.lower(**_sizes(program, sizes)).compilation)
        (output / f"{path.stem}.html").write_text(Page(shown).html, encoding="utf-8")
        entries.append({"name": path.stem, "text": path.read_text(encoding="utf-8").strip(), **_facts(shown)})
    entries.sort(key=lambda entry: entry["nodes"])
    index = output / "index.html"
    template = Path(__file__).with_name("gallery.html").read_text(encoding="utf-8")
    cards = Environment(autoescape=True, undefined=StrictUndefined).from_string(template)
    index.write_text(cards.render(entries=entries), encoding="utf-8")
    return [index, *(output / f"{e['name']}.html" for e in entries)]


def _sizes(program: Program, given: Mapping[str, int]) -> dict[str, Any]:
    declared = sizes_of(program.function, {}).items()
    return {n: AXES if isinstance(size, tuple) else given.get(n, USUAL) for n, size in declared}


def _facts(shown: Mapping[str, Any]) -> dict[str, Any]:
    (program,) = shown["programs"]
    made = program["ledger"]["plans"][0]
    return {
        "sizes": program["sizes"], "target": program["target"], "kernels": made["kernels"],
        "bytes": byte_size(made["bytes"]), "nodes": len(program["marks"]),
    }  # fmt: skip


def main() -> None:
    about = "Explorer pages of a folder of programs."
    parser = argparse.ArgumentParser(prog="python tests/gallery.py", description=about)
    parser.add_argument("folder", type=Path, help="where the programs are")
    parser.add_argument("output", type=Path, help="where the pages go")
    parser.add_argument("-D", action="append", default=[], metavar="NAME=SIZE", help="the size of a dimension")
    given = parser.parse_args()
    sizes = {name: int(size) for name, _, size in (pair.partition("=") for pair in given.D)}
    print(gallery(given.folder, given.output, sizes)[0])


if __name__ == "__main__":
    main()
