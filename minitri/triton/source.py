"""Makes the Python source of the triton stage, and turns this generated source into Python functions.

The function `module_text` takes a plan, and the emitted Triton source of its kernels. It returns complete Python source
with imports, kernels, and the launch plan as a comment. The function `functions` takes the Python source of a module.
It makes a Python function from each kernel, for `triton.jit` or for Triton's interpreter.

No user text gets into generated source. As a second safeguard, the generated source is parsed before it is executed,
and its syntax and names are checked against an allowlist. Triton reads the source from an entry in Python's `linecache`
under a made-up file name, so no file is written.
"""

import ast
import hashlib
import linecache
import re
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from minitri.kernels.ir import DOT_PRECISIONS, Buffer, Op, Plan
from minitri.triton.emit import EmittedKernel

HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice

from minitri.triton import rt

"""

_NAMES = re.compile(
    r"(?:[psamv][0-9]+|k[0-9]+|[a-z][0-9]*(?:_(?:tile|start|lane))?|BLOCK_[A-Z][0-9]*|tile|turn|desc[0-9]+|place|group|first|height)"
)
_MODULES = {"tl", "rt", "libdevice"}
_GLOBALS = {*_MODULES, "range", "float"}
_STRINGS = {"nan", "inf", "-inf", *DOT_PRECISIONS, "evict_first"}
_NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Assign, ast.AnnAssign, ast.For, ast.If, ast.Expr,
    ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Load, ast.Store, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare,
    ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip


def module_text(plan: Plan, kernels: Sequence[EmittedKernel]) -> str:
    return HEADER + "".join(f"\n\n@triton.jit\n{k.source}" for k in kernels) + "\n\n" + launch_plan(plan, kernels)


def launch_plan(plan: Plan, kernels: Sequence[EmittedKernel]) -> str:
    """Returns the launch plan as comments: a line for each temporary array, then a line for each launch, in order."""
    lines = [f"# temporary {t}" for t in plan.temporaries]
    for k in kernels:
        bound = [*_named(k.pointers, "p"), *[f"s{n}={d}" for n, d in enumerate(k.sizes)], *_named(k.scalars, "a")]
        bound += [
            f"{d.name}=TensorDescriptor({d.buffer.name}, {list(d.shape)}, {list(d.strides)}, {list(d.block)})"
            for d in k.descriptors
        ]
        p = k.program
        options = f"num_warps={p.warps}, num_stages={p.stages}, enable_fp_fusion={p.relaxed}"
        options += f", maxnreg={p.registers}" * (p.registers > 0) + ", launch_pdl=True" * p.early_start
        lines.append(f"# {k.name}[({k.tiles},)]({', '.join(bound)}, {options})")
    return "# launch plan\n" + "\n".join(lines) + "\n"


def _named(buffers: Sequence[Buffer], letter: str) -> list[str]:
    return [f"{letter}{n}={b.name}" for n, b in enumerate(buffers)]


def line_ops(kernels: Sequence[EmittedKernel]) -> dict[int, Op]:
    """Returns a dictionary from each line number of the module text to the operation that the line computes."""
    table: dict[int, Op] = {}
    line = HEADER.count("\n")
    for k in kernels:
        line += 3  # two blank lines and the decorator
        table |= {line + n: op for n, op in k.lines}
        line += k.source.count("\n")
    return table


def check(tree: ast.AST) -> None:
    """Raises ValueError if generated source has syntax or names that the emitter never writes."""
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise ValueError(f"generated source holds {type(node).__name__}")
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) if name not in _GLOBALS and not _NAMES.fullmatch(name):
                raise ValueError(f"generated source uses the name {name!r}")
            case ast.Attribute() if not _known_attribute(node):
                raise ValueError(f"generated source uses the attribute {node.attr!r}")
            case ast.Constant(value=str() as text) if text not in _STRINGS:
                raise ValueError("generated source holds a string")


def _known_attribute(node: ast.Attribute) -> bool:
    """Checks whether generated source may use an attribute, such as `tl.load`."""
    of = node.value.id if isinstance(node.value, ast.Name) else ""
    moves = of.startswith("desc") and node.attr in ("load", "store")
    # functions of `tl`, `rt` and `libdevice`, and `value.to`, `desc0.load` and `desc0.store`
    return node.attr == "to" or moves or (of in _MODULES and not node.attr.startswith("_"))


def functions(text: str, namespace: Mapping[str, Any]) -> dict[str, FunctionType]:
    """Returns the kernels that a source text defines, as Python functions without decorators.

    `namespace` has the modules that the kernels use as global names: tl, rt and libdevice.
    """
    kernels = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    for kernel in kernels:
        kernel.decorator_list = []
    tree = ast.Module([*kernels], [])
    check(tree)
    name = f"<minitri {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope: dict[str, Any] = dict(namespace)
    exec(compile(tree, name, "exec"), scope)
    return {kernel.name: scope[kernel.name] for kernel in kernels}
