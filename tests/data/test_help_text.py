"""Help pages to sentence pairs, rule by rule; and the table that comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sennit.data.pairs.help_text import from_packages, parse
from sennit.errors import UserError

HELP = Path("usr/share/libreoffice/help")


def written(folder: Path, language: str, pages: dict[str, str]) -> Path:
    for name, text in pages.items():
        page = folder / HELP / language / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    return folder


def pairs(tmp_path: Path, english: str, german: str) -> list[tuple[str, str]]:
    table = from_packages(
        written(tmp_path / "en", "en-US", {"text/a.html": english}),
        written(tmp_path / "de", "de", {"text/a.html": german}),
    )
    return [pair for part in parse(table, "table").values() for pair in part]


def p(text: str, ident: str = "par_id1") -> str:
    return f'<p id="{ident}" class="paragraph" dir="auto">{text}</p>\n'


def test_paragraphs_and_headings_with_one_id_are_a_pair(tmp_path: Path) -> None:
    english = (
        p("Opens a new file.") + '<h2 id="hd_id7">Saving all open files</h2>' + p("Only in English here.", "par_id3")
    )
    german = '<h2 id="hd_id7">Alle offenen Dateien speichern</h2>' + p("Öffnet eine neue Datei.")
    assert sorted(pairs(tmp_path, english, german)) == [
        ("Opens a new file.", "Öffnet eine neue Datei."),
        ("Saving all open files", "Alle offenen Dateien speichern"),
    ]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("press the <b>big</b>\n   red button", "press the big red button"),
        ("one &amp; two &lt;b&gt; three four", "one & two three four"),
        ("the value %(name)s of %PRODUCTNAME {0} here", "the value of %PRODUCTNAME here"),
        ("one two {a {b} c} three", "one two {a c} three"),
    ],
)
def test_markup_and_placeholders_become_blanks(tmp_path: Path, markup: str, text: str) -> None:
    assert pairs(tmp_path, p(markup), p("eins zwei drei")) == [(text, "eins zwei drei")]


def test_equal_short_and_long_pairs_are_left_out(tmp_path: Path) -> None:
    for english, german in (
        ("the same here", "the same here"),
        ("two words", "drei deutsche Wörter"),
        ("three english words", "zwei Wörter 1 2 3"),
        ("word " * 61, "drei deutsche Wörter"),
    ):
        assert pairs(tmp_path, p(english), p(german)) == []
    assert len(pairs(tmp_path, p("word " * 60), p("drei deutsche Wörter"))) == 1


def test_of_an_id_that_a_page_has_twice_the_last_counts(tmp_path: Path) -> None:
    english = p("the first of them") + p("the second of them")
    assert pairs(tmp_path, english, p("der zweite davon")) == [("the second of them", "der zweite davon")]


def test_packages_without_pages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no help pages below usr/share/libreoffice/help/en-US"):
        from_packages(tmp_path / "empty", tmp_path / "empty")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must begin with the line"),
        (b"split\tsource\ttarget", "must begin with the line"),
        (b"split\tsource\ttarget\ntrain\ta\n", "line 2: expected"),
        (b"split\tsource\ttarget\ntrain\ta\tb\ndev\ta\tb\n", "line 3: expected"),
        (b"\xff\xfe\n", "not UTF-8"),
    ],
)
def test_tables_that_are_none_are_refused_with_the_line(content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(content, "table")
