"""Draws the results of the benchmark: a roofline plot of minitri and other implementations, and the speedups of
minitri.

    minitri bench --json out.json --plot out.svg
    minitri bench --from docs/log/benchmarks.json --plot docs/log/benchmarks.svg       without a GPU

The function `plot_file` reads the output of `bench --json`, and writes an SVG file. For each case, the left figure
shows the operations per byte and the operations per second. Only operations and bytes that the computation needs are
counted. Two lines in the left figure show the limits: the rate of a copy, and the rate of the fastest matrix product.
The right figure shows the speedups of minitri over the best other implementation and over torch.compile. The figures
need matplotlib, which is not installed with minitri.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import CompileError, printable
from minitri.hardware.targets import require_library

Case = Mapping[str, Any]
HELP = (
    "figures of an earlier run can be drawn here: `minitri bench --from FILE --plot out.svg`;"
    " `minitri bench --json FILE` writes them on a machine with a GPU"
)
COLOURS = {"minitri": "#0b6e4f", "compile": "#c8553d", "library": "#588b8b", "eager": "#b8b8aa"}


def plot(found: Mapping[str, Any], path: str) -> None:
    """Draws the measured cases of one run of the benchmark, and writes the figure to the file `path`.

    Raises StageUnavailable MT0402 if matplotlib is not installed, and CompileError MT0003 if the file cannot be
    written.
    """
    pyplot = _pyplot()
    cases = [c for c in found["cases"] if c.get("best_over_minitri")]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 0.19 * len(cases) + 2), width_ratios=(3, 2))
    _roofline(left, cases, found["copy_bytes_per_second"])
    _ratios(right, cases)
    figure.suptitle(f"{found['device']}, torch {found['torch']}, triton {found['triton']}", fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 0.99))
    _save(figure, path)


def heat_map(found: Mapping[str, Any], path: str) -> None:
    """Draws the results of an ablation as a grid with a field for each case and optimisation.

    Each field of the grid shows the time of a case without one optimisation, divided by its time with all
    optimisations.

    `found`: the data that `bench --ablate --json` wrote.

    Raises the errors that `plot` raises.
    """
    pyplot = _pyplot()
    rows, columns = found["optimisations"], list(dict.fromkeys(c["case"] for c in found["cells"]))
    figure, axes = pyplot.subplots(figsize=(0.45 * len(columns) + 3, 0.25 * len(rows) + 3))
    for cell in found["cells"]:
        place = columns.index(cell["case"]), rows.index(cell["without"])
        worth = min(max(cell["time"] - 1, 0), 1)
        axes.add_patch(pyplot.Rectangle(place, 1, 1, color=COLOURS["minitri"], alpha=0.1 + 0.9 * worth, linewidth=0))
        axes.text(place[0] + 0.5, place[1] + 0.5, f"{cell['time']:.2f}", ha="center", va="center", fontsize=6)
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.set_xticks([k + 0.5 for k in range(len(columns))], columns, rotation=60, ha="right", fontsize=7)
    axes.set_yticks([k + 0.5 for k in range(len(rows))], rows, fontsize=7)
    axes.set_title(f"time without an optimisation over time with it, {found['device']}", fontsize=9)
    figure.tight_layout()
    _save(figure, path)


def plot_file(figures: str, path: str) -> None:
    """Draws the measurements in a JSON file. Cases become a roofline plot, and an ablation becomes a heat map.

    `figures`: the name of a JSON file that `bench --json` wrote on a machine with a GPU.

    Raises CompileError MT0003 if the file cannot be read or contains no measurements of the benchmark.
    Raises the errors that `plot` raises.
    """
    name = printable(Path(figures).name)
    try:
        found = json.loads(Path(figures).read_text(encoding="utf-8"))
        draw = heat_map if "cells" in found else plot
        if draw is plot and "copy_bytes_per_second" not in found and "cases" in found:
            raise CompileError("MT0003", f"{name} was measured without a GPU, so it has no rates to draw", help=HELP)
        draw(found, path)
    except OSError as error:
        raise CompileError("MT0003", f"cannot read {name}: {(error.strerror or 'refused').lower()}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CompileError("MT0003", f"{name} does not hold figures of the benchmark", help=HELP) from None


def _pyplot() -> Any:
    """Returns matplotlib's module pyplot, with settings that make the files of equal figures identical."""
    matplotlib = require_library("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "minitri", "svg.fonttype": "none", "font.size": 8})
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, path: str) -> None:
    try:
        figure.savefig(path, format="svg", metadata={"Date": None})
    except OSError as error:
        raise CompileError("MT0003", f"cannot write {path[:200]}: {error.strerror}") from None


def _roofline(axes: Any, cases: Sequence[Case], copy: float) -> None:
    """Draws each case as a point: operations per second over operations per byte."""
    computing = [c for c in cases if _operations(c)]
    best = max((c["flops"] / c["peers"]["minitri"]["seconds"] for c in cases if c["flops"]), default=0.0)
    span = [0.05, 1e4]
    axes.plot(span, [copy * x / 1e12 for x in span], color="#444444", linewidth=0.8)
    axes.text(0.06, copy * 0.09 / 1e12, "copy", rotation=30, fontsize=7)
    if best:
        axes.axhline(best / 1e12, color="#444444", linewidth=0.8, linestyle=":")
    for name, colour in reversed(COLOURS.items()):
        timed = [(c, _operations(c), s) for c in computing if (s := c["peers"].get(name, {}).get("seconds"))]
        # only necessary operations and bytes, so unnecessary work does not make a program look faster
        points = [(operations / c["bytes"], operations / s / 1e12) for c, operations, s in timed]
        axes.plot(*zip(*points), "o", color=colour, markersize=4, label=name) if points else None
    axes.set(xscale="log", yscale="log", xlabel="FLOP/byte", ylabel="TFLOP/s", ylim=(0.05, 2e3), xlim=span)
    axes.legend(loc="lower right", frameon=False)


def _ratios(axes: Any, cases: Sequence[Case]) -> None:
    places = range(len(cases), 0, -1)
    axes.axvline(1.0, color="#444444", linewidth=0.8)
    for other, colour, label in (("compile", "compile", "torch.compile"), ("best", "minitri", "the best peer")):
        ratios = [c[f"{other}_over_minitri"] or 0 for c in cases]
        axes.plot(ratios, places, "o", color=COLOURS[colour], markersize=4, label=label)
    axes.set(yticks=list(places), yticklabels=[c["name"] for c in cases], xscale="log", xlabel="its time over ours")
    axes.set_xticks([0.5, 0.8, 1, 1.25, 2, 4], ["0.5", "0.8", "1", "1.25", "2", "4"])
    axes.minorticks_off()
    axes.legend(loc="lower right", frameon=False)


def _operations(case: Case) -> int:
    """Returns the number of floating-point operations of a benchmark case."""
    # declared (without operations for masked attention scores), or else counted in the graph of the program
    return case["flops"] or case["work"]["graph"]["flops"]
