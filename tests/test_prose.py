"""The checker of docs and docstrings (tests/prose.py), and the glossary that it reads."""

from __future__ import annotations

import re
from pathlib import Path

import prose
import pytest

GLOSSARY = prose.GLOSSARY.read_text(encoding="utf-8")
ENTRY = re.compile(r"^- \*\*(?P<term>[^*]+)\*\*: (?P<text>.+) \(`(?P<file>[^`]+)`\)\.$")


def found(markdown: str) -> list[tuple[int, str]]:
    return [(s.line, s.text) for s in prose.sentences_of_markdown("x.md", markdown)]


# ---- sentences ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("See e.g. this, i.e. one. It ends.", ["See e.g. this, i.e. one.", "It ends."]),
        ("Version 3.11 is x.y or newer. minitri runs.", ["Version 3.11 is x.y or newer.", "minitri runs."]),
        ("Slices, None, ... and arrays. More.", ["Slices, None, ... and arrays.", "More."]),
        ("It waits... Then it runs.", ["It waits...", "Then it runs."]),
        ('(It is "so.") Then "what?" End', ['(It is "so.")', 'Then "what?"', "End"]),
        ("By J. Smith. End", ["By J. Smith.", "End"]),
        ("", []),
    ],
)
def test_sentences_end_where_they_should(text: str, sentences: list[str]) -> None:
    assert [s for _, s in prose.split_sentences(text)] == sentences


def test_sentences_have_their_line() -> None:
    assert found("# Title\n\nOne\ntwo. Three\nfour.\n\n- item\n- item two.\n  Three.\n") == [
        (1, "Title"), (3, "One\ntwo."), (4, "Three\nfour."), (7, "item"), (8, "item two."), (9, "Three."),
    ]  # fmt: skip


def test_code_tables_and_quotes_are_left_out() -> None:
    text = "```\ncode. here\n```\n\n| a | b |\n| - | - |\n| c. D | e |\n\n> quoted\n\n    indented. code\n\nText.\n"
    assert found(text) == [(13, "Text.")]


def test_code_in_a_sentence_is_one_word() -> None:
    (sentence,) = prose.sentences_of_markdown("x.md", "It is `a + b. C` or [a link](x.md) → **bold**.")
    assert sentence.words == 7
    assert prose.without_code(sentence.text) == "It is `` or a link → bold."


def test_rows_and_examples_of_docstrings() -> None:
    text = "Makes a value.\n\nsizes    known sizes.\n         More.\nwide     64 bits\n\nbefore\n    %0 = add. X\nafter"
    parsed = [s for _, s in found(prose.items(text))]
    assert parsed == ["Makes a value.", "known sizes.", "More.", "64 bits", "before", "after"]


def test_docstrings_have_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""One.\n\nTwo.\n"""\n\n\ndef f():\n    """Three.\n\n    Four.\n    """\n', encoding="utf-8")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    assert [(s.line, s.text) for s in prose.sentences_of_module(path)] == [
        (1, "One."), (3, "Two."), (8, "Three."), (10, "Four."),
    ]  # fmt: skip


def test_generated_text_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    page, part = tmp_path / "page.md", tmp_path / "part.md"
    page.write_text("# Page\n\n<!-- Made by `x`. Do not edit. -->\n\nText.\n", encoding="utf-8")
    part.write_text("One.\n\n<!-- generated: x -->\n\nTwo.\n\n<!-- end -->\n\nThree.\n", encoding="utf-8")
    assert not list(prose.sentences_of_document(page))
    assert [(s.line, s.text) for s in prose.sentences_of_document(part)] == [(1, "One."), (9, "Three.")]


def test_folders_stand_for_their_documents_and_modules(tmp_path: Path) -> None:
    files = [tmp_path / "a.md", tmp_path / "b.txt", tmp_path / "inner" / "c.py"]
    files[2].parent.mkdir()
    for file in files:
        file.touch()
    assert list(prose.sources([files[0], tmp_path])) == [files[0], files[0], files[2]]


# ---- findings ----------------------------------------------------------------------------


def test_long_sentences_are_found_longest_first() -> None:
    text = "One two three. One two three four five. One two three four."
    findings = prose.long_sentences(prose.sentences_of_markdown("x.md", text), longest=3)
    assert [str(f) for f in findings] == [
        "x.md:1: 5 words: One two three four five.",
        "x.md:1: 4 words: One two three four.",
    ]


def test_words_are_found_as_whole_words_beside_no_other() -> None:
    row = prose.Term(("lanes", "so many"), "elements", ("warp",))
    assert row.found("Lanes past the end") == "lanes"
    assert row.found("It runs so\nmany programs") == "so many"
    assert row.found("planes; lanes-wide") is None
    assert row.found("the lanes of a warp") is None


def test_words_in_code_are_not_found() -> None:
    sentences = list(prose.sentences_of_markdown("x.md", "The option `lanes` is one."))
    assert not prose.words_not_to_use(sentences, [prose.Term(("lanes",), "elements", ())])


# ---- the documents, the package and the tests ----------------------------------------------


@pytest.fixture(scope="module")
def everything() -> list[prose.Sentence]:
    return list(prose.sentences(prose.sources(prose.ALL)))


def test_nothing_is_found_in_documents_and_docstrings(everything: list[prose.Sentence]) -> None:
    findings = prose.long_sentences(everything) + prose.words_not_to_use(everything, prose.terms(GLOSSARY))
    assert [str(f) for f in findings] == []


def test_chapters_to_learn_from_have_short_sentences(everything: list[prose.Sentence]) -> None:
    chapters = [s for s in everything if s.path.startswith("docs/learn/")]
    assert chapters
    assert [str(f) for f in prose.long_sentences(chapters, longest=30)] == []


# ---- the glossary ------------------------------------------------------------------------


def groups() -> list[list[re.Match[str]]]:
    parts = GLOSSARY.partition("\n## Do not use\n")[0].split("\n## ")[1:]
    return [[entry for line in part.splitlines() if (entry := ENTRY.match(line))] for part in parts]


def test_every_entry_is_one_sentence() -> None:
    lines = [line for line in GLOSSARY.splitlines() if line.startswith("- ")]
    assert [line for line in lines if not ENTRY.match(line)] == []
    for entry in (e for group in groups() for e in group):
        assert len(list(prose.split_sentences(entry["text"]))) == 1, entry[0]


def test_entries_are_in_alphabetical_order() -> None:
    for group in groups():
        names = [entry["term"].lower() for entry in group]
        assert names == sorted(names)
    names = [entry["term"] for group in groups() for entry in group]
    assert len(names) == len(set(names)) >= 80


def test_every_file_of_the_glossary_exists() -> None:
    assert [e[0] for group in groups() for e in group if not (prose.ROOT / e["file"]).is_file()] == []


def test_every_word_not_to_use_has_a_replacement() -> None:
    rows = prose.terms(GLOSSARY)
    assert len(rows) >= 20
    assert all(row.phrases and row.instead for row in rows)
    phrases = [p for row in rows for p in row.phrases]
    assert len(phrases) == len(set(phrases))


def test_the_glossary_follows_itself() -> None:
    sentences = list(prose.sentences_of_document(prose.GLOSSARY))
    assert not prose.long_sentences(sentences)
    assert not prose.words_not_to_use(sentences, prose.terms(GLOSSARY))
