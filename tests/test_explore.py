"""The explorer's page: what is in the file, and what it does in a real browser.

Pictures to look at: EXPLORER_PICTURES=build/pictures pytest tests/test_explore.py
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")
from browser import Browser, browser, missing
from click.testing import CliRunner

import minitri as mt
from minitri.cli import main
from minitri.explore.layout import layout
from minitri.explore.player import player

SIZES: dict[str, dict[str, Any]] = {
    "attention": {"B": (2, 4), "T": 512, "S": 512, "D": 64},
    "matmul": {"M": 512, "K": 512, "N": 512},
    "layer_norm": {"B": 64, "D": 768},
}
HOSTILE = """\
# </script><script>document.title = "owned"</script><img src=x onerror="document.title='owned'">
def f(x: f32[N], approximate: f32[N]) -> f32[N]:
    # ]]> --> {{ 7 * 7 }} ${alert(1)} &lt;b&gt; \u202e \u2028
    return gelu(x, approximate="none") + approximate  # </style><svg onload=alert(1)>
"""


@cache
def html(name: str) -> str:
    return mt.compile(f"examples/{name}.mt").explore(**SIZES[name]).html


@cache
def small() -> str:
    return mt.compile("softmax(x + b)", x="f32[M, N]", b="f32[N]").explore(M=64, N=100).html


def data(page: str) -> dict[str, Any]:
    """The document in a page."""
    (packed,) = re.findall(r'<script type="text/plain" id="data">([\w+/=]+)</script>', page)
    return json.loads(zlib.decompress(base64.b64decode(packed), wbits=-15))


# ---- the file ----------------------------------------------------------------------------


def test_a_page_holds_every_stage_and_loads_nothing() -> None:
    page = small()
    (program,) = data(page)["programs"]
    low = mt.compile("softmax(x + b)", x="f32[M, N]", b="f32[N]").lower(M=64, N=100)
    assert [s["name"] for s in program["stages"]] == list(low.stages)
    shown = {s["name"]: s.get("text") for s in program["stages"]}
    assert all(shown[s] == low[s] for s in ("ast", "graph", "kernels", "tile.masked", "triton"))
    assert not re.findall(r"(?:src|href)=[\"'](?!data:)", page)
    assert "default-src 'none'" in unescape(page) and "unsafe" not in page


@pytest.mark.parametrize(("name", "most"), [("matmul", 250_000), ("attention", 900_000)])
def test_pages_are_small(name: str, most: int) -> None:
    assert len(html(name).encode()) < most


def test_hostile_text_is_data_only() -> None:
    page = mt.compile(HOSTILE).explore().html
    assert page.count("<script") == small().count("<script")
    assert data(page)["programs"][0]["sources"][0]["text"] == HOSTILE
    assert "owned" not in page and "alert(1)" not in page


def test_the_command_makes_the_page_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "explore",
        "-e",
        "x + y",
        "-t",
        "x=f32[N]",
        "-t",
        "y=f32[N]",
        "-D",
        "N=7",
        "--without",
        "fuse",
    ]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    command = data((tmp_path / "main.html").read_text())["command"]
    assert command == "minitri explore -e 'x + y' -t 'x=f32[N]' -t 'y=f32[N]' -D N=7 --without fuse -o main.html"


def test_compare_holds_both(tmp_path: Path) -> None:
    with chdir(tmp_path):
        words = [
            "explore",
            "-e",
            "x + y",
            "-t",
            "x=f32[N]",
            "-t",
            "y=f32[N]",
            "--compare",
            "target=cuda:80",
            "-o",
            "p.html",
        ]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        programs = data(Path("p.html").read_text())["programs"]
    assert [p["target"] for p in programs] == ["cuda:90", "cuda:80"]
    assert CliRunner().invoke(main, ["explore", "-e", "x", "-t", "x=f32[N]", "--compare", "warp=3"]).exit_code == 2


@cache
def played(name: str) -> dict[str, Any]:
    found = player(mt.compile(f"examples/{name}.mt").lower().compilation)
    assert found is not None
    return found


def test_the_player_shows_seven_elements_in_blocks_of_three() -> None:
    """The first example: what each lane does, and where a load goes that has lost its mask."""
    (kernel,) = played("vector_add")["kernels"]
    last = kernel["programs"][2]["steps"]
    loads = [s for s in last if s.get("array") == "x"]
    assert [(s["state"], s["index"], s["values"]) for s in loads] == [("ammm", [[6, 7, 8, 9]], ["6", "0", "0", "0"])]
    assert [s["state"] for p in kernel["programs"] for s in p["steps"] if s.get("array") == "out"] == [
        "aaam",
        "aaam",
        "ammm",
    ]
    (line,) = [k for k, text in enumerate(kernel["lines"]) if "load x" in text]
    runs = kernel["dropped"][line]
    assert [r["error"] for r in runs] == ["", "", "reads x[7], out of bounds: its shape is [7]"]
    assert [s["state"] for s in runs[2]["steps"]] == ["axxx"]
    (line,) = [k for k, text in enumerate(kernel["lines"]) if "store out" in text]
    assert "writes out[3] twice" in kernel["dropped"][line][1]["error"]


@pytest.mark.parametrize("name", ["softmax", "matmul", "attention", "layer_norm", "embedding", "cross_entropy"])
def test_the_player_computes_what_the_program_computes(name: str) -> None:
    """What lanes that write hold is what is in the outputs in the end; nothing goes wrong with its masks."""
    shown = played(name)
    arrays = {a["name"]: a for a in shown["arrays"]}
    for kernel in shown["kernels"]:
        assert kernel["programs"] and not any(p["error"] for p in kernel["programs"])
        for step in (s for p in kernel["programs"] for s in p["steps"] if "store" in kernel["lines"][s["line"]]):
            array = arrays[step["array"]]
            for lane in (n for n, state in enumerate(step["state"]) if state == "a"):
                place = (
                    np.ravel_multi_index([d[lane] for d in step["index"]], step["extents"]) if step["extents"] else 0
                )
                assert array["values"][place] == step["values"][lane]


def test_the_player_has_nothing_to_show_of_sizes_that_are_large() -> None:
    assert player(mt.compile("x + 1", x="f32[100000]").lower().compilation) is None


def test_layout_keeps_boxes_apart_and_edges_down() -> None:
    edges = [(a, b) for a in range(30) for b in range(a + 1, 30) if (a * 7 + b * 3) % 11 == 0]
    drawn = layout({n: (40.0 + n, 20.0) for n in range(30)}, edges)
    boxes = list(drawn.boxes.values())
    for k, a in enumerate(boxes):
        for b in boxes[:k]:
            across = a.x + a.width <= b.x or b.x + b.width <= a.x
            assert across or a.y + a.height <= b.y or b.y + b.height <= a.y
    assert all(drawn.boxes[a].y < drawn.boxes[b].y for a, b in edges)
    assert layout({}, []).boxes == {}


# ---- in a browser ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if reason := missing():
        pytest.skip(reason)
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def row(tab: Browser, pane: str, text: str) -> Any:
    """The line of a pane that holds a text."""
    rows = [r for r in tab.all(f".is-{pane} .row") if text in r.text]
    assert rows, f"no line of {pane} has {text!r}"
    return rows[0]


def lit(tab: Browser, pane: str, kind: str = "lit") -> list[str]:
    return tab.texts(f".is-{pane} .row.{kind}")


def test_opens_from_a_file_without_a_request(tab: Browser) -> None:
    seconds = tab.open(html("attention"))
    assert seconds < 1.5
    assert tab.requests() == [] and tab.errors() == []
    assert tab.ask("performance.getEntriesByType('resource').length") == 0
    assert len(tab.all(".pane")) == 3


def test_pointing_lights_counterparts_in_both_directions(tab: Browser) -> None:
    tab.open(small(), "#panes=source,drawn,tile,triton")
    tab.point(row(tab, "triton", "libdevice.exp("))
    assert any("exp" in line for line in lit(tab, "tile"))
    assert tab.texts(".box.lit") and "exp(x - max(x" in "".join(tab.texts(".is-source .piece.on"))
    (piece,) = [p for p in tab.all(".is-source .piece") if p.text.startswith("sum(")][:1]
    tab.point(piece)
    assert any("reduce.sum" in line for line in lit(tab, "tile"))
    assert any("reduce_sum" in line for line in lit(tab, "triton"))
    tab.point(tab.find(".box.apply"))
    assert lit(tab, "tile") and lit(tab, "triton")
    tab.point(tab.find(".top h1"))
    assert not lit(tab, "tile")
    tab.picture("mapping")


def test_a_click_pins_and_the_address_keeps_it(tab: Browser) -> None:
    tab.open(small(), "#panes=tile,triton")
    row(tab, "tile", "= exp").click()
    held = lit(tab, "triton", "pin")
    assert any("libdevice.exp" in line for line in held)
    tab.point(row(tab, "tile", "reduce.max"))
    assert lit(tab, "triton", "pin") == held and any("reduce_max" in line for line in lit(tab, "triton"))
    address = tab.ask("location.hash")
    tab.open(small(), address)
    assert lit(tab, "triton", "pin") == held
    tab.keys("\ue00c")  # escape
    assert not lit(tab, "triton", "pin")


def test_keys_reach_everything(tab: Browser) -> None:
    tab.open(small(), "#panes=source,tile")
    tab.keys("2", *["\ue015"] * 9)  # arrow down
    assert len(tab.all(".is-tile .row.cursor")) == 1 and lit(tab, "tile")
    tab.keys("\ue007")
    assert lit(tab, "tile", "pin")
    tab.keys("\ue014")  # arrow right: the next stage
    assert tab.all(".pane.is-tile-masked.active")
    tab.keys("+")
    assert len(tab.all(".pane")) == 3
    tab.keys("-")
    assert len(tab.all(".pane")) == 2
    tab.keys("/", "reduce", "\ue007")
    assert tab.all(".row.hit") and any("found" in t for t in tab.texts(".found"))
    tab.keys("\ue00c", "?")
    assert tab.ask("document.querySelector('dialog').open") and "minitri explore" in tab.find("dialog").text
    tab.keys("\ue00c")
    assert not tab.ask("document.querySelector('dialog').open")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_light_and_dark_wide_and_narrow(tab: Browser, width: int, height: int, dark: bool) -> None:
    tab.open(html("layer_norm"), width=width, height=height, dark=dark)
    assert tab.ask(
        "document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight"
    )
    assert contrast(tab) > 7
    assert all(p.size["width"] >= 300 and p.size["height"] > 100 for p in tab.all(".pane"))
    row(tab, "triton", "v0 = tl.load").click()
    tab.picture(f"layer_norm-{width}-{'dark' if dark else 'light'}")
    before = tab.ask("getComputedStyle(document.body).backgroundColor")
    tab.keys("t")
    assert tab.ask("getComputedStyle(document.body).backgroundColor") != before
    tab.ask("localStorage.clear()")


def contrast(tab: Browser) -> float:
    """Of text on its background, as WCAG has it."""

    def light(colour: str) -> float:
        parts = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
        line = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * line[0] + 0.7152 * line[1] + 0.0722 * line[2]

    a, b = (light(tab.ask(f"getComputedStyle(document.body).{part}")) for part in ("color", "backgroundColor"))
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


def test_hovering_answers_at_once_in_the_largest_example(tab: Browser) -> None:
    tab.open(html("attention"), "#panes=source,ttgir,ptx,sass")
    script = """(() => {
        const {links} = explorer, marks = explorer.programs[0].marks.map((_, k) => k), times = [];
        for (const mark of marks) {
            const start = performance.now();
            links.point(0, [mark]);
            document.body.offsetHeight;
            times.push(performance.now() - start);
        }
        links.point(0, []);
        return Math.max(...times);
    })()"""
    assert tab.ask(script) < 50


def test_the_player_steps_and_shows_what_a_lost_mask_does(tab: Browser) -> None:
    tab.open(mt.compile("examples/vector_add.mt").explore().html, "#panes=player,tile.masked")
    assert tab.texts(".statement.now")[0].strip().endswith("load x[i] {mask = [i < 7], other = 0}")
    assert "4 lanes read x" in tab.find(".said").text
    tab.find("[aria-label='next program']").click()
    tab.find("[aria-label='next program']").click()
    assert (
        "1 lane reads x, 3 masked" in tab.find(".said").text and len(tab.all(".cell.masked")) == 4
    )  # one of the legend
    tab.find(".drop input").click()
    assert (
        tab.texts(".beyond code") == ["x[7]", "x[8]", "x[9]"]
        and "out of bounds: its shape is [7]" in tab.find(".said .error").text
    )
    assert len(tab.all(".shown figure:first-child .cell.out")) == 3
    tab.picture("player")
    tab.find(".drop input").click()
    for _ in range(3):
        tab.find("[aria-label='next step']").click()
    assert "store out[i]" in tab.texts(".statement.now")[0]
    assert tab.errors() == []


def test_hostile_text_stays_text(tab: Browser) -> None:
    tab.open(mt.compile(HOSTILE).explore().html, "#panes=source,ast,triton")
    assert tab.ask("document.title") == "f · minitri"
    assert "</script><script>" in "".join(tab.texts(".is-source .row"))
    assert tab.all("#app script, #app img, #app iframe, #app style") == [] and tab.errors() == []
