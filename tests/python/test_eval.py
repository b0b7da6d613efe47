"""python -m zipage.eval: answers, LongBench's measures, and a run on the embedded model."""

import json
import math

import pytest
from conftest import MODEL, ROOT

from zipage.eval import longbench
from zipage.eval.__main__ import engine_arguments, main
from zipage.eval.answers import extract_answer, is_equal, last_boxed, reference_answer


@pytest.mark.parametrize(("text", "answer"), [
    (r"so \boxed{12} and then \boxed{34}", "34"),
    (r"\boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
    (r"\boxed{ \{1, 2\} }", r"\{1, 2\}"),
    (r"first \boxed{7}, then \boxed{8", "7"),
    ("nothing", None),
])  # fmt: skip
def test_last_boxed(text, answer):
    assert last_boxed(text) == answer


@pytest.mark.parametrize(("text", "answer"), [
    ("...\n#### 1,234", "1,234"), ("The answer is 42.", "42"), ("The answer is: $3.5$", "3.5"), ("so 17 apples", None),
])  # fmt: skip
def test_extract_answer(text, answer):
    assert extract_answer(text) == answer


def test_last_number_only_when_asked():
    assert extract_answer("so 17 apples cost 1,250.50 each", last_number=True) == "1,250.50"
    assert reference_answer("She has 3+4=7.\n#### 7") == "7" and reference_answer(113) == "113"


@pytest.mark.parametrize(("a", "b", "same"), [
    ("1,234", "1234", True), ("0.5", r"\frac{1}{2}", True), ("073", "73", True), ("7.0", "7", True), ("$5$", "5", True),
    (r"\dfrac12", "1/2", True), (r"-\frac{3}{4}", "-0.75", True), (r"50\%", "50", True), (r"90^\circ", "90", True),
    (r"\text{Tuesday}", "Tuesday", True), ("x = 5", "5", True), (r"\left( 1, 2 \right)", "(1,2)", True),
    ("5", "6", False), ("1/3", "0.333", False), (None, "5", False), ("(1,2)", "(2,1)", False), ("", "0", False),
    ("a=29 b=07", "a=29 b=08", False), ("1/0", "1", False),
])  # fmt: skip
def test_is_equal(a, b, same):
    assert is_equal(a, b) is same


def test_longbench_measures():
    assert longbench.f1("The cat sat", "a cat") == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert longbench.rouge_l("a b x c", "a b c") == pytest.approx(2 * 2 / 5)  # the article goes: b x c, b c
    assert longbench.rouge_l("今天好", "今天很好", chinese=True) == pytest.approx(6 / 7)
    assert longbench.classification("Type: City or Country", "City", ["City", "Country", "Date"]) == 0.5
    assert longbench.classification("Other location", "Other location", ["location", "Other location"]) == 1.0
    assert longbench.retrieval("Paragraph 3, not Paragraph 5", "Paragraph 3") == 0.5
    assert longbench.count("There are 5", "5") == 1.0
    assert longbench.code_similarity("# note\nreturn x\nmore", "return x") == 1.0
    assert longbench.score("trec", "\nCity\nDate", ["City"], ["City", "Date"]) == 1.0
    assert longbench.score("hotpotqa_e", "Paris", ["London", "Paris"], None) == 1.0
    assert longbench.score("narrativeqa", "", ["Paris"], None) == 0.0


def test_engine_arguments():
    assert engine_arguments(["--kv-budget", "512", "--kv-policy=paper", "--enforce-eager", "--kv-cache-memory", "64MiB"]) == {
        "kv_budget": 512, "kv_policy": "paper", "enforce_eager": True, "kv_cache_memory": "64MiB"}  # fmt: skip


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_pass_at_1_of_the_embedded_model(tmp_path, capsys):
    problems = [json.loads(line) for line in (ROOT / "bench/problems/reasoner-dev.jsonl").read_text().splitlines()]
    mul = [p for p in problems if p["task"] == "mul"][:4]
    records = [{"question": p["question"], "answer": p["answer"]} for p in mul[:2]]  # through the chat template
    records += [{"prompt": p["prompt"], "answer": p["answer"], "task": "raw", "id": p["id"]} for p in mul[2:]]
    records.append({"problem": mul[0]["question"], "answer": "not this", "task": "wrong"})
    file = write_lines(tmp_path / "p.jsonl", records)
    code = main([MODEL, file, "--instruction", "", "--no-progress", "--json", str(tmp_path / "s.json"), "--output",
                 str(tmp_path / "o.jsonl"), "--kv-cache-memory", "64MiB", "--block-size", "64", "--device", "cpu"])
    report = json.loads((tmp_path / "s.json").read_text())
    assert code == 0 and math.isclose(report["score"], 0.8) and report["cut_off"] == 0
    assert {g: p["score"] for g, p in report["by_group"].items()} == {"all": 1.0, "raw": 1.0, "wrong": 0.0}
    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [line["answer"] for line in lines[:4]] == [p["answer"] for p in mul] and lines[2]["id"] == mul[2]["id"]
    assert "pass@1  80.00%" in capsys.readouterr().out


def test_longbench_file(tmp_path, capsys):
    file = write_lines(tmp_path / "l.jsonl", [
        {"context": "Paris is big.", "input": "Which city is big?", "answers": ["Paris"], "dataset": "hotpotqa", "_id": "x"}])
    assert main([MODEL, file, "--no-progress", "--kv-cache-memory", "64MiB", "--block-size", "64", "--device", "cpu",
                 "--max-tokens", "8"]) == 0
    assert "score" in capsys.readouterr().out


@pytest.mark.parametrize(("line", "words"), [
    ({"question": "1+1"}, "1: no field 'answer'"), ({"answer": "2"}, "1: no field 'question'"), ("text", "object"),
    ({"answers": ["2"], "input": "x"}, "no field context"),
])  # fmt: skip
def test_bad_file(tmp_path, line, words):
    with pytest.raises(ValueError, match=words):
        main([MODEL, write_lines(tmp_path / "b.jsonl", [line]), "--device", "cpu"])
