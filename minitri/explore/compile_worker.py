"""The process that compiles untrusted programs: it answers each request with the data of a page, or with an error.

    python -m minitri.explore.compile_worker

The process reads requests from standard input. Each request is one line of JSON. In the format below, `?` marks an
optional field of a request. For each request, the process writes one line of JSON to standard output:

    request   {text, types?, entry?, sizes?, target?, all?}
    answer    a document (document.py); if the request lacks `all`, the document has only minitri's own stages, none of
              Triton. Two fields are added to the document, {named, notes}:
              named   the names that can have a size, each with its kind: size, axes or int. The compiler ignores
                      sizes of other names, because the user gave them to an earlier version of the program
              notes   the requirements that the shapes of the program have, each {message, start, end}
              {"error": {code, message, label, help, notes, text, line, column, start, end, edits, others}, named}
                  edits    the changes of the text that correct the error, each {text, start, end}
                  others   further errors of the program

`start` and `end` are offsets in the text of the program, counted in UTF-16 units as in JavaScript.

The table `LIMITS` limits the size of a program and the time of its compilation. The worker process has little memory
and no GPU, and it never runs a kernel. The process uses no part of a request as the name of a file. The module
request_queue.py sends the requests, and ends a worker process that does not answer in time.
"""

import resource
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from minitri.base.diagnostics import CompileError, ensure
from minitri.base.dims import Dim
from minitri.base.json_child_process import serve
from minitri.base.resource_limits import limits
from minitri.base.spans import Span
from minitri.explore.document import document, utf16_size
from minitri.graph.parameter_binding import sizes_of
from minitri.graph.shape_warnings import requirements
from minitri.language import ast
from minitri.language.program_forms import parse_program
from minitri.program import Program

LIMITS = {"source": 20_000, "nesting": 500, "operations": 3_000, "terms": 200, "code": 500_000, "seconds": 3}
MEMORY = 4 << 30  # bytes of data
NAME = "<editor>"
RESERVED = ("self", "target", "without", "options")


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer to a request.

    The function `answer` raises no exception: each exception becomes an answer with the field `error`.
    """
    named: dict[str, str] = {}
    try:
        with limits(**LIMITS):
            r = _checked(request)
            module = parse_program(r["text"], NAME, r["types"])
            named |= _named(module, r)
            r["sizes"] = {name: size for name, size in r["sizes"].items() if name in named}
            return _document(module, r) | {"named": named}
    except CompileError as error:
        return {"error": diagnostic(error), "named": named}
    except MemoryError:
        return failed("this takes more memory than there is for it here")
    except Exception as error:  # a bug of minitri must not end the process; the answer says nothing about the machine
        return failed(f"minitri failed inside: {type(error).__name__}")


def failed(message: str) -> dict[str, Any]:
    return {"error": diagnostic(CompileError("MT0401", message))}


def diagnostic(error: CompileError) -> dict[str, Any]:
    """Returns a CompileError as data for JSON.

    The data has the fields of `CompileError.as_dict`, and the fields `text`, `start` and `end`. The field `text` has
    the message that a terminal would show. The fields `start` and `end` say which part of the editor's text the error
    is about. Each suggested edit also has the fields `start` and `end`, which are positions in the editor's text.
    """
    return error.as_dict() | {
        "text": str(error), **_place(error.span),
        "edits": [{"text": e.text, **_place(e.span)} for e in error.edits if e.span.source.name == NAME],
        "others": list(map(diagnostic, error.others)),
    }  # fmt: skip


def _place(span: Span | None) -> dict[str, int | None]:
    if span is None or span.source.name != NAME:
        return {"start": None, "end": None}
    return {at: utf16_size(span.source.text[: getattr(span, at)]) for at in ("start", "end")}


def _document(module: ast.Module, r: Mapping[str, Any]) -> dict[str, Any]:
    compiled = Program(module, r["entry"]).lower(target=r["target"], **r["sizes"]).compilation
    notes = [{"message": said, **_place(span)} for span, said in requirements(compiled.value("graph").conditions)]
    return document(compiled, quick=not r["all"]) | {"notes": notes}


def _named(module: ast.Module, r: Mapping[str, Any]) -> dict[str, str]:
    """Returns the kind ("size", "axes" or "int") of each dimension or parameter whose value a request can choose."""
    function = {f.name: f for f in module.functions}.get(r["entry"], module.functions[-1])
    # A request gives sizes to dimensions and packs (such as `*B`), and values to parameters that are numbers.
    sizes = {n: "size" if isinstance(s, Dim) else "axes" for n, s in sizes_of(function, {}).items()}
    kinds = {p.name: p.annotation.kind for p in function.params if isinstance(p.annotation, ast.ScalarType)}
    return sizes | {name: "int" for name, kind in kinds.items() if kind == "int" or name in r["sizes"]}


# ---- requests ------------------------------------------------------------------------------


def _checked(request: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the types of a request's fields, and fills in default values."""
    has_text = isinstance(request, dict) and isinstance(request.get("text"), str)
    ensure(has_text, "MT0404", "a request has a `text`")
    types, sizes = request.get("types") or {}, request.get("sizes") or {}
    are_texts = isinstance(types, dict) and all(isinstance(t, str) for t in types.values())
    ensure(are_texts, "MT0404", "`types` are texts by name")
    ensure(isinstance(sizes, dict) and all(map(_size, sizes.values())), "MT0404", "`sizes` are integers by name")
    reserved = next((n for n in sizes if n in RESERVED), None)
    ensure(reserved is None, "MT0404", f"`{reserved}` cannot have a size here; give the dimension another name")
    entry, target = request.get("entry"), request.get("target") or "cuda:90"
    ensure(entry is None or isinstance(entry, str), "MT0404", "`entry` is the name of a function")
    ensure(isinstance(target, str), "MT0404", "`target` is a text, as in cuda:90")
    sizes = {name: tuple(v) if isinstance(v, list) else v for name, v in sizes.items()}
    return {"text": request["text"], "types": types, "sizes": sizes, "entry": entry, "target": target,
            "all": request.get("all") is True}  # fmt: skip


def _size(value: Any) -> bool:
    axes = value if isinstance(value, list) else [value]
    return len(axes) <= 16 and all(isinstance(n, int) and not isinstance(n, bool) for n in axes)


# ---- the process ---------------------------------------------------------------------------


def main(requests: TextIO) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(answer, requests, {"text": "x + 1", "types": {"x": "f32[N]"}})


if __name__ == "__main__":
    main(sys.stdin)
