"""The reading list (tests/reading_list.py): which lines count as code, which files have run, and their order."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

pytest.importorskip("triton")
import reading_list
from reading_list import File, Trace, lines_of_code, merged


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 0),
        ('"""Module.\n\nMore.\n"""\n\nx = 1  # one\n', 1),
        ('def f():\n    """Doc."""\n    # why\n\n    return (\n        1\n    )\n', 4),
        ('class C:\n    "Doc."\n\n    x: int = 0\n', 2),
        ('x = """a\n\nb"""\n', 3),
        ("x = 1 + \\\n    2\n", 2),
    ],
)
def test_lines_of_code_are_counted_without_blank_lines_comments_and_docstrings(source: str, count: int) -> None:
    assert lines_of_code(source) == count


def test_a_merged_order_puts_a_new_element_after_its_predecessor() -> None:
    assert merged([["a", "c", "d"], ["a", "b", "c"], ["e", "d", "f"]]) == ["e", "a", "b", "c", "d", "f"]


def test_a_trace_names_modules_functions_and_callers() -> None:
    trace = reading_list.traced(reading_list.PROGRAMS[0])
    assert trace.order.index("minitri.graph.lower_ast") < trace.order.index("minitri.triton.emit")
    assert "build" in trace.functions["minitri.graph.lower_ast"]
    assert "minitri.pipeline" in trace.callers["minitri.graph.lower_ast"]
    assert "minitri.optimize.split_k" not in trace.functions


def test_functions_that_run_while_a_module_is_imported_do_not_count() -> None:
    names: dict[str, Any] = {"__name__": "minitri.made_up"}
    imported, called = Trace(), Trace()
    body = compile("def f(): pass\nf()\n", "made_up.py", "exec")
    before = sys.gettrace()
    try:
        sys.settrace(imported)
        exec(body, names)
        sys.settrace(called)
        names["f"]()
    finally:
        sys.settrace(before)
    assert imported.order == []
    assert called.functions == {"minitri.made_up": {"f"}}


def test_the_list_can_be_read_in_an_afternoon() -> None:
    """Making an error message for each program, before it is known to be wrong, once added four files."""
    total = next(line for line in reading_list.page_of_fresh_process().splitlines() if line.startswith("Files: "))
    files, lines = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", total)[:2])
    assert files <= 32 and lines <= 4500


def test_every_file_to_read_beside_the_list_exists_and_has_a_place_in_the_list() -> None:
    lines = reading_list.page_of_fresh_process().splitlines()
    listed = {line.split("`")[1] for line in lines if line.startswith("| [`")}
    for path, reader, _ in reading_list.BESIDE:
        assert (reading_list.ROOT / path).exists()
        assert reader in listed


def test_the_page_lists_files_and_optimisations_that_ran() -> None:
    files = [
        File("minitri/a.py", 10, "The a | b", ("f",), ()),
        File("minitri/optimize/fuse.py", 1200, "Fuses", ("fuse", "label"), ("minitri/a.py",)),
    ]
    page = reading_list.page(files)
    assert "| [`minitri/a.py`](../../minitri/a.py) | 10 | The a \\| b |" in page
    assert "Files: 2, lines of code: 1,210. Without minitri/optimize/: 1 and 10." in page
    assert "| `minitri/optimize/fuse.py` | `fuse`, `label` | `minitri/a.py` |" in page
    assert "Optimisations" not in reading_list.page(files[:1])
