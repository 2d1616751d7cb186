"""The layout of the explorer's page at every width: no text is cut off or overlaps, and the keyboard reaches
everything.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from browser import Browser
from short_profile import every_second, one_in, slow_except

import minitri as mt
from minitri.explore.execution_trace import player

FAULTS = Path(__file__).with_name("page_faults.js").read_text(encoding="utf-8")
SIZES = [(390, 844), (1024, 768), (1440, 900), (2560, 1300)]
PANES = ("source,drawn,triton", "passes,resources,player", "ledger,kernels,sass")
RIGHT, LEFT, ENTER, ESCAPE, TAB, DOWN, HOME = "\ue014", "\ue012", "\ue007", "\ue00c", "\ue004", "\ue015", "\ue011"


@cache
def page(name: str, **sizes: Any) -> Any:
    """The page of an example, which all tests of the explorer share."""
    return mt.compile(f"examples/{name}.mt").explore(**sizes)


def attention() -> str:
    return page("attention", B=(2, 4), T=512, S=512, D=64).html


def softmax() -> str:
    return page("softmax", M=1000, N=300).html


@cache
def layers() -> str:
    return mt.compile(LAYERS).explore(D=256, target="interpreter").html


def faults(tab: Browser) -> list[str]:
    return tab.ask(FAULTS[FAULTS.index("(() =>") :])


def pin_exp(tab: Browser) -> None:
    tab.ask("explorer.links.pinned(0, [explorer.programs[0].marks.findIndex(m => m.label.includes('= exp'))])")


@pytest.mark.parametrize("size, dark", every_second(SIZES, [False, True]))
def test_nothing_is_cut_off_or_overlaps(tab: Browser, size: tuple[int, int], dark: bool) -> None:
    width, height = size
    for panes in PANES:
        tab.open(attention(), f"#panes={panes}", width, height, dark)
        pin_exp(tab)
        assert faults(tab) == [], panes
        tab.picture(f"attention-{width}-{panes}{'-dark' * dark}")
        assert tab.errors() == []


LAYER = "    x = x + softmax(x @ (layer_norm(x, g, b) @ w).mT) @ w\n"
LAYERS = f"def f(x: f16[D, D], w: f16[D, D], g: f16[D], b: f16[D]) -> f16[D, D]:\n{LAYER * 6}    return x\n"
PAGES = {
    "softmax": lambda: page("softmax").html,
    "attention": lambda: page("attention").html,
    "attention of known sizes": attention,
    "layers": layers,
}
DRAWN = ("drawn", "passes", "ledger", "resources", "player")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == "layers" else n for n in PAGES])
def test_nothing_is_cut_off_in_a_pane_alone_and_beside_the_source(tab: Browser, name: str) -> None:
    html = PAGES[name]()
    for width, height in SIZES[::3] if name == "softmax" else SIZES[:1]:
        tab.open(html, "#panes=source", width, height)
        panes = tab.ask("explorer.kinds[0].map(kind => kind.id)")  # the stages of all programs look alike
        for pane in panes if name == "softmax" else DRAWN:
            for shown in ([pane], ["source", pane]):
                tab.ask("explorer.arrange(arguments[0])", shown)
                assert faults(tab) == [], (width, shown)
    assert tab.errors() == []


@pytest.mark.parametrize("size, panes", every_second(SIZES[:3], ["ledger", "source,ledger", "drawn"]))
def test_a_wide_drawing_begins_at_its_highest_box(tab: Browser, size: tuple[int, int], panes: str) -> None:
    tab.open(layers(), f"#panes={panes}", *size)
    tab.wait(
        """[...document.querySelectorAll('.drawing')].every(drawing => {
            const around = drawing.getBoundingClientRect(), boxes = [...drawing.querySelectorAll('.box')].map(b => b.getBoundingClientRect());
            const [first] = boxes.sort((a, b) => a.top - b.top);
            return first.left >= around.left && first.right <= around.right && first.top >= around.top && first.bottom <= around.bottom;
        })""",
        seconds=5,
    )


def test_labels_of_a_crowd_of_edges_do_not_overlap(tab: Browser) -> None:
    tab.open(softmax(), "#panes=ledger")
    tab.ask(
        """(drawing => {
            const {edges} = drawing.drawings[0];
            edges.push(...Array(9).fill(edges[0]));
            drawing.show(0);
        })(explorer.panes[0].view.drawing)"""
    )
    assert 3 <= len(tab.texts(".drawing .words")) < 11 == len(tab.texts(".drawing .edge title")) and faults(tab) == []


def test_long_labels_of_boxes_are_whole_on_several_lines(tab: Browser) -> None:
    """A kernel of many operations, and a node with a long shape."""
    text = "def f(x: f32[N], w: f32[K]):\n    return outer(gelu(silu(x)), tanh(w)) * concat((w, w[1:], w[2:], sin(w)))[:1]\n"
    shown = mt.compile(text).explore(target="interpreter")
    tab.open(shown.html, "#panes=ledger,drawn", 1440, 900)
    boxes = tab.ask(
        """[...document.querySelectorAll('.box')].map(box => {
            const rect = box.querySelector('rect').getBBox(), lines = [...box.querySelectorAll('text')];
            const inside = lines.every(t => { const b = t.getBBox(); return b.x >= rect.x && b.y >= rect.y
                && b.x + b.width <= rect.x + rect.width && b.y + b.height <= rect.y + rect.height; });
            return [lines.map(t => t.textContent), box.querySelector('title').textContent, inside];
        })"""
    )
    assert any(len(lines) > 3 for lines, _, _ in boxes)
    for lines, title, inside in boxes:
        assert inside and "…" not in title and all(line in title for line in lines), lines
    assert faults(tab) == []


OTHERS = {
    "a long name": "def weighted_softmax_of_rows(inputs_of_the_layer: f32[BATCH_SIZE, SEQUENCE_LENGTH]):\n    return softmax(inputs_of_the_layer)",
    "many kernels": "def f(x: f16[64, 64]):\n    return (softmax(x @ x) @ x) @ x",
    "three axes": "def f(x: f32[B, M, N], w: f32[N, K]):\n    return sum(x @ w, axis=1)",
}  # fmt: skip


@pytest.mark.parametrize("name, size", one_in(3, list(OTHERS), SIZES[::3]))
def test_nothing_is_cut_off_for_other_programs(tab: Browser, name: str, size: tuple[int, int]) -> None:
    html = mt.compile(OTHERS[name]).explore().html
    for panes in (*PANES, "ast,graph,tile.target", ""):
        tab.open(html, panes and f"#panes={panes}", *size)
        assert faults(tab) == [], panes


@pytest.mark.parametrize("size", slow_except(SIZES[::3], SIZES))
def test_nothing_is_cut_off_in_the_walk(tab: Browser, size: tuple[int, int]) -> None:
    width, height = size
    tab.open(softmax(), "", width, height)
    for step in range(tab.ask("explorer.walk.steps.length")):
        assert faults(tab) == [], step
        tab.picture(f"walk-{width}-{step + 1}")
        tab.keys(RIGHT)
    assert tab.errors() == []


def test_counts_of_all_stages_are_visible_while_a_span_is_pinned(tab: Browser) -> None:
    tab.open(attention(), "#panes=source,drawn,triton", 1440, 900)
    pin_exp(tab)
    counted = [s for s in tab.ask("explorer.programs[0].stages.map(s => s.name)")]
    shown = [s for s in counted if tab.texts(f'.rail [data-stage="{s}"] sup') != [""]]
    assert shown == counted and faults(tab) == []
    lines = tab.ask(
        "explorer.programs[0].stages.at(-1).links.filter(marks => marks.some(m => explorer.links.pin.marks.has(m))).length"
    )
    assert tab.texts('.rail [data-stage="sass"] sup') == [str(lines)]


def test_choosing_a_stage_does_not_move_the_source(tab: Browser) -> None:
    tab.open(softmax(), "#panes=source,drawn,triton")
    tab.find('.rail [data-stage="ptx"]').click()
    assert tab.ask("explorer.panes.map(p => p.id)") == ["source", "drawn", "ptx"]
    tab.find(".is-source .row").click()
    tab.find('.rail [data-stage="sass"]').click()
    assert tab.ask("explorer.panes.map(p => p.id)") == ["source", "drawn", "sass"]
    tab.find('.rail [data-stage="drawn"]').click()  # this stage is already shown
    assert tab.ask("explorer.active.id") == "drawn" and len(tab.all(".pane")) == 3
    tab.open(softmax(), "#panes=source")
    tab.find('.rail [data-stage="tile"]').click()
    assert tab.ask("explorer.panes.map(p => p.id)") == ["source", "tile"]


def test_borders_of_panes_move_by_pointer_and_by_keys(tab: Browser) -> None:
    from selenium.webdriver import ActionChains

    tab.open(softmax(), "#panes=source,triton")
    before = tab.find(".is-source").size["width"]
    ActionChains(tab.driver, duration=0).drag_and_drop_by_offset(tab.find(".split"), -200, 0).perform()
    dragged = tab.find(".is-source").size["width"]
    assert abs(before - 200 - dragged) < 5
    tab.ask("document.querySelector('.split').focus()")
    tab.keys(RIGHT, RIGHT)
    assert tab.find(".is-source").size["width"] > dragged + 60
    assert tab.ask("explorer.panes.map(p => p.id)") == ["source", "triton"]  # the arrow keys change no stage here
    tab.keys(HOME)
    assert tab.find(".is-source").size["width"] < 200 and int(tab.find(".split").get_attribute("aria-valuenow")) == 12


def test_panes_change_places_by_pointer_and_by_keys(tab: Browser) -> None:
    from selenium.webdriver import ActionChains

    tab.open(softmax(), "#panes=source,triton,sass")
    tab.ask("explorer.panes[1].view.reveal(20)")
    tab.keys("1", ">")
    assert (
        tab.ask("explorer.panes.map(p => p.id)")
        == ["triton", "source", "sass"]
        == tab.ask("[...document.querySelectorAll('main > .pane')].map(n => n.className.match(/is-(\\w+)/)[1])")
    )
    assert len(tab.all("main > .split")) == 2 and "triton,source,sass" in tab.ask("location.hash")
    grip = tab.find(".is-sass > header .space")
    ActionChains(tab.driver, duration=0).click_and_hold(grip).move_to_element(
        tab.find(".is-triton .text")
    ).release().perform()
    assert tab.ask("explorer.panes.map(p => p.id)") == ["sass", "triton", "source"] and tab.errors() == []


WITH_CONTROLS = ["source,ledger,player", "drawn,passes,resources", "kernels,sass,graph"]


@pytest.mark.parametrize("size, panes", every_second([SIZES[0], SIZES[2]], WITH_CONTROLS))
def test_tab_reaches_every_control(tab: Browser, size: tuple[int, int], panes: str) -> None:
    tab.open(softmax(), f"#panes={panes}", *size)
    controls = "[...document.querySelectorAll('#app :is(button, select, input, [tabindex])')].filter(n => n.checkVisibility() && !n.disabled)"
    tab.ask("window.named = n => `${n.tagName} ${n.dataset.stage ?? n.getAttribute('aria-label') ?? n.textContent}`")
    tab.ask("window.reached = new Set()")
    for _ in range(len(tab.ask(f"{controls}.map(named)")) + 40):
        tab.keys(TAB)
        tab.ask("reached.add(named(document.activeElement))")
    assert tab.ask(f"{controls}.map(named).filter(name => !reached.has(name))") == []


def test_the_focus_stays_where_a_stage_was_chosen(tab: Browser) -> None:
    tab.open(softmax(), "#panes=source,triton")
    tab.ask("document.querySelector('.rail [data-stage=ptx]').focus()")
    tab.keys(ENTER)
    assert tab.ask("document.activeElement.dataset.stage") == "ptx" and tab.all(".is-ptx")
    tab.ask("document.querySelector('.is-ptx select').focus()")
    tab.keys(DOWN)
    assert tab.ask("document.activeElement.tagName") == "SELECT" and tab.all(".is-sass")


def test_passes_stay_in_their_pane(tab: Browser) -> None:
    tab.open(attention(), "#panes=passes,resources,player", 1440, 900)
    right = tab.ask("document.querySelector('.is-passes').getBoundingClientRect().right")
    assert (
        tab.ask(
            "Math.max(...[...document.querySelectorAll('.is-passes *')].filter(n => n.checkVisibility() && !n.closest('.chunk')).map(n => n.getBoundingClientRect().right))"
        )
        <= right + 1
    )


def test_names_in_the_roofline_are_beside_their_dots(tab: Browser) -> None:
    tab.open(attention(), "#panes=resources")
    apart = """[...document.querySelectorAll('.roofline .point')].map(p => {
        const [dot, name] = [p.querySelector('circle').getBoundingClientRect(), p.querySelector('text').getBoundingClientRect()];
        return Math.max(name.left - dot.right, dot.left - name.right, name.top - dot.bottom, dot.top - name.bottom);
    })"""
    assert max(tab.ask(apart)) < 12
    assert len(tab.texts(".roofline .rate")) >= 3 and all(t.endswith("FLOP/s") for t in tab.texts(".roofline .rate"))


def test_only_types_have_the_colour_of_types(tab: Browser) -> None:
    tab.open(softmax(), "#panes=source")

    def types(line: str, language: str) -> list[str]:
        return tab.ask(
            "explorer.tokens(arguments[0], arguments[1]).filter(p => p[1] === 'type').map(p => p[0])", line, language
        )

    assert types("def k0(p0, s1, s8, b1):  # f32", "python") == []
    assert types("x: f32[M, s8] = add b1, %0", "ours") == ["f32"]
    assert types("%3 = arith.addf %1, %2 : tensor<4xf32> i1", "mlir") == ["tensor", "i1"]
    assert types("\tadd.s32 \t%r3, %r1, s1;", "ptx") == []  # a part of an instruction's name
    assert types("\t.reg .b32 \t%r<20>;", "ptx") == [".b32"]


# ---- the player --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(Path("examples").glob("*.mt")), ids=lambda p: p.stem)
def test_every_program_of_the_grid_can_be_chosen(path: Path) -> None:
    shown = player(mt.compile(path).lower().compilation)
    assert shown is not None
    for kernel in shown["kernels"]:
        assert len(kernel["programs"]) == kernel["count"], kernel["name"]


def test_an_array_has_the_axes_that_the_program_declares(tab: Browser) -> None:
    tab.open(mt.compile("x + 1", x="f32[A, B, C]").explore().html, "#panes=player")  # the kernel reads one axis of 210
    assert tab.texts(".shown figcaption")[0] == "x: f32[7, 5, 6]"
    assert tab.texts(".slices .hint")[:7] == [f"[{k}, :, :]" for k in range(7)]
    tab.find('[data-tip="grid program (12) of k0"]').click()
    tab.ask("explorer.panes[0].view.jump(2)")
    lit = "[...document.querySelectorAll('.shown figure:first-child .now')].map(n => n.dataset.tip.split(' = ')[0])"
    assert tab.ask(lit) == ["x[1,1,0]", "x[1,1,1]", "x[1,1,2]"]


def test_a_pinned_line_is_the_next_step_of_the_player(tab: Browser) -> None:
    tab.open(attention(), "#panes=source,player,sass")
    pin_exp(tab)
    assert "exp" in tab.find(".statement.now").text or "multiply" in tab.find(".statement.now").text
