"""The editor of the served explorer in a real browser: problems, links to stages, completion, sizes, examples, files."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from browser import Browser
from serving import running
from short_profile import one_in
from test_explore_layout import SIZES, faults

from minitri.cli.request import Request
from minitri.explore.page import EDITOR, FOLDER
from minitri.explore.serve import EXAMPLES, Server

ROOT = Path(__file__).parent.parent
BUNDLE = FOLDER / "codemirror.js"
MANIFEST = ROOT / "tests" / "codemirror"
ENTER, ESCAPE, TAB, BACK, DOWN, RIGHT, F8, CONTROL = (
    "\ue007",
    "\ue00c",
    "\ue004",
    "\ue003",
    "\ue015",
    "\ue014",
    "\ue038",
    "\ue009",
)
SOFTMAX = next(e["text"] for e in EXAMPLES if e["name"] == "softmax")
WRONG = """\
def f(x: f32[M, N]) -> f32[M, N]:
    # \U0001f600 two units
    y = softmax(x, axis=7)
    z = log(x, 2) + foo
    return y + z
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(first={"text": SOFTMAX, "sizes": {"M": 1000, "N": 300}}) as made:
        made.rate = 1e9
        made.quick.seconds = made.full.seconds = 120  # the machine may be busy
        yield made


def begun(tab: Browser, server: Server, width: int = 1280, height: int = 800, dark: bool = False) -> None:
    """Opens the page with its first program and waits for minitri's own stages."""
    tab.visit(server.address, width, height, dark)


def settled(tab: Browser) -> None:
    """Waits for all stages of the program in the editor."""
    tab.wait(
        "document.querySelector('.editor > header [role=status]').textContent.endsWith(' ms') && !explorer.document.programs[0].quick",
        seconds=120,
    )


def write(tab: Browser, text: str, sizes: dict[str, Any] | None = None) -> None:
    """Replaces the program, as a click in the gallery does. Waits for minitri's own stages or for the problems."""
    tab.ask("explorer.editor.choose({text: arguments[0], sizes: arguments[1]})", text, sizes or {})
    tab.wait(
        "explorer.editor.code.text === explorer.programs[0].sources[0].text || !document.querySelector('.problems').hidden",
        seconds=60,
    )


def content(tab: Browser) -> str:
    return tab.ask("explorer.editor.code.text")


def type_at_end(tab: Browser, *keys: str) -> None:
    tab.ask("explorer.editor.code.go({start: explorer.editor.code.text.length, end: explorer.editor.code.text.length})")
    tab.keys(*keys)


def underlined(tab: Browser) -> list[str]:
    return tab.texts(".cm-lintRange-error")


# ---- the bundle ----------------------------------------------------------------------------


def test_the_bundle_is_made_from_its_folder() -> None:
    """`npm run build` in tests/codemirror/ makes it again."""
    files = [(MANIFEST / name).read_bytes() for name in ("build.js", "bundle.js", "package.json", "package-lock.json")]
    head = BUNDLE.read_text("ascii").partition("*/")[0]
    assert hashlib.sha256(b"".join(files)).hexdigest() in head


def test_the_bundle_has_the_licence_of_each_package() -> None:
    packages = json.loads((MANIFEST / "package-lock.json").read_text())["packages"]
    head = BUNDLE.read_text().partition("*/")[0]
    bundled = {
        n.removeprefix("node_modules/"): p["version"]
        for n, p in packages.items()
        if n and "esbuild" not in n and not n.endswith("/lr")  # the bundler leaves these out
    }
    assert all(f"{name} {version}" in head for name, version in bundled.items()), bundled
    assert head.count("Permission is hereby granted") == head.count("MIT License") or head.count("Copyright (C)") >= 4
    assert all(package.get("license") == "MIT" for name, package in packages.items() if name)


def test_the_bundle_makes_no_requests_and_no_html() -> None:
    text = BUNDLE.read_text().partition("*/")[2]
    assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new Function|fetch\(|XMLHttpRequest|</script", text
    )


def test_only_a_served_page_has_the_editor(server: Server) -> None:
    from test_explore import quick

    assert "codemirror" not in quick("x + 1", x="f32[N]") and EDITOR[0] == "codemirror"


# ---- problems ------------------------------------------------------------------------------


def test_all_problems_are_underlined_and_listed(tab: Browser, server: Server) -> None:
    begun(tab, server)
    write(tab, WRONG)
    assert underlined(tab) == ["softmax(x, axis=7)", "log(x, 2)", "foo"]
    assert [p.split("MT")[0] for p in tab.texts(".problems li")][:2] == [
        "3:9axis 7 is out of range for an array of rank 2it has 2 axes: -2 to 1; write softmax(x, axis=-1)fix",
        "4:9log takes 1 argument, not 2write log2(x)fix",
    ]
    assert tab.all("main.stale") and tab.ask("document.querySelectorAll('.problems .error').length") == 3
    tab.picture("editor-problems")


def test_a_problem_is_explained_at_its_place(tab: Browser, server: Server) -> None:
    begun(tab, server)
    write(tab, WRONG)
    tab.point(tab.all(".cm-lintRange-error")[1])
    tab.wait("document.querySelector('.cm-tooltip .cm-diagnostic')")
    assert tab.texts(".cm-diagnostic strong") == ["log takes 1 argument, not 2"]
    assert "log2(x)" in tab.find(".cm-diagnostic p").text and not tab.all(".cm-tooltip .about")
    tab.find(".cm-diagnosticAction").click()
    assert "z = log2(x) + foo" in content(tab)
    tab.wait("document.querySelectorAll('.problems li').length === 2")
    assert underlined(tab) == ["softmax(x, axis=7)", "foo"] and tab.errors() == []


def test_the_keyboard_reaches_problems_and_their_corrections(tab: Browser, server: Server) -> None:
    begun(tab, server)
    write(tab, WRONG)
    tab.ask("explorer.editor.code.go({start: 0, end: 0})")
    tab.keys(F8)
    selected = "(s => explorer.editor.code.text.slice(s.from, s.to))(explorer.editor.code.view.state.selection.main)"
    assert tab.ask(selected) == "softmax(x, axis=7)"
    tab.keys(F8)
    assert tab.ask(selected) == "log(x, 2)"
    tab.ask("document.querySelectorAll('.problems .help button')[0].focus()")
    tab.keys(ENTER)
    assert "axis=-1" in content(tab)
    tab.ask("document.querySelectorAll('.problems li > button')[1].focus()")
    tab.keys(ENTER)
    assert tab.ask("explorer.editor.code.view.hasFocus")


def test_undo_takes_back_a_correction(tab: Browser, server: Server) -> None:
    from selenium.webdriver import ActionChains

    begun(tab, server)
    write(tab, WRONG)
    tab.find(".problems .help button").click()
    assert content(tab) != WRONG
    ActionChains(tab.driver).key_down(CONTROL).send_keys("z").key_up(CONTROL).perform()
    assert content(tab) == WRONG


def test_a_correction_of_another_text_does_nothing(tab: Browser, server: Server) -> None:
    begun(tab, server)
    write(tab, WRONG)
    changed = tab.ask(
        "(() => { const b = document.querySelector('.problems .help button'), e = explorer.editor.code;"
        "e.view.dispatch({changes: {from: 0, insert: '# more\\n'}}); const before = e.text; b.click(); return [before, e.text]; })()"
    )
    assert changed[0] == changed[1]


def test_a_condition_on_sizes_is_a_note(tab: Browser, server: Server) -> None:
    begun(tab, server)
    write(tab, "def f(x: f32[M, N], b: f32[K]) -> f32[M, N]:\n    return x + b\n")
    tab.wait("!document.querySelector('.problems').hidden")
    assert "needs K == N" in tab.find(".problems .warning").text and not tab.all("main.stale")
    assert tab.texts(".cm-lintRange-warning") == ["x + b"]


def test_a_stopped_server_is_a_problem_without_a_place(tab: Browser, server: Server) -> None:
    begun(tab, server)
    tab.ask("window.fetch = () => Promise.reject(new TypeError())")
    type_at_end(tab, "#")
    tab.wait("!document.querySelector('.problems').hidden")
    assert "the server does not answer" in tab.find(".problems").text


# ---- typing --------------------------------------------------------------------------------


def test_stages_follow_the_typed_text(tab: Browser, server: Server) -> None:
    from selenium.webdriver import ActionChains

    begun(tab, server)
    tab.find(".cm-content").click()
    ActionChains(tab.driver).key_down(CONTROL).send_keys("a").key_up(CONTROL).perform()
    tab.keys("def f(x: f32[M, N]) -> f32[M]:", ENTER, "return sum(cosh(x), axis=1)")
    assert content(tab) == "def f(x: f32[M, N]) -> f32[M]:\n    return sum(cosh(x), axis=1)"  # Enter indents
    tab.wait("document.title.startsWith('f ') && document.querySelector('.is-triton').textContent.includes('cosh')")
    tab.keys(" + z")
    tab.wait("document.querySelector('main.stale')")
    tab.keys(BACK * 4)
    tab.wait("document.querySelector('.problems').hidden && !document.querySelector('main.stale')")
    settled(tab)
    link = tab.driver.current_url
    assert "program=" in link
    tab.visit(link)
    tab.wait("document.title.startsWith('f ')")
    assert "cosh" in content(tab) and tab.errors() == []


def test_tab_indents_and_escape_leaves(tab: Browser, server: Server) -> None:
    begun(tab, server)
    tab.keys("e")
    assert tab.ask("explorer.editor.code.view.hasFocus")
    type_at_end(tab, TAB, "#")
    assert content(tab).endswith("\n    #") and tab.ask("explorer.editor.code.view.hasFocus")
    tab.keys(ESCAPE, ESCAPE, TAB)  # the first one may close a completion
    assert not tab.ask("explorer.editor.code.view.hasFocus")


def test_tab_reaches_every_control_of_the_editor(tab: Browser, server: Server) -> None:
    begun(tab, server)
    write(tab, WRONG, {"M": 4})
    controls = "[...document.querySelectorAll('.editor :is(button, select, input, [contenteditable=true])')].filter(n => n.checkVisibility())"
    tab.ask("window.reached = new Set()")
    tab.ask("document.querySelector('.top input').focus()")
    for _ in range(60):
        tab.keys(ESCAPE, TAB)
        tab.ask("reached.add(document.activeElement)")
    assert tab.ask(f"{controls}.filter(n => !reached.has(n)).map(n => n.outerHTML)") == []


def test_colours_are_those_of_the_source_pane(tab: Browser, server: Server) -> None:
    begun(tab, server)
    tab.ask("explorer.panes[0].show('source')")
    colours = """(selector => [...document.querySelectorAll(selector)].map(line => {
        const walk = document.createTreeWalker(line, NodeFilter.SHOW_TEXT), found = [];
        while (walk.nextNode()) if (!walk.currentNode.parentNode.matches('.row > .number:first-child')) {
            for (const c of walk.currentNode.data) found.push([c, getComputedStyle(walk.currentNode.parentNode).color]);
        }
        return found;
    }))"""
    editor, pane = tab.ask(f"[{colours}('.cm-line'), {colours}('.is-source .row')]")
    assert [line for line in editor if line] == pane and len({colour for line in pane for _, colour in line}) >= 4


# ---- links ---------------------------------------------------------------------------------


def lit(tab: Browser, pane: str, kind: str = "lit") -> list[str]:
    return tab.texts(f".is-{pane} .row.{kind}")


def piece(tab: Browser, text: str) -> tuple[int, int]:
    """The position of a text in the editor, in pixels."""
    at = content(tab).index(text) + len(text) // 2
    box = tab.ask(
        "(b => [b.left + 2, (b.top + b.bottom) / 2])(explorer.editor.code.view.coordsAtPos(arguments[0]))", at
    )
    return round(box[0]), round(box[1])


def pointer(tab: Browser, x: int, y: int, click: bool = False) -> None:
    from selenium.webdriver.common.action_chains import ActionBuilder

    tab.wait(f"explorer.editor.code.view.posAndSideAtCoords({{x: {x}, y: {y}}})")  # CodeMirror has measured its lines
    builder = ActionBuilder(tab.driver, duration=0)
    builder.pointer_action.move_to_location(x - 1, y)  # a pointer that is already at the place would not move
    builder.pointer_action.move_to_location(x, y)
    if click:
        builder.pointer_action.click()
    builder.perform()


def test_pointing_at_the_program_highlights_lines_of_the_stages(tab: Browser, server: Server) -> None:
    begun(tab, server)
    settled(tab)
    tab.ask("explorer.arrange(['tile', 'triton', 'sass'])")
    pointer(tab, *piece(tab, "exp("))
    assert any("libdevice.exp" in line for line in lit(tab, "triton")) and lit(tab, "sass") and lit(tab, "tile")
    assert "exp(" in "".join(tab.texts(".cm-line .piece.on"))
    tab.picture("editor-links")
    pointer(tab, *piece(tab, "exp("), click=True)
    held = lit(tab, "triton", "pin")
    assert any("libdevice.exp" in line for line in held) and tab.all(".cm-line .piece.held")
    pointer(tab, *piece(tab, "exp("))
    tab.wait(
        "document.querySelector('.cm-tooltip .about')"
    )  # above the text, so that the pointer can still reach the text
    pointer(tab, *piece(tab, "sum("))
    assert lit(tab, "triton", "pin") == held and any("reduce_sum" in line for line in lit(tab, "triton"))


def test_highlights_stay_when_machine_code_arrives(tab: Browser, server: Server) -> None:
    begun(tab, server)
    x, y = piece(tab, "exp(")
    pointer(tab, x, y, click=True)
    pointer(tab, *piece(tab, "sum("))
    settled(tab)
    assert any("libdevice.exp" in line for line in lit(tab, "triton", "pin"))
    assert any("reduce_sum" in line for line in lit(tab, "triton")) and "sum(" in "".join(
        tab.texts(".cm-line .piece.on")
    )


def test_pointing_at_a_line_highlights_the_program(tab: Browser, server: Server) -> None:
    begun(tab, server)
    settled(tab)
    row = next(r for r in tab.all(".is-triton .row") if "reduce_max" in r.text)
    tab.point(row)
    assert "max(x, axis=-1, keepdims=True)" in "".join(tab.texts(".cm-line .piece.on"))
    row.click()
    assert "max(" in "".join(tab.texts(".cm-line .piece.held"))


def test_the_cursor_highlights_lines_too(tab: Browser, server: Server) -> None:
    begun(tab, server)
    settled(tab)
    start = content(tab).index("exp(")
    tab.ask("explorer.editor.code.go({start: arguments[0], end: arguments[0]})", start - 1)
    tab.keys(RIGHT)
    assert any("libdevice.exp" in line for line in lit(tab, "triton"))
    from selenium.webdriver import ActionChains

    ActionChains(tab.driver).key_down(CONTROL).send_keys(ENTER).key_up(CONTROL).perform()
    assert any("libdevice.exp" in line for line in lit(tab, "triton", "pin")) and content(tab) == SOFTMAX
    tab.keys(ESCAPE)
    assert not lit(tab, "triton", "pin")


def test_nothing_is_highlighted_before_the_text_is_compiled(tab: Browser, server: Server) -> None:
    begun(tab, server)
    settled(tab)
    pointer(tab, *piece(tab, "exp("), click=True)
    assert tab.all(".cm-line .piece.held")
    at_once = "document.querySelectorAll('.cm-line .piece').length, explorer.editor.code.marksAt(60)"
    change = "explorer.editor.code.view.dispatch({changes: {from: 0, insert: '# '}})"
    assert tab.ask(f"(() => {{ {change}; return [{at_once}]; }})()") == [0, []]


# ---- the walk ------------------------------------------------------------------------------


def test_the_walk_follows_the_program_in_the_editor(tab: Browser, server: Server) -> None:
    begun(tab, server)
    settled(tab)
    assert not tab.find(".walk").is_displayed()
    tab.find(".top button").click()
    assert tab.find(".walk h2").text == "1 of 12: Your program" and "exp(x - max" in tab.find(".walk p").text
    assert tab.ask("explorer.panes.map(p => p.id)") == ["drawn"]  # the editor stands for the source
    assert "exp(x - max" in "".join(tab.texts(".cm-line .piece.held")) and tab.all(".is-drawn .box.pin")
    tab.keys(RIGHT, RIGHT, RIGHT, RIGHT, RIGHT)
    assert tab.find(".walk h2").text == "6 of 12: A tile of the input" and "walk=6" in tab.driver.current_url
    write(tab, "def f(table: f32[M, N]) -> f32[M, N]:\n    return tanh(table) * 2\n", {"M": 64, "N": 48})
    settled(tab)
    assert "load table[" in tab.find(".walk p").text and tab.all(".is-tile .row.pin")
    assert tab.ask("explorer.panes.map(p => p.id)") == ["kernels", "tile"] and tab.errors() == []
    tab.visit(tab.driver.current_url)
    settled(tab)
    assert "6 of 12" in tab.find(".walk h2").text and "load table[" in tab.find(".walk p").text
    tab.find(".walk .next").send_keys(ESCAPE)
    assert not tab.find(".walk").is_displayed() and tab.all(".is-triton .row.pin") and tab.errors() == []


def test_the_walk_waits_for_the_machine_code(tab: Browser, server: Server) -> None:
    begun(tab, server)
    settled(tab)
    tab.find(".top button").click()
    tab.ask(
        "(ask => { window.fetch = (url, o) => JSON.parse(o.body).all ? new Promise(() => {}) : ask(url, o); })(window.fetch)"
    )
    tab.ask("explorer.editor.code.focus()")
    write(tab, SOFTMAX.replace("exp(", "exp2("))
    assert tab.find(".walk h2").text == "1 of 12: Your program"
    assert tab.ask("['.top button', '.walk .next'].map(s => document.querySelector(s).disabled)") == [True, True]
    assert tab.ask("explorer.editor.code.view.hasFocus") and tab.errors() == []


@pytest.mark.parametrize(("width", "height"), SIZES[::3])
def test_nothing_is_cut_off_in_the_walk(tab: Browser, server: Server, width: int, height: int) -> None:
    begun(tab, server, width, height)
    settled(tab)
    tab.find(".top button").click()
    for step in range(tab.ask("explorer.walk.steps.length")):
        assert faults(tab) == [], step
        tab.picture(f"editor-walk-{width}-{step + 1}")
        tab.keys(RIGHT)
    assert tab.errors() == []


def test_a_program_without_steps_has_no_walk(tab: Browser, server: Server) -> None:
    begun(tab, server)
    write(tab, "def f(x: f32[N]) -> f32[N]:\n    return x\n")
    settled(tab)
    assert not tab.find(".top button").is_displayed() and tab.errors() == []


# ---- completion ----------------------------------------------------------------------------


def offered(tab: Browser) -> list[str]:
    tab.wait("document.querySelector('.cm-tooltip-autocomplete li')")
    return tab.texts(".cm-tooltip-autocomplete li")


def test_completions_of_functions_show_their_description(tab: Browser, server: Server) -> None:
    begun(tab, server)
    type_at_end(tab, "    y = softm")
    tab.until(["softmax", "log_softmax"], lambda: offered(tab)[:2])  # the list follows what is typed
    tab.wait("document.querySelector('.cm-completionInfo')?.textContent.includes('softmax(x, axis=-1)')")
    assert "without overflow" in tab.find(".cm-completionInfo").text
    tab.picture("editor-completion")
    time.sleep(0.5)  # CodeMirror accepts no completion within 75 ms, to prevent accidents
    tab.keys(TAB)
    assert content(tab).endswith("y = softmax(")


def test_types_attributes_and_own_names_are_completed(tab: Browser, server: Server) -> None:
    begun(tab, server)
    write(
        tab,
        "def layer(weight: f16[Rows, Cols], b: f16[Cols]):\n    shifted = weight + b\n    return shifted\n\ndef g(x: ",
    )
    type_at_end(tab, "f")
    tab.until(["f16type", "f32type", "f64type"], lambda: offered(tab)[:3])
    tab.keys(ESCAPE, BACK)
    for typed, wanted in (
        ("x.m", "mTattribute"),
        ("weigh", "weightvariable"),
        ("shif", "shiftedvariable"),
        ("Ro", "Rowsvariable"),
        ("laye", "layer"),
        ("bitwise_x", "bitwise_xor"),
    ):
        type_at_end(tab, f"\n{typed}")
        tab.wait(
            f"[...document.querySelectorAll('.cm-tooltip-autocomplete li')].some(n => n.textContent === '{wanted}')"
        )
        tab.keys(ESCAPE)
    type_at_end(tab, "\n# softm")
    time.sleep(0.4)
    assert not tab.all(".cm-tooltip-autocomplete")


def test_a_function_under_the_pointer_is_explained(tab: Browser, server: Server) -> None:
    begun(tab, server)
    settled(tab)
    pointer(tab, *piece(tab, "exp("))
    tab.wait("document.querySelector('.cm-tooltip .about')")
    assert tab.find(".cm-tooltip .about").text == "exp(x)\ne to the power x"


# ---- sizes, target -------------------------------------------------------------------------


def fields(tab: Browser) -> dict[str, str]:
    return tab.ask("Object.fromEntries([...document.querySelectorAll('.fields input')].map(n => [n.name, n.value]))")


def test_sizes_can_be_given_and_cleared(tab: Browser, server: Server) -> None:
    begun(tab, server)
    assert fields(tab) == {"M": "1000", "N": "300"} and "these sizes only" in tab.find(".sizes").text
    tab.find(".sizes button").click()
    assert fields(tab) == {"M": "", "N": ""} and "any sizes" in tab.find(".sizes [role=status]").text
    tab.wait("document.querySelector('.chip').textContent.endsWith('any sizes')")
    assert tab.ask("explorer.programs[0].sizes") == {} and not tab.find(".sizes button").is_displayed()
    tab.keys("64")  # the first field has the focus
    tab.wait("explorer.programs[0].sizes.M === 64")
    assert tab.ask("document.activeElement.name") == "M" and fields(tab) == {"M": "64", "N": ""}


def test_sizes_of_removed_names_are_not_used(tab: Browser, server: Server) -> None:
    begun(tab, server)
    tab.ask("explorer.editor.code.replace(arguments[0])", SOFTMAX.replace("M", "Rows"))
    tab.wait("document.querySelector('.fields input[name=Rows]')")
    assert fields(tab) == {"Rows": "", "N": "300"} and tab.ask("explorer.editor.request.sizes") == {"N": 300}
    assert not tab.all("main.stale")


def test_a_wrong_size_is_an_error(tab: Browser, server: Server) -> None:
    begun(tab, server)
    tab.find(".fields input").send_keys("x")
    assert "M: a size, as in 512" in tab.find(".sizes").text
    assert tab.find(".fields input").get_attribute("aria-invalid") == "true"
    assert tab.ask("explorer.editor.request.sizes") == {"N": 300}


def test_axes_and_numbers_have_fields(tab: Browser, server: Server) -> None:
    begun(tab, server)
    write(tab, "def f(x: f32[*B, D], k: int) -> f32[*B, D]:\n    return x * k\n", {"B": [2, 4]})
    assert fields(tab) == {"B": "2,4", "D": "", "k": ""} and "give k a value" in tab.find(".problems").text
    tab.find(".fields input[name=k]").send_keys("3")
    tab.wait("document.querySelector('.problems').hidden && explorer.programs[0].sizes.B1 === 4")
    assert tab.ask("explorer.editor.request.sizes") == {"B": [2, 4], "k": 3}


# ---- examples, files -----------------------------------------------------------------------


def test_the_gallery_shows_every_example(tab: Browser, server: Server) -> None:
    begun(tab, server)
    tab.find(".editor > header button").click()
    assert tab.texts(".card h3") == [e["name"] for e in EXAMPLES]
    assert all("def " in t for t in tab.texts(".card pre")) and all(tab.texts(".card > p"))
    tab.picture("gallery")
    tab.keys(TAB, TAB, ENTER)
    assert not tab.ask("document.querySelector('.gallery').open") and content(tab) == EXAMPLES[2]["text"]
    tab.find(".editor > header button").click()
    tab.find(".card:nth-child(4)").click()  # the whole card is a button
    assert content(tab) == EXAMPLES[3]["text"]
    tab.wait("document.title.startsWith('matmul')")
    assert fields(tab) == {n: str(v) for n, v in EXAMPLES[3]["sizes"].items()} and tab.errors() == []


def test_the_command_and_the_page_read_a_saved_file(tab: Browser, server: Server, tmp_path: Path) -> None:
    begun(tab, server)
    text = "def twice(x: f32[*B, D]) -> f32[*B, D]:\n    return x * 2\n"
    write(tab, text, {"B": [3], "D": 5})
    tab.ask("(t => { t.value = 'cuda:80'; t.dispatchEvent(new Event('change')); })(explorer.editor.target)")
    tab.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    next(b for b in tab.all(".editor > header button") if b.text == "save").click()
    path, end = tmp_path / "twice.mt", time.process_time() + 20
    while not path.exists():
        assert time.process_time() < end
        time.sleep(0.02)
    assert path.read_text() == f"# minitri explore -D B=3, -D D=5 --target cuda:80\n{text}"
    request = Request(file=str(path)).as_shared()
    assert (request.sizes, request.target) == ({"B": (3,), "D": 5}, "cuda:80")
    assert request.lower().compilation.context.sizes == {"B0": 3, "D": 5}
    assert request.shown() == {"text": text, "sizes": {"B": [3], "D": 5}, "target": "cuda:80"}
    write(tab, SOFTMAX)
    tab.find(".editor input[type=file]").send_keys(str(path))
    tab.wait("document.title.startsWith('twice')")
    assert content(tab) == text and fields(tab) == {"B": "3", "D": "5"}
    assert tab.ask("explorer.editor.request.target") == "cuda:80" and tab.errors() == []


def dropped(tab: Browser, name: str, text: str) -> None:
    tab.ask(
        "(() => { const d = new DataTransfer(); d.items.add(new File([arguments[1]], arguments[0]));"
        "for (const kind of ['dragover', 'drop']) document.querySelector('.cm-content').dispatchEvent(new DragEvent(kind, {dataTransfer: d, bubbles: true, cancelable: true})); })"
        ".apply(null, arguments)",
        name,
        text,
    )


def test_a_file_may_be_dropped(tab: Browser, server: Server) -> None:
    begun(tab, server)
    dropped(tab, "a.mt", "# minitri explore -D N=9\ndef dropped(x: f32[N]):\n    return x\n")
    tab.wait("document.title.startsWith('dropped')")
    assert content(tab) == "def dropped(x: f32[N]):\n    return x\n" and fields(tab) == {"N": "9"}
    dropped(tab, "plain.mt", SOFTMAX)  # any program is compiled for any sizes
    tab.wait("document.title.startsWith('softmax')")
    assert content(tab) == SOFTMAX and fields(tab) == {"M": "", "N": ""}
    for text, said in (("x" * 70_000, "larger than a program may be"), ("\0", "is not a text")):
        dropped(tab, "<img src=x>.mt", text)
        tab.wait(f"document.querySelector('.problems').textContent.includes('{said}')")
        assert "<img src=x>" in tab.find(".problems").text and content(tab) == SOFTMAX
    assert not tab.all(".problems img") and tab.errors() == []


@pytest.mark.parametrize(
    "line",
    [
        "# minitri explore -D M=512 -o /etc/passwd",
        "# minitri explore --serve",
        "# minitri explore -D M=$(id)",
        "#minitri explore -D M=5",
        " # minitri explore -D M=5",
        "# minitri explore --target cuda:80;x",
        "# minitri explore -D M=5 --without fusion",
    ],
)
def test_other_first_lines_are_comments(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.mt"
    path.write_text(f"{line}\ndef f(x: f32[M]):\n    return x\n")
    assert Request(file=str(path)).as_shared() == Request(file=str(path))


def test_the_command_wins_over_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.mt"
    path.write_text("# minitri explore -D M=5 -D N=6 --target cuda:80\ndef f(x: f32[M, N]):\n    return x\n")
    shared = Request(file=str(path), sizes={"M": 7}, target="cuda:90").as_shared()
    assert (shared.sizes, shared.target) == ({"M": 7, "N": 6}, "cuda:90")


# ---- the page as a whole -------------------------------------------------------------------


@pytest.mark.parametrize("size, dark", one_in(4, SIZES, [False, True]))  # the smallest light, the largest dark
def test_nothing_is_cut_off(tab: Browser, server: Server, size: tuple[int, int], dark: bool) -> None:
    begun(tab, server, *size, dark)
    assert faults(tab) == []
    write(tab, WRONG.replace("N]", "N, *Rest]"), {"M": 1000})
    assert faults(tab) == []
    tab.picture(f"editor-{size[0]}{'-dark' * dark}")
    type_at_end(tab, "    w = l")
    offered(tab)
    tab.wait("document.querySelector('.cm-completionInfo')")
    assert faults(tab) == []
    tab.picture(f"editor-completion-{size[0]}{'-dark' * dark}")
    tab.keys(ESCAPE)
    tab.find(".editor > header button").click()
    assert faults(tab) == [] and tab.errors() == []


def test_the_border_of_the_editor_can_be_moved(tab: Browser, server: Server) -> None:
    begun(tab, server)
    before = tab.find(".editor").size["width"]
    tab.ask("document.querySelector('.split').focus()")
    tab.keys(RIGHT, RIGHT)
    assert tab.find(".editor").size["width"] > before + 30


def test_the_page_makes_requests_to_its_server_only(tab: Browser, server: Server) -> None:
    tab.requests()
    begun(tab, server)
    write(tab, WRONG)
    assert {url for url in tab.requests() if not url.startswith((server.address, "data:", "about:", "file:"))} == set()


def test_hostile_text_stays_text(tab: Browser, server: Server) -> None:
    begun(tab, server)
    text = "# </script><img src=x onerror=alert(1)> \u202e \u2028 \u200b {{ 7 * 7 }}\ndef f(x: f32[N]):\n    return `<b>` + x.constructor + __proto__\n"
    write(tab, text)
    assert content(tab) == text and not tab.all("#app img:not(.cm-widgetBuffer), .cm-line b, .problems b")
    assert "\u202e" not in tab.find(".cm-content").text and tab.errors() == []
    for word in ("constructor", "__proto__", "toString"):
        type_at_end(tab, f"\n{word}")
    time.sleep(0.3)
    assert tab.errors() == []


def test_a_problem_of_machine_code_leaves_the_stages_as_they_are(tab: Browser, server: Server) -> None:
    begun(tab, server)
    tab.ask(
        '(ask => { window.fetch = (url, o) => JSON.parse(o.body).all ? Promise.resolve(new Response(\'{"error": {"message": "too slow"}}\')) : ask(url, o); })(window.fetch)'
    )
    write(tab, SOFTMAX.replace("softmax", "other"))
    tab.wait("document.querySelector('.problems').textContent.includes('too slow')")
    assert not tab.all("main.stale") and any("def k0" in line for line in tab.texts(".is-triton .row"))


def test_undo_ends_at_the_first_program(tab: Browser, server: Server) -> None:
    from selenium.webdriver import ActionChains

    begun(tab, server)
    type_at_end(tab, "# more")
    for _ in range(3):
        ActionChains(tab.driver).key_down(CONTROL).send_keys("z").key_up(CONTROL).perform()
    assert content(tab) == SOFTMAX


def test_a_page_of_a_saved_file(tmp_path: Path) -> None:
    from click.testing import CliRunner
    from test_explore import data

    from minitri.cli.main import main

    path = tmp_path / "a.mt"
    path.write_text("# minitri explore -D N=9 --target interpreter\ndef f(x: f32[N]):\n    return x + 1\n")
    done = CliRunner().invoke(main, ["explore", str(path), "-o", str(tmp_path / "a.html")])
    (program,) = data((tmp_path / "a.html").read_text())["programs"]
    assert done.exit_code == 0 and (program["sizes"], program["target"]) == ({"N": 9}, "interpreter")
