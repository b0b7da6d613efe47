r"""The answer in a model's text, and whether it is the right one."""

from __future__ import annotations

import re
from fractions import Fraction

_WRAPPERS = ("text", "textbf", "mathrm", "mathbf", "mbox")
_LAST_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def last_boxed(text: str) -> str | None:
    r"""What the last \boxed{...} (or \fbox) holds, braces inside it included; None without a closed one."""
    for match in reversed(list(re.finditer(r"\\(?:boxed|fbox)\s*\{", text))):
        end = _closing_brace(text, match.end())
        if end is not None:
            return text[match.end() : end].strip()
    return None


def _closing_brace(text: str, start: int) -> int | None:
    depth = 1
    for i in range(start, len(text)):
        if text[i] == "\\" and text[i + 1 : i + 2] in ("{", "}"):
            continue
        if text[i] in "{}" and text[i - 1] != "\\":
            depth += 1 if text[i] == "{" else -1
            if depth == 0:
                return i
    return None


def extract_answer(text: str, last_number: bool = False) -> str | None:
    r"""The boxed answer; else what follows GSM8K's '####' or "answer is"; else, if asked, the last number."""
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    marked = re.findall(r"####\s*(.+)", text) or re.findall(r"answer is:?\s*\$?([^\s$]+?)\$?\.?(?:\s|$)", text, re.I)
    if marked:
        return marked[-1].strip()
    numbers = _LAST_NUMBER.findall(text) if last_number else []
    return numbers[-1] if numbers else None


def reference_answer(answer: object) -> str:
    """The answer of a problem; GSM8K gives a whole solution that ends with '#### N'."""
    text = str(answer)
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    return text.rsplit("####", 1)[-1].strip()


def normalize(answer: str) -> str:
    """Without what does not change an answer: dollar signs, spacing commands, units in text, a final point."""
    text = answer.strip().strip("$").strip()
    for wrapper in _WRAPPERS:
        text = re.sub(rf"\\{wrapper}\s*\{{([^{{}}]*)\}}", r"\1", text)
    text = re.sub(r"\\(?:left|right|,|;|!|quad|qquad|displaystyle)(?![A-Za-z])", "", text)
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"\^\s*\{?\\circ\}?|\\degree|°", "", text)
    text = text.replace("\\$", "").replace("\\%", "").replace("%", "").replace("\\ ", " ")
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    return re.sub(r"\s+", "", text).rstrip(".")


def as_number(text: str) -> Fraction | None:
    r"""The number that a normalized answer is: 12, -3.50, 7/2, \frac{7}{2}."""
    match = re.fullmatch(r"(-?)\\frac\{(-?\d+)\}\{(-?\d+)\}", text) or re.fullmatch(r"(-?)\\frac(\d)(\d)", text)
    if match:
        text = f"{match[1]}{match[2]}/{match[3]}".replace("--", "")
    if not re.fullmatch(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:/-?\d+)?", text):
        return None
    top, _, bottom = text.partition("/")
    if bottom and int(bottom) == 0:
        return None
    return Fraction(top) / (int(bottom) if bottom else 1)


def is_equal(given: str | None, right: str) -> bool:
    """Whether two answers are the same number or, normalized, the same text."""
    if given is None:
        return False
    a, b = normalize(given), normalize(right)
    if a == b:
        return True
    x, y = as_number(a), as_number(b)
    if x is not None and y is not None:
        return x == y
    # "x = 5" for 5
    for one, other in ((a, b), (b, a)):
        name, equals, value = one.partition("=")
        if equals and re.fullmatch(r"[A-Za-z]", name) and "=" not in value and value == other:
            return True
    return False
