"""Draws two figures of a program with matplotlib: the roofline of its kernels, and its graph.

    f.lower(M=4096, N=4096).roofline()
    f.plot(M=4096, N=4096).save("graph.svg")

The functions `roofline_figure` and `graph_figure` take the compilation of a program, and return a `Plot` that a
notebook can show. The library matplotlib is an optional dependency (`minitri[plot]`). minitri imports matplotlib only
when a figure is drawn. If a text in a program contains dollar signs, as `$x$` does, matplotlib shows the text as it is,
not as a formula.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.explore.fusion_drawings import Operation
from minitri.explore.graph_drawing import views
from minitri.graph.ir import Node
from minitri.hardware.chips import Peak
from minitri.hardware.roofline import Roofline, roofline
from minitri.hardware.targets import require_library
from minitri.pipeline import Compilation

COLOURS = ("#0b6e4f", "#c8553d", "#2f5d9b", "#8a5fa8", "#b07d12", "#4a4a4a")
PAPER, INK = "#ffffff", "#222222"
UNITS = ("f16", "tf32", "f32", "f64")
PIXELS = 100  # per inch of a figure
LABEL: Any = {"textcoords": "offset points", "fontsize": 8}


class Plot:
    """A figure for a notebook. The field `figure` is a figure object of matplotlib. A user is free to change the figure
    object.

    The method `save` writes the figure to a file. The suffix of the file name, such as `.svg`, decides the format of
    the file.
    """

    def __init__(self, figure: Any) -> None:
        self.figure = figure

    def save(self, path: str | Path) -> Path:
        self.figure.savefig(path)
        return Path(path)

    def __repr__(self) -> str:
        return "<figure: .save('figure.svg')>"

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=1.5 * PIXELS)
        return file.getvalue()


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """Returns an empty matplotlib figure with the given width and height in inches, and the figure's axes."""
    figures = require_library("matplotlib.figure")
    figure = figures.Figure(figsize=(width, height), dpi=PIXELS, layout="constrained", facecolor=PAPER)
    return figure, figure.add_subplot()


# ---- the roofline --------------------------------------------------------------------------------


def roofline_figure(compilation: Compilation, measured: Mapping[str, float] | None = None) -> Plot:
    """Draws a roofline: the point of each kernel has the operations per byte as x, and the operations per second as y.

    `measured`: the measured seconds of some kernels, by name. For kernels without a measured time, the drawing uses the
        predicted time.

    Raises CompileError MT0106 if a size is unknown, and MT0402 if the target has no known peak rates.
    """
    found = roofline(compilation, measured)
    if found is None:
        missing = "give a number for each dimension: `lower(M=4096, N=4096)`"
        raise CompileError("MT0106", "a roofline needs the sizes of all arrays", help=missing)
    if found.chip is None:
        message = f"the peak rates of {compilation.context.target} are not known"
        raise CompileError("MT0402", message, help='name a GPU: `lower(target="h100")`')
    figure, axes = _figure(7, 4.5)
    _roofs(axes, found.chip, found)
    _kernels(axes, found)
    axes.set(xscale="log", yscale="log", xlabel="FLOP / byte", ylabel="FLOP / s", title=found.chip.name)
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    return Plot(figure)


def _roofs(axes: Any, chip: Peak, found: Roofline) -> None:
    """Draws lines for the memory bandwidth and for the peak rates of the arithmetic units that the kernels use."""
    used = [u for u in UNITS if u in chip.rates and any(u in row.needed.operations for row in found.kernels)]
    intensities = [row.needed.intensity for row in found.kernels if row.needed.total]
    rates = {u: chip.rates[u] for u in used or ("f32",)}
    ridge = max(rates.values()) / chip.bandwidth
    left, right = min([0.05, *(i / 4 for i in intensities)]), max([4 * ridge, *(4 * i for i in intensities)])
    for unit, rate in rates.items():
        corner = rate / chip.bandwidth
        axes.plot([left, corner, max(right, corner)], [left * chip.bandwidth, rate, rate], color=INK, linewidth=0.9)
        axes.annotate(f"{unit}: {rate / 1e12:.3g} TFLOP/s", (right, rate), (-2, 3), ha="right", **LABEL)
    axes.annotate(f"{chip.bandwidth / 1e12:.3g} TB/s", (left, left * chip.bandwidth), (8, -2), **LABEL)


def _kernels(axes: Any, found: Roofline) -> None:
    """Draws a point for each kernel that has arithmetic operations."""
    for k, row in enumerate(found.kernels):
        seconds, said = (row.predicted, "predicted") if row.measured is None else (row.measured, "measured")
        colour = COLOURS[k % len(COLOURS)]
        if row.needed.total and seconds:
            label = f"{row.name}: {said} {seconds * 1e6:.3g} µs"
            axes.plot([row.needed.intensity], [row.needed.total / seconds], "o", color=colour, label=label)
        else:
            # no point, only a line in the legend
            axes.plot([], [], "o", color=colour, label=f"{row.name}: moves bytes only")


# ---- the graph -----------------------------------------------------------------------------------


def graph_figure(compilation: Compilation) -> Plot:
    """Draws the simplified graph of a program. The colour of a node says which kernel computes the node.

    Raises StageUnavailable MT0402 if the program was loaded from the text of a later stage, because such a program has
    no graph.
    """
    graph = compilation.value("graph.simplified")
    kernels = compilation.value("kernels").kernels
    numbers = [{span.node for op in k.body if isinstance(op, Operation) for span in op.spans} for k in kernels]
    view = views(graph, lambda node: _kernels_of(node, graph.spans, numbers))[0]
    figure, axes = _figure(max(view["width"] / PIXELS, 3) + 1.2, view["height"] / PIXELS + 0.8)
    for _, _, line in view["edges"]:
        axes.plot(*zip(*line), color="#888888", linewidth=0.9, zorder=1)
    for box in view["boxes"]:
        _box(axes, box)
    axes.set(xlim=(-10, max(view["width"], 300) + 10), ylim=(view["height"] + 10, -10), aspect="equal")
    axes.axis("off")
    axes.set_title(graph.name, fontsize=9, parse_math=False)
    for k, kernel in enumerate(kernels):
        axes.plot([], [], "s", color=COLOURS[k % len(COLOURS)], label=kernel.name)
    if kernels:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return Plot(figure)


def _kernels_of(node: Node, spans: Mapping[Node, Sequence[Any]], numbers: Sequence[set[int | None]]) -> list[int]:
    """Returns a list with the index of the kernel that most likely computes a node."""
    own = {span.node for span in spans.get(node, ())}
    shared = [len(own & found) for found in numbers]
    # the kernel that shares the most source spans (places in the source) with the node, or no kernel
    return [shared.index(max(shared))] if any(shared) else []


def _box(axes: Any, box: Mapping[str, Any]) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y, width, height = box["at"]
    plain = box["kind"] == "input" or not box["marks"]
    colour = "#777777" if plain else COLOURS[box["marks"][0] % len(COLOURS)]
    style: Any = {"facecolor": PAPER if plain else f"{colour}22", "linewidth": 2 if box["output"] else 1}
    frame = "round,pad=0,rounding_size=4"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=frame, edgecolor=colour, zorder=2, **style))
    text = box["label"] if box["kind"] == "view" else f"{box['label']}\n{box['type']}"
    centre = (x + width / 2, y + height / 2)
    axes.text(*centre, text, ha="center", va="center", family="monospace", fontsize=7.5, color=INK, parse_math=False)
