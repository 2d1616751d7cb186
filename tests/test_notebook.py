"""The output in notebooks: cards, figures, errors without frames, the magic command, and the notebooks of examples/."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data import composed

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.notebook.card_html import LONGEST, StageText, card
from minitri.profile import profile
from minitri.trust.check_report import CheckReport, CheckRow

ROOT = Path(__file__).parent.parent
HOSTILE = "<script>alert('&')</script> \u202e $x$ {{ 70 * 70000 }}"
X = np.ones((3, 5), np.float32)


def softmax() -> mt.Program:
    return mt.compile("softmax(x, axis=-1)", x="f32[M, N]")


def tabs(html: str) -> list[str]:
    return re.findall(r"<label[^>]*>([^<]*)</label>", html)


# ---- cards ---------------------------------------------------------------------------------------


def test_texts_of_a_card_are_escaped() -> None:
    html = card(
        HOSTILE, HOSTILE, facts=HOSTILE, text=HOSTILE, tabs=[(HOSTILE, HOSTILE)], rows=[[HOSTILE]], note=HOSTILE
    )
    assert "<script" not in html and html.count("&lt;script&gt;") == 8 and "4900000" not in html
    assert "\u202e" not in re.sub(r"<div.*|</?label.*", "", html)


def test_long_texts_are_cut() -> None:
    assert len(card("f", text="x" * 10**6)) < LONGEST + 5000


def test_tabs_of_two_cards_do_not_share_a_group() -> None:
    groups = [set(re.findall(r'name="([^"]*)"', card("f", tabs=[("a", "b")]))) for _ in range(2)]
    assert len(groups[0]) == 1 and groups[0] != groups[1]


def test_a_program() -> None:
    html = softmax()._repr_html_()
    assert tabs(html) == ["source", "graph.simplified", "kernels"] and "1 kernel" in html

    @mt.jit
    def f(x: f32[N]):
        return composed.scaled(x) + 1

    assert "return x * SCALE" in f._repr_html_() and "composed.scaled(x) + 1" in f._repr_html_()
    assert tabs(mt.compile("x + y")._repr_html_()) == ["source"]


def test_stages() -> None:
    low = softmax().lower(M=4, N=300)
    html = low._repr_html_()
    assert tabs(html) == ["ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton"]
    assert "M = 4, N = 300" in html and "made when asked for: ttir, ttgir, llir, ptx, sass" in html
    assert isinstance(low["tile"], StageText) and isinstance(low["tile"], str)
    assert "<pre>plan main" in low["tile"]._repr_html_()


def test_a_check() -> None:
    html = softmax().check(X)._repr_html_()
    assert "every pass is right" in html and "<summary>" in html and "fusion" in html
    rows = [CheckRow("fusion", "kernels", "cuda", False, 1.0, 0.1, HOSTILE)]
    html = CheckReport(rows)._repr_html_()
    assert "pass `fusion` is wrong" in html.replace("the pass", "pass") and "details open" in html
    assert "<script" not in html and "WRONG" in html


def test_a_profile() -> None:
    html = profile(softmax(), X, repeats=1, warmup=0)._repr_html_()
    assert "<th>kernel</th>" in html and "<td>k0</td>" in html and "a call, 1 kernel" in html


def test_an_error() -> None:
    with pytest.raises(CompileError) as raised:
        mt.compile("softmax(x) + '<script>'", x="f32[N]")
    error = raised.value
    assert error._repr_html_().startswith("<pre>error[MT") and "<script" not in error._repr_html_()
    assert error._render_traceback_() == str(error).split("\n")


# ---- figures -------------------------------------------------------------------------------------


@pytest.fixture
def figure() -> None:
    pytest.importorskip("matplotlib")


def labels(plot: Any) -> list[str]:
    (axes,) = plot.figure.axes
    return [t.get_text() for t in (*axes.texts, *(plot.figure.legends or [axes.get_legend()])[0].get_texts())]


def test_a_roofline(figure: None, tmp_path: Path) -> None:
    f = mt.compile("softmax(x @ w, axis=-1)", x="f16[M, K]", w="f16[K, N]")
    low = f.lower(M=4096, K=4096, N=1000)
    shown = labels(low.roofline())
    assert "f16: 989 TFLOP/s" in shown and "4.8 TB/s" in shown
    assert any(re.fullmatch(r"k0: predicted [\d.]+ µs", s) for s in shown)
    assert "k0: measured 50 µs" in labels(low.roofline({"k0": 5e-5}))
    assert low.roofline().save(tmp_path / "roofline.svg").read_text().startswith("<?xml")
    assert low.roofline()._repr_png_().startswith(b"\x89PNG")
    assert "k0: moves bytes only" in labels(mt.compile("x.T", x="f32[M, N]").lower(M=64, N=64).roofline())


def test_a_roofline_needs_sizes_and_a_chip(figure: None) -> None:
    f = softmax()
    with pytest.raises(CompileError, match="sizes"):
        f.lower(M=3).roofline()
    with pytest.raises(CompileError, match="peak rates"):
        f.lower(M=3, N=3, target="interpreter").roofline()


def test_a_graph(figure: None) -> None:
    shown = labels(mt.compile("softmax(x @ w, axis=-1)", x="f16[M, K]", w="f16[K, N]").plot())
    assert "x\nf16[M, K]" in shown and "reduce.max\nf32[M]" in shown and shown[-2:] == ["k0", "k1"]
    assert "divide\nf32[3, 5]" in labels(mt.compile("softmax(x)").plot(X))


def test_figures_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(mt.StageUnavailable) as raised:
        softmax().plot()
    assert raised.value.help == "pip install matplotlib"


# ---- IPython -------------------------------------------------------------------------------------


@pytest.fixture
def shell() -> Any:
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell.instance()
    shell.run_line_magic("load_ext", "minitri")
    yield shell
    interactive.InteractiveShell.clear_instance()


def cell(shell: Any, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The output of a cell."""
    capsys.readouterr()
    shell.run_cell(text)
    return capsys.readouterr().out


def test_the_magic(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert "<minitri program f(x: f32[N])>" in cell(shell, "%%minitri\ndef f(x: f32[N]):\n    return x + 1", capsys)
    assert shell.user_ns["f"](X[0]).tolist() == [2] * 5
    cell(shell, "%%minitri twice\n2 * x", capsys)
    assert shell.user_ns["twice"](X[0]).tolist() == [2] * 5
    assert "cannot name a program" in cell(shell, "%%minitri a b\nx", capsys)


@pytest.mark.parametrize(
    "text",
    [
        "import minitri as mt\nmt.compile('softmax(x, axis=3)', x='f32[N]')",
        "import minitri as mt\nmt.compile('x +', x='f32[N]')",
        "%%minitri\ndef f(x: f32[N]):\n    return x @@ x",
    ],
)
def test_errors_have_no_frames(text: str, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    output = cell(shell, text, capsys).strip()
    assert "error[MT" in output.split("\n")[0] and output.count("\n") <= 7, output


def test_functions_of_cells(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cell(shell, "import minitri as mt\nEPS = 1.0\n@mt.jit\ndef g(x):\n    return x + EPS", capsys)
    cell(shell, "@mt.jit\ndef h(x):\n    return g(x) * 2", capsys)
    assert shell.user_ns["h"](X[0]).tolist() == [4] * 5
    assert shell.user_ns["h"].module.source.name.startswith("Cell In[")
    cell(shell, "EPS = 2.0", capsys)
    assert shell.user_ns["h"](X[0]).tolist() == [6] * 5
    cell(shell, "@mt.jit\ndef g(x):\n    return x", capsys)
    assert shell.user_ns["h"](X[0]).tolist() == [2] * 5


# ---- the notebooks of examples/ ------------------------------------------------------------------


NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_from_top_to_bottom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in notebook.cells), "clear its outputs"
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    shown = [output for c in notebook.cells for output in c.get("outputs", ())]
    assert not [o for o in shown if o.output_type == "stream" and o.name == "stderr"]
    kinds = {kind for o in shown if "data" in o for kind in o.data}
    assert {"text/html", "image/png"} <= kinds


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 2
