"""Scores of LongBench's datasets, all in 0..1, the best over the reference answers."""

from __future__ import annotations

import difflib
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

_SUMMARY = ("dureader", "gov_report", "qmsum", "multi_news", "vcsum", "samsum")
_CLASSES = ("trec", "lsht")
_CODE = ("lcc", "repobench-p")
_PUNCTUATION = set(string.punctuation) | set("！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～、《》「」『』【】〔〕…—“”‘’·")


def words_of(text: str, chinese: bool) -> list[str]:
    """What F1 and ROUGE-L count: words without case, punctuation and articles; in Chinese, characters."""
    text = "".join(c for c in text.lower() if c not in _PUNCTUATION)
    if chinese:
        return [c for c in text if not c.isspace()]
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(given: str, right: str, chinese: bool = False) -> float:
    a, b = words_of(given, chinese), words_of(right, chinese)
    common = sum((Counter(a) & Counter(b)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(a), common / len(b)
    return 2 * precision * recall / (precision + recall)


def rouge_l(given: str, right: str, chinese: bool = False) -> float:
    """F-measure of the longest common subsequence."""
    a, b = words_of(given, chinese), words_of(right, chinese)
    lengths = [0] * (len(b) + 1)  # of the longest common subsequence of a[:i] and b[:j]
    for word in a:
        diagonal = 0
        for j, other in enumerate(b, 1):
            diagonal, lengths[j] = lengths[j], diagonal + 1 if word == other else max(lengths[j], lengths[j - 1])
    common = lengths[-1]
    return 2 * common / (len(a) + len(b)) if common else 0.0


def classification(given: str, right: str, classes: Sequence[str]) -> float:
    """1 over the number of classes named, when the right one is among them and names are not parts of it."""
    named = [name for name in classes if name in given]
    named = [name for name in named if name == right or name not in right]
    return 1 / len(named) if right in named else 0.0


def retrieval(given: str, right: str, chinese: bool = False) -> float:
    """Share of the numbers in the text that are the right paragraph's."""
    wanted = re.findall(r"段落(\d+)" if chinese else r"Paragraph (\d+)", right)
    return _share_of_numbers(given, wanted[0]) if wanted else 0.0


def count(given: str, right: str) -> float:
    return _share_of_numbers(given, right.strip())


def _share_of_numbers(given: str, wanted: str) -> float:
    numbers = re.findall(r"\d+", given)
    return sum(number == wanted for number in numbers) / len(numbers) if numbers else 0.0


def code_similarity(given: str, right: str) -> float:
    """Similarity to the first line that is code."""
    lines = [line for line in given.lstrip("\n").split("\n") if not set("`#") & set(line) and "//" not in line]
    return difflib.SequenceMatcher(None, lines[0] if lines else "", right, autojunk=False).ratio()


def score(dataset: str, given: str, answers: Sequence[str], classes: Sequence[str] | None, language: str = "en") -> float:
    """The best score over `answers` by the dataset's own measure; an unknown dataset is scored by F1."""
    name = dataset.removesuffix("_e")
    chinese = language == "zh" or name.endswith("_zh") or name in ("dureader", "vcsum", "lsht")
    measure: Callable[[str, str], float]
    if name in _SUMMARY:
        measure = lambda a, b: rouge_l(a, b, chinese)  # noqa: E731
    elif name in _CLASSES:
        measure = lambda a, b: classification(a, b, classes or [])  # noqa: E731
    elif name.startswith("passage_retrieval"):
        measure = lambda a, b: retrieval(a, b, chinese)  # noqa: E731
    elif name == "passage_count":
        measure = count
    elif name in _CODE:
        measure = code_similarity
    else:
        measure = lambda a, b: f1(a, b, chinese)  # noqa: E731
    if name in ("trec", "triviaqa", "samsum", "lsht"):  # few-shot forms: the answer is the first line
        given = given.lstrip("\n").split("\n")[0]
    return max((measure(given, right) for right in answers), default=0.0)


# Output tokens that an answer of each kind needs.
def max_tokens_of(dataset: str) -> int:
    name = dataset.removesuffix("_e")
    if name in _SUMMARY:
        return 128 if name in ("dureader", "samsum") else 512
    return 128 if name in ("narrativeqa", "qasper") else 64 if name in (*_CLASSES, *_CODE) else 32
