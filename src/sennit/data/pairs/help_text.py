"""EN-DE pairs from the help pages of LibreOffice: exact, because both languages carry the same paragraph ids.

The rules are those of the pinned set, and each is needed to give its hash:
1. `<p>` and `<h1>` ... elements with an id `par_id...` or `hd_id...` of word characters; where a page has an
   id
   twice, the last one counts.
2. Tags become blanks, then character references are resolved; what then looks like a tag, a reference, a
   %-placeholder or text in braces becomes a blank, and blanks are joined.
3. Pairs with equal sides are left out, duplicates as well, and those without 3 to 60 words on both sides.
4. Split by hash of the source (`split_of`); sorted by split, source, target.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from sennit.data.splits import split_of
from sennit.errors import UserError

HEADER = "split\tsource\ttarget"
WORDS = (3, 60)
"""Fewest and most words of a sentence."""

_ELEMENT = re.compile(r'<(p|h\d)\b[^>]*\bid="((?:par|hd)_id\w+)"[^>]*>(.*?)</\1>', re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_MARKUP = re.compile(r"<[^>]+>|&\w+;|%\(\w+\)[sd]|%[sd%]|\{[^{}]*\}")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
"""A run of letters; ' ’ - may stand inside."""


def from_packages(english: Path, german: Path) -> bytes:
    """The set as UTF-8, one line `split TAB source TAB target` per pair below a header.

    Args:
        english, german: folders of the unpacked packages.

    Raises:
        UserError: no help pages where they were expected.
    """
    source, target = _paragraphs(english, "en-US"), _paragraphs(german, "de")
    pairs = {(source[place], target[place]) for place in source.keys() & target.keys()}
    kept = [(s, t) for s, t in pairs if s != t and _fits(s) and _fits(t)]
    rows = sorted((split_of(s), s, t) for s, t in kept)
    return "".join(f"{line}\n" for line in (HEADER, *("\t".join(row) for row in rows))).encode()


def parse(content: bytes, where: str) -> dict[str, list[tuple[str, str]]]:
    """Pairs by split, in the order of the file.

    Raises:
        UserError: content that is no such table, with the line.
    """
    pairs: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not UTF-8 text: {error}") from error
    if lines[0] != HEADER or lines[-1] != "":
        raise UserError(f"{where} must begin with the line {HEADER!r} and end with a newline, got {lines[0][:60]!r}")
    for number, line in enumerate(lines[1:-1], start=2):
        parts = line.split("\t")
        if len(parts) != 3 or parts[0] not in pairs:
            raise UserError(
                f"{where}, line {number}: expected 'split TAB source TAB target' with a split of "
                f"{', '.join(pairs)}, got {line[:60]!r}"
            )
        pairs[parts[0]].append((parts[1], parts[2]))
    return pairs


def _paragraphs(package: Path, language: str) -> dict[tuple[str, str], str]:
    """Text by (page, id)."""
    root = package / "usr" / "share" / "libreoffice" / "help" / language
    pages = sorted(root.rglob("*.html"))
    if not pages:
        raise UserError(f"the package {package.name} has no help pages below {root.relative_to(package)}")
    found: dict[tuple[str, str], str] = {}
    for page in pages:
        name = str(page.relative_to(root))
        for element in _ELEMENT.finditer(page.read_text(encoding="utf-8")):
            found[name, element[2]] = _plain(element[3])
    return found


def _plain(markup: str) -> str:
    text = html.unescape(_TAG.sub(" ", markup))
    return " ".join(_MARKUP.sub(" ", text).split())


def _fits(text: str) -> bool:
    return WORDS[0] <= len(_WORD.findall(text)) <= WORDS[1]
