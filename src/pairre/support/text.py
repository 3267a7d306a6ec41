"""Text from outside, such as names, paths and messages of other programs: shown, quoted for a shell, written as JSON.

A name may contain anything. On a terminal a control character could move the cursor, change the title of the window or
hide the rest of a line, so nothing from outside is printed before `visible` has replaced such characters.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import Any

from pairre.support.errors import PairREError

# C0 controls, DEL, C1 controls, line and paragraph separators, bidirectional embeddings, overrides and isolates,
# interlinear annotation characters, and surrogates that are not half of a pair.
_HIDDEN = "\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ufff9-\\ufffb\\ud800-\\udfff"
_hidden = re.compile(f"[{_HIDDEN}]")
_hidden_in_lines = re.compile(f"(?!\\n)[{_HIDDEN}]")
_hidden_in_json = re.compile("[\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ufff9-\\ufffb\\ud800-\\udfff]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: str) -> str:
    r"""Return the text on one line, with escapes such as `\x1b` and `\u202e` in place of control characters.

    Control characters are those of C0 and C1, DEL, line and paragraph separators, and characters that change the
    direction of text. A byte of an argument or a path that is not UTF-8 becomes an escape such as `\xff`.
    """
    return _hidden.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Return the text as `visible` does, with its line breaks kept."""
    return _hidden_in_lines.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python represents a byte that is not UTF-8
        code -= 0xDC00
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def shell_word(text: str | os.PathLike[str]) -> str:
    """Return a text as one word of a shell command, so that a line that is pasted into a shell means that text.

    Words with control characters are quoted as `$'…'`, which bash, zsh and POSIX shells since 2024 read. A path that
    begins with a hyphen begins with `./` instead, so that it is not taken for an option.
    """
    word = os.fspath(text)
    if word.startswith("-") and not isinstance(text, str):
        word = f"./{word}"
    if not _hidden.search(word):
        return shlex.quote(word)
    return "$'" + "".join(map(_quoted, word)) + "'"


def _quoted(character: str) -> str:
    """Return a character as it is written between `$'` and `'`."""
    if not _hidden.match(character):
        return f"\\{character}" if character in "\\'" else character
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", errors))


def json_text(value: Any, indent: int | None = 2) -> str:
    """Return a value as JSON, exact and without control characters, which are written as escapes.

    Without an indent it has no spaces. A number that is not finite has no place in JSON and raises a PairREError.
    """
    try:
        separators = (",", ":") if indent is None else None
        text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise PairREError("a number of the result is not finite (NaN or infinite), and JSON has none") from error
    return _hidden_in_json.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
