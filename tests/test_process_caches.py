"""The disk caches of the parser tables, the classes of kernel arguments, and the logs of MINITRI_LOGS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lark
import numpy as np
import pytest

import minitri as mt
from minitri.base import json_disk_cache
from minitri.language import ast, parser as parse, parser_table_cache
from minitri.language.ast_dump import format_module
from minitri.text_io import stage_parser
from minitri.triton.compiled_stages import Kind

PARSER, READER = parse._lark.__wrapped__, stage_parser._lark.__wrapped__  # without the caches of this process


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINITRI_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(parse, "make_parser", parser_table_cache.parser)
    return tmp_path / "kept"


def parsed(monkeypatch: pytest.MonkeyPatch) -> ast.Module:
    """A module parsed by a new parser, whose tables are computed or read from the cache."""
    made = PARSER()
    monkeypatch.setattr(parse, "_lark", lambda: made)
    return parse.parse_module(
        "def f(x: f32[M, N], k: int = 3):\n    y = x[:, ::-1] @ x.mT\n    return relu(y) ** k, -x\n"
    )


def test_parser_tables_are_read_from_the_cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    first = parsed(monkeypatch)
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(lark.Lark, "__init__", lambda *_, **__: pytest.fail("made again"))
    assert format_module(parsed(monkeypatch)) == format_module(first)


def test_parser_tables_for_stage_texts_are_read_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    text = mt.compile("sum(x * 2, axis=0)", x="f32[M, N]").lower(M=5, N=7)["graph"]
    made = READER()
    monkeypatch.setattr(lark.Lark, "__init__", lambda *_, **__: pytest.fail("made again"))
    read = READER()
    for parser in (made, read):
        monkeypatch.setattr(stage_parser, "_lark", lambda parser=parser: parser)
        assert mt.load(text, "graph").lower()["graph"] == text


@pytest.mark.parametrize(
    "entry", [{}, {"data": {}, "memo": {}}, [1], "text", {"data": {"parser": None}, "memo": {"1": 2}}]
)
def test_damaged_parser_tables_are_computed_again(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser_table_cache.json_disk_cache, "get", lambda kind, key, objects: entry)
    assert parsed(monkeypatch).functions[0].name == "f"


def test_without_a_cache_folder_parsing_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_disk_cache, "folder", lambda: None)
    assert parsed(monkeypatch).functions[0].name == "f"


def test_alignment_and_size_decide_the_class_of_kernel_arguments() -> None:
    assert Kind.of((0, 64), (32,)) == Kind.of((16, 1 << 40), (48,))
    kinds = [
        Kind.of(*a)
        for a in (((0, 64), (32,)), ((8, 64), (32,)), ((0, 64), (33,)), ((0, 64), (1 << 31,)), ((0, 64), (0, 0)))
    ]
    assert len(set(kinds)) == len(kinds)


def test_logs_show_the_chosen_topics(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MINITRI_LOGS", "+fusion, tile,nothing_of_this_name")
    f, x = mt.compile("softmax(x)", x="f32[M, N]"), np.ones((3, 4), np.float32)
    f(x)
    shown = capsys.readouterr().err
    assert shown.count("there is no topic 'nothing_of_this_name'") == 1 and "autotune, cache, parse" in shown
    assert "[fusion] fused" in shown and "[tile] program k0" in shown and "[mask]" not in shown
    f(np.ones((5, 4), np.float32))
    assert "there is no topic" not in capsys.readouterr().err  # the message appears once


def test_logs_are_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    mt.compile("x + 1", x="f32[N]")(np.ones(3, np.float32))
    assert capsys.readouterr().err == ""
