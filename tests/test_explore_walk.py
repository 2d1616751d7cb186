"""The explorer's guided walk, its lines of explanation, and pages of programs with many kernels."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from browser import Browser
from short_profile import every_second, numbers
from test_explore_layout import faults, page

import minitri as mt
from minitri.explore.document import document
from minitri.explore.explanations import ABOUT, LANGUAGE, WORDS, _prefixes, words_of
from minitri.explore.machine_code import MachineCode
from minitri.explore.provenance import Trace
from minitri.testing import random_program
from minitri.triton import compiled_stages

RIGHT, LEFT, ESCAPE, DOWN = "\ue014", "\ue012", "\ue00c", "\ue015"
LAYERS = """\
def layer(x: f32[T, D], w: f32[D, D]) -> f32[T, D]:
    return x + relu(x @ w)

def model(x: f32[T, D], {weights}) -> f32[T, D]:
{calls}    return x
"""


def layers(count: int) -> str:
    weights = ", ".join(f"w{k}: f32[D, D]" for k in range(count))
    return LAYERS.format(weights=weights, calls="".join(f"    x = layer(x, w{k})\n" for k in range(count)))


def softmax() -> Any:
    return page("softmax", M=1000, N=300)


EXAMPLES = sorted(path.stem for path in Path("examples").glob("*.mt"))


def walk_of(name: str) -> list[dict[str, Any]]:
    return page(name).document["programs"][0]["walk"]


# ---- the steps ---------------------------------------------------------------------------


def test_the_walk_of_softmax_explains_each_stage() -> None:
    steps = softmax().document["programs"][0]["walk"]
    assert 10 <= len(steps) <= 12
    assert "`exp(x - max(x, axis=-1, keepdims=True))`" in steps[0]["text"]
    texts = {step["title"]: step["text"] for step in steps}
    simplified = texts["The graph, simplified"]
    assert "Here 9 lines became 7. The sizes are numbers now: M = 1000 and N = 300." in simplified
    assert "Conditions that these sizes meet are gone." in simplified and "(`compose_views`, 2×)" in simplified
    fusion, grid, tile, masks = (
        texts[t] for t in ("Kernels: fusion", "Tile programs: the grid", "A tile of the input", "Masks")
    )
    assert (
        "several operations in one kernel saves that, and is called fusion. Here one kernel runs 5 operations" in fusion
    )
    assert "From here on axes have names and sizes: i: 1000, j: 300." in fusion
    assert "One such run is a grid program." in grid and "All of them are the grid." in grid
    assert "Here 500 grid programs make up the grid, and each takes 2 of 1000 along i." in grid
    assert f"A tile is {WORDS['terms']['tile']}. A grid program holds it in registers" in tile
    assert "`load x[i, j]` loads the tile of `x`: 2 of 1000 along i and all 300 along j." in tile
    assert "A mask says for each element of a tile whether it is inside the array." in masks
    assert (
        "a tile has 512 elements along j. The array has 300. The mask `j < 300` of `load x[i, j]` leaves out what is past it."
        in masks
    )
    assert "counts as `-inf`, which changes no maximum; or as `0.0`, which changes no sum." in masks
    assert (
        "M = 7 and N = 5. It is not the program on the left. `in 4 lanes` means that the tile of a block of 3 along i has 4 elements"
        in texts["The player"]
    )
    triton = texts["Triton"]
    assert "`p0` is the start of `x` in memory. `i[:, None] * 300 + j[None, :]` is the place of each element" in triton
    assert "`rt` is a small library" in triton and "`tile.target` changed nothing" in triton
    assert (
        "The walk has 10 stages, from `graph` to `sass`. `ast`, `ttir` and `llir` are only in the free"
        in steps[0]["text"]
    )
    kinds = [step["sketch"]["kind"] for step in steps if step["sketch"]]
    assert kinds == ["fusion", "grid", "tile", "mask"]


def test_a_step_says_what_its_stage_has_and_what_is_gone() -> None:
    steps = softmax().document["programs"][0]["walk"]
    after_others = ("Triton's GPU IR", "PTX")  # the stages before these are not in the walk
    told = [s for s in steps if s["title"] not in ("Your program", "A tile of the input", "The player", *after_others)]
    for step in told:
        about = ABOUT[step["panes"][1]]
        assert step["text"].startswith(about) and re.search(r"\. [^.]+ (is|are) gone\.$", about), about
    assert len(told) == len(steps) - 5
    assert not any(re.search("(is|are) gone", s["text"]) for s in steps if s["title"] in after_others)


@pytest.mark.parametrize(
    ("name", "same"), [("softmax", ("tile.masked", "tile.target")), ("gelu", ("graph", "graph.simplified"))]
)
def test_a_step_between_equal_texts_is_left_out(name: str, same: tuple[str, str]) -> None:
    (shown,) = document(mt.compile(f"examples/{name}.mt").lower(target="interpreter").compilation)["programs"]
    texts = {s["name"]: s["text"] for s in shown["stages"] if "text" in s}
    assert texts[same[0]] == texts[same[1]] and [*same] not in [s["panes"] for s in shown["walk"]]
    assert all(
        texts.get(a) != texts.get(b) for a, b in (s["panes"] for s in shown["walk"]) if a in texts and b in texts
    )


def test_a_step_names_the_passes_that_changed_the_program() -> None:
    """The kernel of cross entropy starts while the one before it ends; its texts differ in nothing else."""
    text = next(s["text"] for s in walk_of("cross_entropy") if s["title"] == "The target")
    assert "(pass) `early-start` did this: it lets a kernel start before the previous kernel has ended" in text


def test_kernels_and_grid_programs_have_one_name_and_one_definition() -> None:
    steps = softmax().document["programs"][0]["walk"]
    assert f"A kernel is {WORDS['terms']['kernel']}." in steps[0]["text"]
    assert not re.search(
        r"(?<!grid )\bprograms? (does|make|makes|loads|writes|holds|would)", " ".join(s["text"] for s in steps)
    )


def test_the_highlighted_line_is_the_load_in_the_text() -> None:
    """The step about a tile highlights the load of x in the tile program."""
    (shown,) = softmax().document["programs"]
    step = next(s for s in shown["walk"] if s["sketch"] and s["sketch"]["kind"] == "tile")
    stage = next(s for s in shown["stages"] if s["name"] == "tile")
    lit = [text for text, marks in zip(stage["text"].split("\n"), stage["links"]) if set(marks) & set(step["marks"])]
    assert any("load x[i, j]" in line for line in lit) and "`load x[i, j]`" in step["text"]


@pytest.mark.parametrize("name", every_second(EXAMPLES))
def test_a_step_names_the_lines_of_what_its_text_explains(name: str) -> None:
    (shown,) = page(name).document["programs"]
    lines = {s["name"]: s["text"].split("\n") for s in shown["stages"] if "text" in s}
    steps = {step["title"]: step for step in shown["walk"]}
    for title in ("A tile of the input", "Masks"):
        step = steps[title]
        for pane, rows in zip(step["panes"], step["rows"]):
            assert all(re.search(rf"load {step['sketch']['name']}\[", lines[pane][k]) for k in rows) and len(rows) == 1
        (code,) = re.findall(r"`((?:load|store) [^`]+)`", step["text"])
        assert code in lines[step["panes"][1]][step["rows"][1][0]]
    assert f"mask = [{steps['Masks']['text'].partition('The mask `')[2].partition('`')[0]}" in "".join(
        lines["tile.masked"][steps["Masks"]["rows"][1][0]].replace("r < S, ", "").replace("r < K, ", "")
    )
    spelled = lines["triton"][steps["Triton"]["rows"][1][0]]
    assert "tl.load(" in spelled and "`tl.load`" in steps["Triton"]["text"]


@pytest.mark.parametrize("name", every_second(EXAMPLES))
def test_every_example_has_a_walk_with_sentences(name: str) -> None:
    steps = walk_of(name)
    assert 10 <= len(steps) <= 13 and all(step["marks"] and len(step["panes"]) == 2 for step in steps)
    for step in steps:
        assert re.search(r"(?<![\s.])\.$", step["text"]), step["text"]
        assert step["text"].count("`") % 2 == 0 and not re.search(r"did this: it [A-Z]|\bthe \(", step["text"])


def test_an_online_reduction_is_explained() -> None:
    texts = {step["title"]: step["text"] for step in walk_of("softmax")}
    assert "the sum so far is multiplied by `exp(old - new)`: the second `exp`" in texts["Kernels: fusion"]
    assert "`x - max` would be nan. So the lowest float, `-3.40…e+38`" in texts["Tile programs: the grid"]
    sized = {step["title"]: step["text"] for step in softmax().document["programs"][0]["walk"]}
    assert "second `exp`" not in sized["Kernels: fusion"] and "-inf" not in sized["Tile programs: the grid"]
    mean = {step["title"]: step["text"] for step in walk_of("layer_norm")}
    assert "running mean" in mean["Kernels: fusion"]
    assert {"old", "rescale"} <= page("softmax").document["words"]["ours"].keys()


def test_a_second_loop_over_the_same_array_is_explained() -> None:
    texts = {step["title"]: step["text"] for step in walk_of("softmax")}
    assert (
        "`x` is loaded twice. The first loop finds the `max` and the `sum`. Registers do not keep a row that is longer than"
        " a tile, so the second loop loads each block again, and computes `subtract`, `exp` and `divide`."
    ) in texts["A tile of the input"]
    grid = texts["Tile programs: the grid"]
    assert "`loop j: N by 4096` means N elements, in blocks of 4096." in grid
    assert "`returning` means that the second loop runs from the last block to the first." in grid
    tile = texts["A tile of the input"]
    assert (
        "`%1: f32[i] = carry %0` is a value that the loop takes from one iteration to the next. It begins as `%0`"
        in tile
    )
    assert "and `next %1 = %7` sets it at the end of an iteration." in tile
    assert "The variable `tile` is this number, and `i_tile` is the number of its block along i." in texts["Triton"]
    assert "all elements along j fit in one tile, so it needs no loop" in texts["The player"]
    assert "One of them is past the end of the block: its result is not used." in texts["The player"]
    assert "A thread holds 16 of the 4096 elements of the tile of `x`" in texts["PTX"]
    for other in ("matmul", "vector_add"):  # one loop, and none
        assert "is loaded" not in "".join(s["text"] for s in walk_of(other))


def test_names_of_sizes_are_explained_as_in_the_launch_plan() -> None:
    for name in ("softmax", "matmul", "embedding"):
        (shown,) = page(name).document["programs"]
        triton = next(s["text"] for s in shown["stages"] if s["name"] == "triton")
        step = next(s["text"] for s in shown["walk"] if s["title"] == "Triton")
        found = re.findall(r"`(s\d+)` is (\w+), the number of elements in a row\.", step)
        assert found and all(f"{size}={extent}," in triton.partition("# launch plan")[2] for size, extent in found)
    assert "`s" not in next(s["text"] for s in softmax().document["programs"][0]["walk"] if s["title"] == "Triton")


def test_a_loop_and_a_product_are_drawn() -> None:
    sketches = [step["sketch"] for step in page("matmul", M=512, K=512, N=512).document["programs"][0]["walk"]]
    tile = next(s for s in sketches if s and s["kind"] == "tile")
    assert [d["role"] for d in tile["dims"]] == ["grid", "loop"]


def test_casts_that_undo_each_other_are_explained() -> None:
    """The graph of a program of 16-bit values has many of them."""
    text = next(s["text"] for s in walk_of("attention") if s["title"] == "The graph, simplified")
    assert "Such casts come from 16-bit values" in text and "casts that undo each other" in WORDS["ours"]["cast"]
    assert "16-bit" not in "".join(s["text"] for s in walk_of("softmax"))


def test_without_triton_the_walk_ends_at_the_source_for_triton() -> None:
    one = mt.compile("exp(x)", x="f32[N]").lower(target="interpreter").compilation
    steps = document(one)["programs"][0]["walk"]
    assert steps[-1]["title"] == "Triton"


ODD = {
    "no loads": "def f(x: f32[N]):\n    return arange(N) * 2\n",
    "one element": "def f(x: f32[]):\n    return exp(x)\n",
    "a copy": "def f(x: f32[N, M]):\n    return x.mT\n",
    "a number": "def f(x: f32[N]):\n    return zeros((3, 4))\n",
    "no elements": "def f(x: f32[0, 4]):\n    return x + 1\n",
    "four axes": "def f(x: f32[A, B, C, D]):\n    return sum(x, axis=(1, 2))\n",
    "two results": "def f(x: f32[N], y: f32[N, M]):\n    return x + 1, cumsum(y, axis=1)\n",
}


@pytest.mark.parametrize("name", every_second(list(ODD)))
def test_odd_programs_have_a_walk_without_faults(tab: Browser, name: str) -> None:
    shown = mt.compile(ODD[name]).explore(target="interpreter")
    tab.open(shown.html)
    count = len(shown.document["programs"][0]["walk"])
    assert count >= 6
    for step in range(1, count + 1):
        assert tab.find(".walk h2").text.startswith(f"{step} of {count}") and faults(tab) == []
        tab.keys(RIGHT)
    assert tab.errors() == []


@pytest.mark.parametrize("seed", numbers(5, 12))
def test_random_programs_have_a_walk(seed: int) -> None:
    example = random_program(seed)
    one = example.compile().lower(target="interpreter", **example.sizes).compilation
    steps = document(one)["programs"][0]["walk"]
    assert all(step["marks"] and len(step["panes"]) == 2 for step in steps)


def test_a_program_that_computes_nothing_opens_in_the_free_view(tab: Browser) -> None:
    tab.open(mt.compile("def f(x: f32[N]):\n    return x\n").explore(target="interpreter").html)
    assert not tab.find(".walk").is_displayed() and tab.all(".pane") and tab.errors() == []


# ---- explanations --------------------------------------------------------------------------


def test_a_page_has_explanations_of_the_terms_that_it_shows() -> None:
    words = softmax().document["words"]
    assert words["sass"]["LDG"] == WORDS["sass"]["LDG"] and "HGMMA" not in words["sass"]
    assert {"exp", "load", "grid", "whole", "reduce.max"} <= words["ours"].keys()
    assert words_of([{"name": "ptx", "text": "ld.global.v4.b32 {%r1}, [%rd1];"}])["ptx"].keys() == {"ld.global"}


OPCODES = {
    "tile.target": r"(?: = |^ +)(\w[\w.]*) (?:%|x\[)",
    "ttgir": r"(?: = |^ +)([a-z]+\.\w+)",
    "llir": r"^  (?:%\S+ = )?(?:tail )?([a-z]+) ",
    "ptx": r"^\t(?:@!?\S+ +)?([a-z][\w.]+)",
    "sass": r"\t(?:@!?\S+ +)?([A-Z0-9_]+)",
}


@pytest.mark.parametrize("stage", OPCODES)
def test_most_instructions_of_the_examples_are_explained(stage: str) -> None:
    sizes = {"softmax": {"M": 64, "N": 500}, "matmul": {"M": 512, "N": 512, "K": 512}}
    for name, given in sizes.items():
        low = mt.compile(f"examples/{name}.mt").lower(**given)
        opcodes = re.findall(OPCODES[stage], low[stage], re.MULTILINE)
        known = words_of([{"name": stage, "text": low[stage]}])[LANGUAGE.get(stage, "ours")]
        explained = [op for op in opcodes if any(word in known for word in _prefixes(op))]
        assert len(opcodes) >= 2 and len(explained) > 0.95 * len(opcodes), set(opcodes) - set(explained)


def test_terms_of_the_walk_are_those_of_the_glossary() -> None:
    glossary = (Path(__file__).parent.parent / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    for term, line in WORDS["terms"].items():
        assert f"- **{term}**: {line} (" in glossary


# ---- in a browser --------------------------------------------------------------------------


def test_the_page_opens_on_the_walk(tab: Browser) -> None:
    tab.open(softmax().html)
    assert tab.find(".walk h2").text.startswith("1 of 12") and len(tab.all(".pane")) == 2
    assert "exp(x - max" in "".join(tab.texts(".is-source .piece.held")) and tab.all(".is-drawn .box.pin")
    tab.find(".walk .next").click()
    assert tab.ask("explorer.panes.map(p => p.id)") == ["source", "graph"] and any(
        "= exp" in t for t in tab.texts(".is-graph .row.pin")
    )
    tab.keys(RIGHT, RIGHT, RIGHT)  # the focus is on the walk
    assert tab.find(".walk h2").text == "5 of 12: Tile programs: the grid" and len(tab.all(".sketch .block.here")) == 1
    address = tab.ask("location.hash")
    tab.keys(LEFT)
    assert tab.find(".walk h2").text == "4 of 12: Kernels: fusion" and tab.texts(".sketch .here + text") == ["exp"]
    tab.open(softmax().html, address)
    assert tab.find(".walk h2").text == "5 of 12: Tile programs: the grid"
    tab.keys(ESCAPE)
    assert not tab.find(".walk").is_displayed() and tab.ask("explorer.panes.map(p => p.id)") == [
        "source",
        "drawn",
        "triton",
    ]
    assert tab.all(".is-triton .row.pin") and tab.errors() == []
    named = tab.find(".status .mark").text
    assert named == "exp(x - max(x, axis=-1, keepdims=True)): f32[M, N]"  # a number would be another one in each pane
    assert "not the fusion" in tab.find('[data-tip*="one instruction; it is not"]').get_attribute("data-tip")
    tab.find(".top button").click()
    assert tab.find(".walk").is_displayed()


def test_the_panes_do_not_jump_between_steps(tab: Browser) -> None:
    tab.open(softmax().html, "", 1440, 900)
    heights = set()
    for _ in range(tab.ask("explorer.walk.steps.length")):
        heights.add(tab.ask("document.querySelector('main').getBoundingClientRect().top"))
        long = "[...document.querySelectorAll('.pane .text')].filter(n => n.scrollWidth > n.clientWidth + 1).length"
        assert tab.ask(long) == 0  # long lines are wrapped
        tab.keys(RIGHT)
    assert len(heights) == 1


@pytest.mark.parametrize("name", every_second(EXAMPLES))
def test_important_lines_are_visible_at_each_step(tab: Browser, name: str) -> None:
    tab.open(page(name).html)
    tab.ask(
        """window.seen = (pane, lines) => [...document.querySelectorAll(`.is-${pane.replace('.', '-')} :is(${lines})`)].some(r => {
            const row = r.getBoundingClientRect(), text = r.closest('.text').getBoundingClientRect();
            return row.top >= text.top && row.bottom <= text.bottom;
        })"""
    )
    for step in walk_of(name):
        for pane, rows in zip(step["panes"], step["rows"]):
            if tab.ask("Boolean(explorer.panes.find(p => p.id === arguments[0]).view.reveal)", pane):
                lines = f'.row.named[data-line="{rows[0]}"]' if rows else ".row.pin, .row:has(.piece.held)"
                assert tab.ask("seen(...arguments)", pane, lines), (step["title"], pane)
        tab.keys(RIGHT)
    assert not tab.all(".row.named")  # in the free view


@pytest.mark.parametrize("name", every_second(EXAMPLES))
def test_drawings_show_what_the_text_says(tab: Browser, name: str) -> None:
    tab.open(page(name).html)
    for number, step in enumerate(walk_of(name), 1):
        if not (drawn := step["sketch"]):
            continue
        tab.ask("explorer.walk.show(arguments[0])", number)
        assert not any("…" in text for text in tab.texts(".sketch text"))
        assert not any(text.startswith("tile:") for text in tab.texts(".sketch text")) or drawn["kind"] == "mask"
        if drawn["kind"] == "grid":
            roles = [d["role"] for d in drawn["dims"][-2:]]
            places = [
                set(tab.ask(f"[...document.querySelectorAll('.sketch .block')].map(b => b.getAttribute('{at}'))"))
                for at in "yx"
            ]
            cut = [len(found) > 1 for found in places[-len(roles) :]]
            assert all(more == (role == "grid") for more, role in zip(cut, roles)), roles  # a loop is one strip
            assert len(tab.all(".sketch .block.here")) == 1
            assert ("this row, block by block" in tab.find(".sketch figcaption").text) == ("loop" in roles)


def test_an_address_with_panes_opens_no_walk(tab: Browser) -> None:
    tab.open(softmax().html, "#panes=source,triton")
    assert not tab.find(".walk").is_displayed()
    for hostile in ("walk=99", "walk=-1", "walk=x", "walk=1e9&panes=tile"):
        tab.open(softmax().html, f"#{hostile}")
        assert tab.all(".pane") and tab.errors() == []


def test_stages_and_words_are_explained_on_hover_and_by_keys(tab: Browser) -> None:
    tab.open(softmax().html, "#panes=source,tile,sass")
    tab.point(tab.find('.rail [data-stage="tile"]'))
    tab.wait("!document.querySelector('.tip').hidden")
    assert tab.find(".tip").text == ABOUT["tile"]
    tab.point(next(n for n in tab.all(".is-tile .op") if n.text == "reduce.max"))
    tab.wait(f"document.querySelector('.tip').textContent === {WORDS['ours']['reduce.max']!r}")
    tab.point(next(n for n in tab.all(".is-sass .op") if n.text.startswith("S2R")))
    tab.wait(f"document.querySelector('.tip').textContent === {WORDS['sass']['S2R']!r}")
    tab.keys("2", *[DOWN] * 7)
    line = tab.find(".is-tile .row.cursor").text
    assert any(
        f"{word}: {WORDS['ours'][word]}" == tab.find(".explained").text for word in WORDS["ours"] if word in line
    )


# ---- many kernels --------------------------------------------------------------------------


def test_equal_kernels_are_compiled_once() -> None:
    compiled = mt.compile(layers(4)).lower(T=64, D=32).compilation
    machine = MachineCode(compiled)
    names = [k.name for k in compiled.value("triton")]
    assert len(machine.kernels) < len(names)
    assert sorted(n for k in machine.kernels for n in (k.name, *k.twins)) == sorted(names)
    assert all(f"// kernel {k.title}\n" in machine.text("ptx") for k in machine.kernels)


def test_the_machine_code_of_equal_kernels_leads_to_each_of_them() -> None:
    compiled = mt.compile(layers(4)).lower(T=64, D=32).compilation
    trace = Trace(compiled)
    products = [k for k, n in enumerate(trace.nodes) if n.op == "contract"]
    own = [{k for nodes, how in zip(trace["ptx"].lines, trace["ptx"].how) if how == "own" for k in nodes}]
    assert len(products) == 4 and set(products) <= own[0]


def test_distinct_kernels_keep_their_texts() -> None:
    low = mt.compile("examples/cross_entropy.mt").lower(N=64, C=100)
    trace = Trace(low.compilation)
    assert all(trace[stage].text == low[stage] for stage in ("ttir", "ttgir", "ptx", "sass"))


def test_a_long_compilation_shows_its_progress() -> None:
    told: list[tuple[float, str]] = []
    document(mt.compile("x + 1", x="f32[64]").lower().compilation, tell=lambda done, text: told.append((done, text)))
    parts = [done for done, _ in told]
    assert parts == sorted(parts) and parts[0] == 0 and any("kernel 1 of 1" in text for _, text in told)


def test_triton_compiles_several_kernels_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel waits in the compiler until another one is there too."""
    both, compiled = threading.Barrier(2, timeout=60), compiled_stages.compiled

    def waiting(*args: Any) -> Any:
        both.wait()
        return compiled(*args)

    monkeypatch.setattr(compiled_stages, "compiled", waiting)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    code = MachineCode(mt.compile("softmax(x @ w)", x="f16[64, 32]", w="f16[32, 128]").lower().compilation)
    assert len(code.kernels) == 2
    code.make(lambda done, text: None)
    assert all(k.built.asm["ptx"] for k in code.kernels)


BLOCK = """\
def block(x: f16[T, D], wq: f16[D, D], wk: f16[D, D], wv: f16[D, D], wo: f16[D, D], g: f16[D], b: f16[D], w1: f16[D, F], w2: f16[F, D]) -> f16[T, D]:
    h = layer_norm(x, g, b)
    a = softmax((h @ wq) @ (h @ wk).mT * D**-0.5, axis=-1) @ (h @ wv)
    y = x + a @ wo
    return y + gelu(layer_norm(y, g, b) @ w1) @ w2
"""


@pytest.mark.slow
def test_six_transformer_blocks_take_less_than_a_minute(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    given = BLOCK[len("def block(x: f16[T, D], ") : BLOCK.index(")")]
    names = [part.partition(":")[0] for part in given.split(", ") if ":" in part]
    calls = "".join(f"    x = block(x, {', '.join(names)})\n" for _ in range(6))
    text = f"{BLOCK}\ndef model(x: f16[T, D], {given}) -> f16[T, D]:\n{calls}    return x\n"
    start = sum(os.times()[:4])  # CPU time of this process and its children: other programs run on this machine, too
    page = mt.compile(text).explore(T=512, D=256, F=1024)
    assert len(page.document["programs"][0]["ledger"]["plans"][0]["view"]["boxes"]) > 36 and len(page.html) < 4_000_000
    assert sum(os.times()[:4]) - start < 80  # two processors need less than a minute for this
