"""The explorer's page: the content of the file, and its behaviour in a real browser.

The tests keep pictures of it: EXPLORER_PICTURES=build/pictures pytest tests/test_explore.py
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from contextlib import chdir
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")
from short_profile import every_second

torch = pytest.importorskip("torch")
from browser import Browser
from click.testing import CliRunner
from gallery import gallery
from opening import REQUIRED, opened, slowest_hover
from test_explore_layout import page as shared_page

import minitri as mt
from minitri.cli.main import main
from minitri.explore.document import document
from minitri.explore.execution_trace import player
from minitri.explore.fusion_drawings import plans
from minitri.explore.graph_drawing import layout
from minitri.explore.page import FOLDER, Page
from minitri.explore.pass_changes import our_passes
from minitri.explore.provenance import Trace
from minitri.profile import profile

ROOT = Path(__file__).parent.parent
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
    return shared_page(name, **SIZES[name]).html


@cache
def small() -> str:
    return mt.compile("softmax(x + b)", x="f32[M, N]", b="f32[N]").explore(M=64, N=100).html


def quick(text: str, **types: str) -> str:
    """A page without Triton's stages."""
    return Page(document(mt.compile(text, **types).lower().compilation, quick=True)).html


def data(page: str) -> dict[str, Any]:
    """The JSON data of a page."""
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


@pytest.mark.parametrize(("name", "most"), list(REQUIRED["bytes"].items()))
def test_pages_are_small(name: str, most: int) -> None:
    assert len(html(name).encode()) < most


def test_hostile_text_is_data_only() -> None:
    page = quick(HOSTILE)
    assert page.count("<script") == small().count("<script")
    assert data(page)["programs"][0]["sources"][0]["text"] == HOSTILE
    assert "owned" not in page and "alert(1)" not in page


def test_the_command_on_the_page_makes_the_page_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
        "fusion",
    ]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    command = data((tmp_path / "main.html").read_text())["command"]
    assert command == "minitri explore -e 'x + y' -t 'x=f32[N]' -t 'y=f32[N]' -D N=7 --without fusion -o main.html"


def test_a_page_that_cannot_be_written_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "elsewhere")
    for output in (tmp_path / "nowhere" / "page.html", tmp_path / "link.html", tmp_path):
        result = CliRunner().invoke(
            main, ["explore", "-e", "x", "-t", "x=f32[N]", "--target", "interpreter", "-o", str(output)]
        )
        assert result.exit_code == 2, result.output
    assert not (tmp_path / "elsewhere").exists()
    result = CliRunner().invoke(main, ["explore", "-e", "x", "-t", "x=f32[N]", "--target", "interpreter", "-o", "-"])
    assert result.exit_code == 0 and result.stdout.startswith("<!doctype html>")


def test_comparison_and_open_panes_are_part_of_the_command(tmp_path: Path) -> None:
    words = "explore -e x+y -t x=f32[N] -t y=f32[N] --target interpreter".split()
    more = "-D N=64 --compare N=300 --compare blocks=i:32 --compare warps=2 --panes player,tile@1 -o".split()
    result = CliRunner().invoke(main, [*words, *more, str(tmp_path / "p.html")])
    assert result.exit_code == 0, result.output
    found = data((tmp_path / "p.html").read_text())
    first, second = found["programs"]
    assert (first["sizes"], second["sizes"], second["label"]) == ({"N": 64}, {"N": 300}, "N=300, blocks=i:32, warps=2")
    assert "grid i: 300 by 32" in {s["name"]: s.get("text") for s in second["stages"]}["tile"]
    assert found["panes"] == ["player", "tile@1"]
    again = "--compare N=300 --compare blocks=i:32 --compare warps=2 --panes player,tile@1 -o main.html"
    assert found["command"].endswith(again)
    for wrong in ("blocks=i", "warps=3", "M=3", "target=cuda:1"):
        assert CliRunner().invoke(main, [*words, "--compare", wrong, "-o", "-"]).exit_code == 2, wrong
    assert CliRunner().invoke(main, [*words, "--panes", "tiel", "-o", "-"]).exit_code == 2
    page = mt.compile("x + 1", x="f32[N]").explore(target="interpreter", compare={"N": 7}, panes=["ledger"])
    assert page.document["command"].endswith("--target interpreter --compare N=7 --panes ledger -o main.html")


def test_measured_times_are_part_of_the_page() -> None:
    f = mt.compile("softmax(x)", x="f32[M, N]")
    x = np.zeros((4, 5), np.float32)
    times = profile(f, x, repeats=1).measured  # times of the interpreter; with a GPU they would be the GPU's
    (program,) = f.explore(x, target="interpreter", measured=times).document["programs"]
    assert [k["measured"] for k in program["figures"]["kernels"]] == [None, *times.values()] and times["k0"] > 0
    (other,) = f.explore(x, target="cuda:90", measured=times).document["programs"]
    assert not any(k["measured"] for k in other["figures"]["kernels"])
    assert "left out: they are of Triton's interpreter, and this is cuda:90." in other["figures"]["missing"][0]
    result = CliRunner().invoke(main, ["explore", "-e", "x", "-t", "x=f32[N]", "-D", "N=4", "--measure", "-o", "-"])
    assert result.exit_code == 3 and "GPU" in result.stderr or torch.cuda.is_available()


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
    f, g = (mt.compile(f"examples/{name}.mt").lower(target="interpreter").compilation for name in ("linear", "matmul"))
    assert [p["label"] for p in document(f, g)["programs"]] == ["linear", "matmul"]


@cache
def played(name: str) -> dict[str, Any]:
    found = player(mt.compile(f"examples/{name}.mt").lower().compilation)
    assert found is not None
    return found


def test_the_player_shows_seven_elements_in_blocks_of_three() -> None:
    """The first example: what each element of a tile does, and where a load without its mask would read."""
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
    """Every element that a tile stores equals the final output. No program fails with its masks."""
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


def test_the_player_shows_no_large_sizes() -> None:
    assert player(mt.compile("x + 1", x="f32[100000]").lower().compilation) is None


@pytest.mark.parametrize("name", ["softmax", "attention"])
def test_patches_give_the_text_after_each_pass(name: str) -> None:
    low = mt.compile(f"examples/{name}.mt").lower(**SIZES.get(name, {"M": 64, "N": 1000}))
    now: list[str] = []
    for record, shown in zip(low.passes, our_passes(low.compilation), strict=True):
        made, at = [], 0
        for start, end, new, _ in shown["patch"]:
            made += now[at:start] + new
            at = end
        now = made + now[at:]
        assert "\n".join(now) == record.after.rstrip("\n"), record.name
        assert (ROOT / shown["where"].partition(":")[0]).exists() and shown["about"]


def test_the_ledger_says_what_each_fusion_saves() -> None:
    """Without one fusion, `fusion` makes another plan, which moves more bytes."""
    low = mt.compile("softmax(x + b)", x="f32[M, N]", b="f32[N]").lower(M=64, N=100)
    shown = plans(Trace(low.compilation))
    assert shown is not None
    made, none, *others = shown["plans"]
    assert (made["kernels"], made["bytes"]) == (1, 4 * (2 * 64 * 100 + 100))
    assert none["kernels"] == 6 and none["bytes"] > 4 * made["bytes"]
    assert len(others) == 5 and all(p["kernels"] >= 2 and p["bytes"] > made["bytes"] for p in others)
    asked = {d["value"]: shown["plans"][d["instead"]] for d in shown["decisions"]}
    assert asked["max: f32[64]"]["bytes"] == made["bytes"] + 4 * (
        64 * 100 + 100 + 2 * 64
    )  # x, b once more; the maxima twice
    words = {edge[3] for edge in made["view"]["edges"]}
    assert words == {"25.6 kB", "400 B"}


def test_a_ledger_of_symbolic_sizes_names_its_assumed_sizes() -> None:
    shown = plans(Trace(mt.compile("examples/softmax.mt").lower().compilation))
    assert shown is not None and shown["assumed"] == "M, N taken for 1024"


def test_passes_name_the_rules_that_fired() -> None:
    low = mt.compile("reshape(x.mT[::2].mT, (-1,)) * 1", x="f32[M, 8]").lower()
    (simplified,) = [p for p in our_passes(low.compilation) if p["name"] == "simplify"]
    rules = {rule["name"]: rule for rule in simplified["rules"]}
    assert rules["compose_views"]["count"] >= 2 if "compose_views" in rules else rules
    for rule in rules.values():
        path, line = rule["where"].split(":")
        assert f"def {rule['name']}" in (ROOT / path).read_text().splitlines()[int(line) - 1]


def test_the_gallery_has_a_page_for_each_program(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "one.mt").write_text("# <b>\ndef one(x: f32[N, D]) -> f32[N, D]:\n    return x + 1\n")
    (folder / "two.mt").write_text("def two(x: f32[*B, D]) -> f32[*B]:\n    return sum(x, axis=-1)\n")
    pages = gallery(folder, tmp_path / "out", {"D": 64})
    assert [p.name for p in pages] == ["index.html", "two.html", "one.html"]  # x + 1 has one node more than sum(x)
    index = pages[0].read_text()
    links = re.findall(r'href="(\w+\.html)#panes=([\w.,]+)"', index)
    assert {name for name, _ in links} == {"one.html", "two.html"} and "player,tile.masked" in {p for _, p in links}
    assert 'href="two.html"' in index and "&lt;b&gt;" in index and "<b>" not in index
    assert data(pages[1].read_text())["programs"][0]["sizes"] == {"D": 64, "B0": 2, "B1": 4}


def test_layout_keeps_boxes_apart_and_edges_down() -> None:
    edges = [(a, b) for a in range(30) for b in range(a + 1, 30) if (a * 7 + b * 3) % 11 == 0]
    boxes, lines = layout({n: (40.0 + n, 20.0) for n in range(30)}, edges)
    for k, a in boxes.items():
        for b in list(boxes.values())[:k]:
            across = a.x + a.width <= b.x or b.x + b.width <= a.x
            assert across or a.y + a.height <= b.y or b.y + b.height <= a.y
    assert all(boxes[a].y < boxes[b].y for a, b in edges) and set(lines) == set(edges)
    assert layout({}, []) == ({}, {})


# ---- in a browser ------------------------------------------------------------------------


def row(tab: Browser, pane: str, text: str) -> Any:
    """The line of a pane that contains a text."""
    rows = [r for r in tab.all(f".is-{pane} .row") if text in r.text]
    assert rows, f"no line of {pane} has {text!r}"
    return rows[0]


def lit(tab: Browser, pane: str, kind: str = "lit") -> list[str]:
    return tab.texts(f".is-{pane} .row.{kind}")


def test_opens_from_a_file_without_a_request(tab: Browser) -> None:
    assert opened(tab, html("attention"), 3) < REQUIRED["opens"]
    assert tab.requests() == [] and tab.errors() == []
    assert tab.ask("performance.getEntriesByType('resource').length") == 0
    assert len(tab.all(".pane")) == 4


def test_pointing_highlights_counterparts_in_both_directions(tab: Browser) -> None:
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
    tab.keys("\ue00c")  # Escape
    assert not lit(tab, "triton", "pin")


def test_the_keyboard_reaches_everything(tab: Browser) -> None:
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


@pytest.mark.parametrize("size, dark", every_second([(1280, 800), (390, 844)], [False, True]))
def test_light_and_dark_wide_and_narrow(tab: Browser, size: tuple[int, int], dark: bool) -> None:
    width, height = size
    panes = "source,triton" if width < 720 else "source,drawn,triton"
    tab.open(html("layer_norm"), f"#panes={panes}", width, height, dark)
    assert tab.ask(
        "document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight"
    )
    assert all(p.size["width"] >= 300 and p.size["height"] > 100 for p in tab.all(".pane"))
    row(tab, "triton", "v0 = tl.load").click()
    tab.picture(f"layer_norm-{width}-{'dark' if dark else 'light'}")
    before = tab.ask("getComputedStyle(document.body).backgroundColor")
    tab.keys("t")
    assert tab.ask("getComputedStyle(document.body).backgroundColor") != before
    tab.ask("localStorage.clear()")


def test_text_has_enough_contrast_with_its_background() -> None:
    """WCAG's level AA, in the light and the dark theme, also for highlighted and pinned text."""
    style = (FOLDER / "page.css").read_text()
    colours = {n: pair for n, *pair in re.findall(r"--([\w-]+): light-dark\(#(\w+), #(\w+)\)", style)}
    words = ("text", "faint", "accent", "good", "bad", "warn", "comment", "string", "name", "type", "number", "word")
    for scheme in (0, 1):
        for word in words:
            for behind in ("pane", "side", "lit", "pin"):
                found = contrast(colours[word][scheme], colours[behind][scheme])
                assert found >= 4.5, f"{word} on {behind}: {found:.1f}"


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours, given as `1f63c4`."""

    def light(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (0, 2, 4)]
        line = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * line[0] + 0.7152 * line[1] + 0.0722 * line[2]

    a, b = light(one), light(other)
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


def test_hovering_reacts_at_once_in_the_largest_example(tab: Browser) -> None:
    tab.open(html("attention"), "#panes=source,ttgir,ptx,sass")
    assert slowest_hover(tab) < REQUIRED["hover"]


def test_passes_show_what_changed(tab: Browser) -> None:
    tab.open(small(), "#panes=passes")
    assert (
        tab.find("[aria-selected=true] span").text == "simplify"
        and "minitri/optimize/simplify.py" in tab.find(".passhead").text
    )
    assert tab.all(".rule") and tab.all(".row.gone")
    tab.find(".rule summary").click()
    assert " → " in tab.find(".rule .case").text
    names = tab.texts(".passlist [role=option] span")
    assert "lower" in names and "split-scan" not in names  # a pass that changed nothing is not listed
    tab.find(".passlist .quiet").click()
    assert "split-scan" in tab.texts(".passlist [role=option] span")
    next(b for b in tab.all(".passlist button") if b.text.startswith("mask")).click()
    assert any("inside" in line for line in tab.texts(".row.new"))
    tab.picture("passes")


def test_the_ledger_shows_the_plan_without_a_fusion(tab: Browser) -> None:
    tab.open(small(), "#panes=ledger,source")
    assert "1 kernel, 52 kB moved" in tab.find(".ledger .choice").text
    assert tab.texts(".words text") and tab.texts(".decisions .verdict")[0] == "fused"
    tab.find(".decisions td button").click()
    assert "2 kernels" in tab.find(".ledger .choice").text and "times as much" in tab.find(".ledger .choice").text
    tab.picture("ledger")
    tab.point(tab.find(".decisions tbody tr"))
    assert tab.all(".is-source .piece.on") and tab.all(".box.lit") and tab.errors() == []
    tab.ask("document.querySelector('.decisions tbody tr').focus()")
    tab.keys("\ue007")
    assert tab.all(".is-source .piece.held") and tab.all(".decisions tr.pin")


def test_figures_are_drawn(tab: Browser) -> None:
    tab.open(html("attention"), "#panes=resources,source")
    kernels = [f"k{n}" for n in range(data(html("attention"))["programs"][0]["ledger"]["plans"][0]["kernels"])]
    assert len(tab.all(".roofline .point")) == 1 + len(kernels) and "H200" in tab.find(".figures").text
    assert tab.texts(".numbers td:first-child") == ["graph", *kernels, *kernels]
    assert tab.all(".mix i") and tab.errors() == []
    tab.picture("figures")
    tab.open(quick("x + 1", x="f32[N]"), "#panes=resources")
    assert "all sizes are known" in tab.find(".figures").text


def test_counterparts_in_another_program_have_the_same_text(tab: Browser) -> None:
    """At the same line, the two texts have different operations."""
    one, other = (
        mt.compile(f"def f(x: f32[N]):\n    return {body}\n").lower(target="interpreter").compilation
        for body in ("exp(x) + sin(x)", "cos(x) * exp(x)")
    )
    tab.open(Page(document(one, other)).html, "#panes=tile,tile@1")
    tab.point(row(tab, "tile", "= exp"))
    second = tab.texts(".pane:nth-of-type(2) .row.lit")
    assert len(second) == 1 and "= exp" in second[0]
    tab.point(row(tab, "tile", "= sin"))
    assert tab.texts(".pane:nth-of-type(2) .row.lit") == []


def test_measured_times_are_shown_in_the_roofline(tab: Browser) -> None:
    f = mt.compile("softmax(x)", x="f32[M, N]")
    tab.open(f.explore(M=4096, N=4096, measured={"k0": 1e-4}).html, "#panes=resources")
    head, *rows = (
        [c.text for c in r.find_elements("css selector", "th, td")] for r in tab.all(".numbers:first-of-type tr")[:3]
    )
    assert head[-2:] == ["measured", "reached"] and rows[1][-2:] == ["100.00 µs", "28%"]
    assert "; measured" in tab.find(".figures").text and tab.errors() == []


def test_spans_are_right_after_characters_of_two_utf16_units(tab: Browser) -> None:
    tab.open(
        quick("# \U0001f600 \U0001f600\r\ndef f(x: f32[N]):\r\n    return exp(x) + 1\r\n"),
        "#panes=source,triton",
    )
    tab.point(row(tab, "triton", "exp("))
    assert "".join(tab.texts(".is-source .piece.on")) == "exp(x)"


BLOCK = """\
def block(x: f32[T, D], w: f32[D, D], v: f32[D, D], g: f32[D], b: f32[D]) -> f32[T, D]:
    h = layer_norm(x, g, b)
    a = softmax(h @ w * 0.125, axis=-1)
    y = x + a @ v
    z = gelu(layer_norm(y, g, b))
    return y + z * sigmoid(z)
"""


def test_a_large_graph_is_folded_and_opens(tab: Browser) -> None:
    text = quick(BLOCK)
    folded, everything, *groups = data(text)["programs"][0]["views"]
    assert len(everything["boxes"]) > 24 > len(folded["boxes"])
    titles = [b["label"] for b in folded["boxes"] if b["kind"] == "group"]
    assert {"layer_norm, line 2", "softmax, line 3", "gelu, line 5"} <= set(titles) and [
        g["title"] for g in groups
    ] == titles
    marks = {m for b in everything["boxes"] for m in b["marks"]}
    for view in (folded, *groups):
        assert {m for b in view["boxes"] for m in b["marks"]} == marks  # a folded graph loses no mark
    tab.open(text, "#panes=drawn,source")
    assert len(tab.all(".box")) == len(folded["boxes"])
    tab.picture("folded")
    tab.driver.execute_script("explorer.panes[0].view.click(document.querySelector('.box.group'))")
    assert len(tab.all(".box")) > len(folded["boxes"])
    tab.picture("unfolded")


def test_each_call_of_an_own_function_is_a_box() -> None:
    calls = "\n".join(f"    x = block(x, w{k}, v{k}, g, b)" for k in range(3))
    given = ", ".join(f"w{k}: f32[D, D], v{k}: f32[D, D]" for k in range(3))
    text = f"{BLOCK}\ndef model(x: f32[T, D], g: f32[D], b: f32[D], {given}) -> f32[T, D]:\n{calls}\n    return x\n"
    folded, *_ = data(quick(text))["programs"][0]["views"]
    assert [b["label"] for b in folded["boxes"] if b["kind"] == "group"] == [f"block, line {k}" for k in (9, 10, 11)]


def test_a_graph_that_is_too_large_stays_folded() -> None:
    text = "def f(x: f32[N]):\n    y = exp(x)\n    return " + " + ".join(f"sin(y * {k})" for k in range(1, 201)) + "\n"
    (only,) = data(quick(text))["programs"][0]["views"]
    assert {b["label"]: b.get("opens") for b in only["boxes"] if b["kind"] == "group"} == {"line 3": 0}


def test_a_notebook_shows_the_page_in_a_frame(tab: Browser) -> None:
    shown = Page(document(mt.compile("exp(x)", x="f32[N]").lower().compilation, quick=True))
    tab.open(f"<body data-ready='yes'>{shown._repr_html_()}</body>")
    tab.driver.switch_to.frame(0)
    try:
        tab.wait("document.body && document.body.dataset.ready === 'yes'")
        row(tab, "triton", "exp(").click()
        assert tab.all(".is-source .piece.held")
    finally:
        tab.driver.switch_to.default_content()


def test_two_programs_side_by_side(tab: Browser) -> None:
    f = mt.compile("softmax(x + b)", x="f32[M, N]", b="f32[N]")
    both = [f.lower(M=64, N=100, target=t).compilation for t in ("cuda:90", "cuda:80")]
    tab.open(Page(document(*both)).html)
    assert len(tab.all(".pane")) == 3 and tab.all(".pane.is-diff")
    tab.point(row(tab, "triton", "libdevice.exp("))
    first, second = (tab.texts(f".pane:nth-of-type({n}) .row.lit") for n in (1, 2))
    assert first == second and 0 < len(first) < 8
    tab.driver.execute_script("explorer.panes[2].view.show('ptx')")
    assert any(".target sm_80" in line for line in tab.texts(".row.new")) and tab.errors() == []
    tab.picture("compare")


def test_every_line_is_printed(tab: Browser) -> None:
    tab.open(small(), "#panes=source,ptx")
    count = data(small())["programs"][0]["stages"][-2]["text"].rstrip("\n").count("\n") + 1
    assert len(tab.all(".is-ptx .row")) < count
    tab.driver.execute_cdp_cmd("Page.printToPDF", {})
    assert len(tab.all(".is-ptx .row")) == count and tab.errors() == []


def test_the_player_shows_the_effect_of_a_missing_mask(tab: Browser) -> None:
    tab.open(shared_page("vector_add").html, "#panes=player,tile.masked")
    assert tab.texts(".statement.now code")[0].strip().endswith("load x[i] {mask = [i < 7], other = 0}")
    assert "reads 4 elements of x" in tab.find(".said").text
    tab.find("[aria-label='next grid program']").click()
    tab.find("[aria-label='next grid program']").click()
    assert (
        "reads 1 element of x, 3 masked" in tab.find(".said").text and len(tab.all(".cell.masked")) == 4
    )  # one of them is in the legend
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


def test_the_player_shows_the_operands_of_a_reduction(tab: Browser) -> None:
    tab.open(shared_page("softmax").html, "#panes=player")
    line = next(k for k, text in enumerate(tab.texts(".statement")) if "reduce.sum" in text)
    tab.driver.execute_script(f"explorer.panes[0].view.jump({line})")
    taken, made = tab.all(".shown figure")
    assert taken.text.startswith("%") and made.text.startswith("%")
    assert "reduces 4 × 8 elements of %6 over j to 4" in tab.find(".said").text
    lanes = [c.text for c in taken.find_elements("css selector", ".cells .cell")]
    assert lanes[5:8] == ["0", "0", "0"] and len(lanes) == 4 * 8  # past the end of a row there are zeros
    tab.picture("reduction")


def test_the_player_goes_to_the_step_that_a_missing_mask_breaks(tab: Browser) -> None:
    """That step is in the second iteration of a loop. All accesses of the first iteration are inside the arrays."""
    tab.open(mt.compile("examples/matmul.mt").explore(target="interpreter").html, "#panes=player")
    tab.find(".drop input").click()
    assert "reads x[0, 18], out of bounds: its shape is [20, 18]" in tab.find(".said .error").text
    assert len(tab.all(".shown figure:first-child .cell.out")) == 16 * 14
    tab.find(".drop input").click()
    line = next(k for k, text in enumerate(tab.texts(".statement")) if " = dot " in text)
    tab.driver.execute_script(f"explorer.panes[0].view.jump({line})")
    assert "multiplies 16 × 16 elements of %2 over r to 16 × 16" in tab.find(".said").text and tab.errors() == []


def test_the_player_is_linked_to_every_pane(tab: Browser) -> None:
    tab.open(shared_page("softmax", M=64, N=100).html, "#panes=player,source,triton,sass")
    line = next(s for s in tab.all(".statement") if "= exp" in s.text)
    tab.point(line)
    assert "exp(x - max" in "".join(tab.texts(".is-source .piece.on"))
    assert any("libdevice.exp" in text for text in lit(tab, "triton")) and lit(tab, "sass")
    line.click()
    assert any("libdevice.exp" in text for text in lit(tab, "triton", "pin")) and tab.all(".statement.pin")
    tab.keys("\ue00c")
    row(tab, "triton", "rt.reduce_max(").click()  # in the other direction: the player goes to the maximum
    assert "reduce.max" in tab.texts(".statement.now")[0] and "reduces 4 × 8 elements" in tab.find(".said").text
    tab.find("[aria-label='step before']").click()
    assert lit(tab, "triton") and tab.errors() == []


def test_the_player_shows_every_program_of_the_grid(tab: Browser) -> None:
    tab.open(html("attention"), "#panes=player")
    kernel = data(html("attention"))["programs"][0]["player"]["kernels"][0]
    assert len(kernel["programs"]) == kernel["count"] == len(tab.all(".grid button")) == 8
    tab.all(".grid button")[-1].click()
    assert "Grid program (3, 1)" in tab.find(".said").text


def test_the_player_draws_an_array_of_four_axes_as_slices_with_values(tab: Browser) -> None:
    tab.open(html("attention"), "#panes=player")
    assert tab.texts(".shown figure:first-child .slices .hint") == [
        f"[{i}, {j}, :, :]" for i in range(2) for j in range(2)
    ]
    assert tab.find(".shown .cell").size["width"] < 12  # 4 × 20 × 18 elements: small squares
    next(b for b in tab.all(".controls button") if b.text == "values").click()
    cell = tab.find(".shown .cell")
    assert (
        cell.size["width"] >= 30
        and cell.text == "0"
        and tab.find(".slices").value_of_css_property("overflow") == "auto"
    )


def test_masked_elements_and_elements_past_the_end_look_different(tab: Browser) -> None:
    tab.open(shared_page("vector_add").html, "#panes=player")
    looks = """['masked', 'past'].map(kind => {
        const cell = document.createElement('i');
        cell.className = `cell ${kind}`;
        document.querySelector('.legend').append(cell);
        const {backgroundImage, borderStyle} = getComputedStyle(cell);
        return backgroundImage + borderStyle;
    })"""
    masked, past = tab.ask(looks)
    assert masked != past


@pytest.mark.parametrize(
    "fragment",
    ["panes=%3Cimg src=x onerror=alert(1)%3E", "panes=source@99,__proto__,constructor@-1", "pin=0.__proto__.1e9",
     "pin=constructor.1", "panes=" + "a," * 5000, "program=%%%", "pin=0." + "9." * 2000, "panes=tile&pin=0.-1.0"],
)  # fmt: skip
def test_hostile_addresses_open_the_page(tab: Browser, fragment: str) -> None:
    tab.open(small(), f"#{fragment}")
    assert tab.all(".pane") and not tab.all("#app img") and tab.errors() == []
    assert set(tab.ask("explorer.panes.map(p => p.id)")) <= {"source", "drawn", "triton", "tile"}


def test_hostile_text_stays_text(tab: Browser) -> None:
    tab.open(quick(HOSTILE), "#panes=source,ast,triton")
    assert tab.ask("document.title") == "f · minitri"
    assert "</script><script>" in "".join(tab.texts(".is-source .row"))
    text = "".join(tab.texts(".is-source .row"))
    assert "\u202e" not in text and "\u2028" not in text and "{{ 7 * 7 }} ${alert(1)} &lt;b&gt; \ufffd \ufffd" in text
    assert tab.all("#app script, #app img, #app iframe, #app style") == [] and tab.errors() == []
