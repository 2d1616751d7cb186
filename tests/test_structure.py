"""The structure of the code: allowed imports, lengths of functions and files, and calls that are forbidden.

The tests read the source text of minitri/ with `ast` and import nothing. `LAYERS` lists the parts of the compiler
from top to bottom. A module imports from its own layer or from lower ones.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "minitri"

# Top to bottom. The longest name that matches counts: `cli.terminal` is a layer separate from `cli`.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli.main",),
    (
        "cli",
        "doctor",
    ),
    (
        "bench",
        "cli.inputs",
        "cli.lexers",
        "cli.terminal",
        "errors",
        "explore.compile_worker",
        "explore.request_queue",
        "explore.serve",
        "fuzz",
        "profile",
        "testing",
    ),
    (
        "api",
        "minitri",
        "notebook",
        "program",
        "program_from_stage",
    ),
    (
        "explain",
        "explore",
        "hardware.predicted_work",
        "hardware.roofline",
        "base_program",
        "runtime.tuning_policy",
        "runtime.variants",
        "trust",
    ),
    ("optimize.pass_table", "pipeline"),
    ("runtime",),
    (
        "hardware",
        "triton",
    ),
    (
        "optimize",
        "optimize.fast_math.fast_operators",
        "optimize.online_reductions",
        "optimize.schedules",
        "optimize.skip_blocks",
        "tiles",
        "triton.workarounds",
        "trust.bounds_counterexamples",
        "trust.memory_proofs",
        "trust.sanitizer",
    ),
    (
        "kernels",
        "optimize.divide_axes",
        "optimize.fast_math",
        "optimize.fusion",
        "optimize.index_width",
        "optimize.online_reductions.merge_loops",
        "optimize.output_layouts",
        "optimize.output_slices",
    ),
    (
        "graph",
        "graph.functions",
        "optimize.affine_gathers",
        "optimize.batch_into_rows",
        "optimize.collapse_reduced_axes",
        "optimize.dequantised_product_cost",
        "optimize.f32_products",
        "optimize.factor_layouts",
        "optimize.pack_operands",
        "optimize.product_cost",
        "optimize.round_products",
        "optimize.simplify",
        "optimize.split_k",
        "optimize.split_kv",
        "optimize.split_reduction",
        "optimize.split_scan",
        "optimize.strength_reduction",
        "optimize.two_step_reductions",
        "text_io",
        "trust.error_bounds",
        "trust.first_order_error",
        "trust.error_propagation",
    ),
    (
        "language.reference_arrays",
        "language.reference_evaluator",
        "language.reference_functions",
    ),
    ("language",),
    (
        "base.numpy_array_operations",
        "base.operators",
        "hardware.chips",
        "hardware.targets",
        "language.foreign",
    ),
    ("base.types",),
    ("base.inequalities",),
    ("base.simplex",),
    ("base.intervals",),
    ("base.symbolic_minmax",),
    ("base.dims",),
    ("base.pass_logs", "base.resource_limits"),
    ("base", "notebook.card_html"),
    ("base.nodes", "base.spans", "base.spelling", "base.toml_tables"),
)
# These modules import parts of minitri on first use, so that unused parts cost no start-up time and need no triton.
# In any other module, an import inside a function could hide a cycle.
LAZY = {
    "minitri",
    "cli.main",
    "cli.command_functions",
    "doctor",
    "runtime.interpreter",
    "runtime.variants",
    "triton.compiled_stages",
    "trust.run_stage",
    "api",
    "program",
}

LONGEST_FUNCTION = 60
LONGEST_FILE = 441


@dataclass(frozen=True)
class Import:
    module: str
    typing: bool  # inside `if TYPE_CHECKING`
    lazy: bool  # inside a function
    line: int


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def imports(self) -> list[Import]:
        return list(_imports(self.tree))


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "minitri"


@cache
def modules() -> dict[str, Module]:
    found: dict[str, Module] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found[_name(path)] = Module(_name(path), path, text, ast.parse(text))
    return found


def names() -> list[str]:
    return list(modules())


def _imports(tree: ast.AST, typing: bool = False, lazy: bool = False) -> Iterator[Import]:
    """The modules of minitri that a tree imports, without the prefix `minitri.`."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports(node, True, lazy)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _imports(node, typing, True)
            case ast.Import():
                targets = [a.name for a in node.names]
                yield from (
                    Import(_below(t), typing, lazy, node.lineno) for t in targets if t.split(".")[0] == "minitri"
                )
            case ast.ImportFrom(module=str(target)) if target.split(".")[0] == "minitri":
                for alias in node.names:
                    inner = f"{_below(target)}.{alias.name}" if target != "minitri" else alias.name
                    name = inner if inner in _files() else _below(target)
                    yield Import(name, typing, lazy, node.lineno)
            case _:
                yield from _imports(node, typing, lazy)


def _below(target: str) -> str:
    return target.removeprefix("minitri.")


@cache
def _files() -> frozenset[str]:
    return frozenset(_name(p) for p in PACKAGE.rglob("*.py"))


def layer(name: str) -> int:
    """The number of a module's layer, counted from the bottom."""
    fitting = [
        (len(n), k) for k, ns in enumerate(reversed(LAYERS)) for n in ns if name == n or name.startswith(n + ".")
    ]
    assert fitting, f"{name} stands in no layer: give it a place in LAYERS"
    return max(fitting)[1]


# ---- imports ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_imports_go_down(name: str) -> None:
    for i in modules()[name].imports:
        assert layer(i.module) <= layer(name), f"{name}:{i.line} imports {i.module}, which is above it"


def test_imports_have_no_cycle() -> None:
    """Imports inside functions count, too: they must not hide a cycle."""
    edges = {name: {i.module for i in m.imports if not i.typing and i.module != name} for name, m in modules().items()}
    for name in edges:
        edges[name].discard("minitri")  # an attribute of the package is imported later, on first use
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' → '.join(error.args[1])}")


@pytest.mark.parametrize("name", sorted(set(names()) - LAZY))
def test_imports_are_at_the_top(name: str) -> None:
    lazy = [f"{name}:{i.line} imports {i.module} inside a function" for i in modules()[name].imports if i.lazy]
    assert not lazy, "\n".join(lazy)


def test_every_layer_has_modules() -> None:
    for row in LAYERS:
        for name in row:
            assert any(m == name or m.startswith(name + ".") for m in names()), f"LAYERS names {name}"


def heavy(tree: ast.Module) -> set[str]:
    """The top-level modules that are imported together with this one."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("name", names())
def test_torch_and_triton_are_imported_when_needed(name: str) -> None:
    """Modules that are written in Triton, or that talk to its interpreter, import it at the top. Benchmarks import torch."""
    allowed = {f"triton.rt{part}" for part in ("", "_intrinsics", "_fast_math", "_float_division", "_interpreter")}
    assert name in allowed or name.startswith("bench.") or not heavy(modules()[name].tree) & {"torch", "triton"}


@pytest.mark.parametrize(
    "name",
    [
        "minitri",
        "cli.main",
        "cli.terminal",
        "base.diagnostics",
        "base.dims",
        "base.text_tables",
        "triton.compiled_stages",
        "triton.source",
    ],
)
def test_light_modules_import_no_heavy_package(name: str) -> None:
    """`import minitri` and `minitri --help` load these modules. They must not need numpy, lark or networkx."""
    assert not heavy(modules()[name].tree) & {"numpy", "ml_dtypes", "lark", "networkx", "jinja2"}


# ---- sizes and docstrings --------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_docstring(name: str) -> None:
    assert ast.get_docstring(modules()[name].tree), f"{name} does not say what it is"


@pytest.mark.parametrize("name", names())
def test_functions_are_short(name: str) -> None:
    for node in ast.walk(modules()[name].tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{name}:{node.lineno} {node.name} has {length} lines"


def test_files_are_short(record_property: pytest.RecordProperty) -> None:
    lengths = sorted(((m.text.count("\n"), n) for n, m in modules().items()), reverse=True)
    report = "\n".join(f"{count:5} {name}" for count, name in lengths[:10])
    record_property("longest files", report)
    assert lengths[0][0] <= LONGEST_FILE, f"the longest files:\n{report}"


# ---- forbidden calls -------------------------------------------------------------------


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "ctypes"}
FORBIDDEN_CALLS = re.compile(
    r"eval|__import__|os\.(system|popen|exec\w*|spawn\w*)|subprocess\.getoutput|yaml\.load|.*\.(load|save)_pickle"
)
EXECUTES = {"triton.source"}  # it runs generated source that has passed the allowlist


@pytest.mark.parametrize("name", names())
def test_no_text_is_executed(name: str) -> None:
    """There is no eval, no pickle and no shell. `exec` is allowed only where generated source becomes functions."""
    for node in ast.walk(modules()[name].tree):
        match node:
            case ast.Import():
                assert not {a.name.split(".")[0] for a in node.names} & FORBIDDEN_MODULES, name
            case ast.ImportFrom(module=str(module)):
                assert module.split(".")[0] not in FORBIDDEN_MODULES, name
            case ast.Call():
                called = _dotted(node.func)
                assert not FORBIDDEN_CALLS.fullmatch(called), f"{name}:{node.lineno} calls {called}"
                assert called != "exec" or name in EXECUTES, f"{name}:{node.lineno} calls exec"
                for keyword in node.keywords:
                    risky = keyword.arg in ("shell", "allow_pickle")
                    safe = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                    assert not risky or safe, f"{name}:{node.lineno} {keyword.arg}"


# ---- tracked files ---------------------------------------------------------------------


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [p for p in (ROOT / n for n in listed.stdout.decode().split("\0") if n) if p.is_file()]


# Split into pieces, so that this file does not contain the words itself.
MACHINE = re.compile(
    rf"(?<![\w.~}}/-])/{'(?:home|root|work|Users|mnt|private|data|scratch)'}/\w|(?<![\w}}/-])/{'tmp'}/\w|[A-Z]:\\\\Users"
)
HOSTS = re.compile("|".join(re.escape(a + b) for a, b in (
    ("pypi.", "org"), ("python", "hosted.org"), ("download.py", "torch.org"), ("npm", "js.org"), ("crates.", "io"),
    ("proxy.golang.", "org"), ("registry.", "npm"), ("--index", "-url"), ("--extra-", "index"), ("trusted-", "host"),
)))  # fmt: skip


def test_tracked_files_name_no_machine_and_no_registry() -> None:
    found: list[str] = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a binary file
        for number, line in enumerate(text.splitlines(), 1):
            for pattern in (MACHINE, HOSTS):
                if match := pattern.search(line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    assert not found, "\n".join(found)


def test_tracked_files_hold_no_conflict_markers() -> None:
    marker = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    for path in tracked():
        assert not marker.search(path.read_bytes().decode("utf-8", "replace")), path


# ---- tests that fail by chance ---------------------------------------------------------------


def test_no_test_measures_wall_clock_time() -> None:
    """Other processes use the machine, too. So a test measures CPU time, or waits for an event."""
    clock = re.compile("perf_" + "counter|mono" + r"tonic|time\.time\b")
    found = {p.name for p in Path(__file__).parent.glob("test_*.py") if clock.search(p.read_text(encoding="utf-8"))}
    assert not found


def test_random_examples_are_the_same_in_every_run(request: pytest.FixtureRequest) -> None:
    """Only the full profile draws new examples, to find new bugs."""
    profile = request.config.getoption("--hypothesis-profile", None) or os.environ.get("HYPOTHESIS_PROFILE", "ci")
    if profile != "ci":
        pytest.skip(f"the profile {profile} draws anew")
    functions = {getattr(item, "obj", None) for item in request.session.items}
    drawn = [f for f in functions if getattr(f, "is_hypothesis_test", False)]
    assert all(f._hypothesis_internal_use_settings.derandomize for f in drawn)
