"""Benchmark files: JSON lines as tasks that have a prompt and a score."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from zipage.eval import longbench
from zipage.eval.answers import extract_answer, is_equal, reference_answer

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass
class Task:
    id: str
    group: str  # scores are also given by group
    user_text: str | None  # what a user says; or None, and
    raw_prompt: str | None  # a prompt that has its chat template in it already
    max_tokens: int | None
    score: Callable[[str], float]
    show_answer: Callable[[str], Any]
    reference: Any
    record: dict[str, Any] = field(repr=False, default_factory=dict)


def read_tasks(path: str, kind: str = "auto", instruction: str = INSTRUCTION, last_number: bool = False) -> list[Task]:
    """The tasks of a file; ValueError names the line that is none."""
    tasks = []
    for number, record in _read_lines(path):
        is_longbench = "answers" in record if kind == "auto" else kind == "longbench"
        try:
            task = _longbench_task(record) if is_longbench else _math_task(record, instruction, last_number)
        except KeyError as missing:
            raise ValueError(f"{path}:{number}: no field {missing.args[0]}") from None
        task.id = str(record.get("id", record.get("_id", number)))
        tasks.append(task)
    if not tasks:
        raise ValueError(f"{path}: no problems in the file")
    return tasks


def _read_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise ValueError(f"{path}:{number}: expected an object")
            yield number, record


def _math_task(record: dict[str, Any], instruction: str, last_number: bool) -> Task:
    fields = ("prompt", "question", "problem")
    names = [name for name in fields if name in record]
    if not names:
        raise KeyError("'question', 'problem' or 'prompt'")
    if "answer" not in record:
        raise KeyError("'answer'")
    right = reference_answer(record["answer"])
    raw = record.get("prompt")
    user_text = None if raw is not None else f"{record[names[0]]}\n{instruction}".rstrip()
    return Task("", str(record.get("task", "all")), user_text, raw, None,
                lambda text: float(is_equal(extract_answer(text, last_number), right)),
                lambda text: extract_answer(text, last_number), right, record)


def _longbench_task(record: dict[str, Any]) -> Task:
    dataset = str(record.get("dataset", record.get("task", "all")))
    answers, classes = record["answers"], record.get("all_classes")
    if isinstance(answers, str):
        answers = [answers]
    raw = record.get("prompt")
    user_text = None
    if raw is None:
        user_text = "\n\n".join(text for text in (record["context"], record["input"]) if text)
    language = str(record.get("language", "en"))
    return Task("", dataset, user_text, raw, longbench.max_tokens_of(dataset),
                lambda text: longbench.score(dataset, answer_part(text), answers, classes, language),
                answer_part, answers, record)


def answer_part(text: str) -> str:
    """What follows a reasoning model's thoughts."""
    return text.rsplit("</think>", 1)[-1].strip()
