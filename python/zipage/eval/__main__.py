"""python -m zipage.eval MODEL FILE [options]: how well a model answers, under the engine's options."""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections import defaultdict
from typing import Any

from zipage import RequestOutput, SamplingParams, ZipLLM
from zipage.eval.tasks import INSTRUCTION, Task, read_tasks


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m zipage.eval",
        description="pass@1 on problems with answers (GSM8K, AMC, AIME: JSON lines with question, problem or prompt, and "
        "answer), or LongBench's scores (JSON lines with context, input, answers, dataset).",
        epilog="Any other --name value is an option of the engine: --kv-budget 512 --kv-policy paper "
        "--kv-cache-memory 64MiB --max-model-len 32768",
    )
    parser.add_argument("model", help="folder, GGUF file, or owner/name on the hub")
    parser.add_argument("file", help="JSON lines")
    parser.add_argument("--kind", choices=("auto", "math", "longbench"), default="auto",
                        help="auto: longbench where a line has 'answers'")
    parser.add_argument("--limit", type=int, help="only the first so many lines")
    parser.add_argument("--n", type=int, default=1, help="samples a problem; pass@1 is their mean")
    parser.add_argument("--temperature", type=float, help="default: the model's, or 0 for longbench")
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--max-tokens", type=int, help="default: up to the model's length, or LongBench's own limits")
    parser.add_argument("--sampling-seed", type=int)
    parser.add_argument("--instruction", default=INSTRUCTION, help="appended to each question")
    parser.add_argument("--last-number", action="store_true", help="without a boxed answer, take the last number")
    parser.add_argument("--chat", action=argparse.BooleanOptionalAction, default=None,
                        help="put questions into the chat template (default: if the model has one)")
    parser.add_argument("--system", help="system message")
    parser.add_argument("--output", help="write one line a sample to this file")
    parser.add_argument("--json", help="write the scores to this file")
    parser.add_argument("--no-progress", action="store_true")
    return parser


def engine_arguments(words: list[str]) -> dict[str, Any]:
    """--kv-budget 512 --enforce-eager -> {"kv_budget": 512, "enforce_eager": True}"""
    options: dict[str, Any] = {}
    i = 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        if not name.startswith("--"):
            raise SystemExit(f"zipage.eval: {words[i]!r}: expected an option that starts with --")
        if not equals:
            has_value = i + 1 < len(words) and not words[i + 1].startswith("--")
            value = words[i + 1] if has_value else "True"
            i += has_value
        try:
            parsed = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed = {"true": True, "false": False}.get(value.lower(), value)
        options[name[2:].replace("-", "_")] = parsed
        i += 1
    return options


def prompt_of(task: Task, llm: ZipLLM, chat: bool, system: str | None) -> Any:
    tokenizer = llm.get_tokenizer()
    if task.raw_prompt is not None:
        return {"prompt": task.raw_prompt, "prompt_token_ids": tokenizer.encode(task.raw_prompt, add_special_tokens=False)}
    if not chat:
        return task.user_text
    messages = [{"role": "user", "content": task.user_text}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return {"prompt_token_ids": tokenizer.apply_chat_template(messages, add_generation_prompt=True)}


def sampling_of(task: Task, llm: ZipLLM, arguments: argparse.Namespace) -> SamplingParams:
    params = llm.get_default_sampling_params()
    params.n = arguments.n
    params.max_tokens = arguments.max_tokens or task.max_tokens
    params.seed = arguments.sampling_seed
    if task.max_tokens is not None:
        params.temperature = 0.0
    for name in ("temperature", "top_p", "top_k"):
        if getattr(arguments, name) is not None:
            setattr(params, name, getattr(arguments, name))
    return params


def report_of(tasks: list[Task], outputs: list[RequestOutput], seconds: float) -> dict[str, Any]:
    by_group: dict[str, list[float]] = defaultdict(list)
    num_tokens = num_cut = 0
    for task, output in zip(tasks, outputs):
        scores = [task.score(one.text) for one in output.outputs]
        by_group[task.group].append(sum(scores) / len(scores))
        num_tokens += sum(len(one.token_ids) for one in output.outputs)
        num_cut += sum(one.finish_reason == "length" for one in output.outputs)
    everything = [score for scores in by_group.values() for score in scores]
    num_samples = sum(len(output.outputs) for output in outputs)
    return {
        "score": sum(everything) / len(everything),
        "problems": len(tasks),
        "by_group": {group: {"score": sum(s) / len(s), "problems": len(s)} for group, s in sorted(by_group.items())},
        "samples": num_samples,
        "mean_output_tokens": num_tokens / num_samples,
        "cut_off": num_cut,
        "seconds": seconds,
        "output_tokens_per_second": num_tokens / seconds,
    }


def write_outputs(path: str, tasks: list[Task], outputs: list[RequestOutput]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for task, output in zip(tasks, outputs):
            for one in output.outputs:
                line = {"id": task.id, "task": task.group, "sample": one.index, "completion": one.text,
                        "answer": task.show_answer(one.text), "reference": task.reference, "score": task.score(one.text),
                        "output_tokens": len(one.token_ids), "finish_reason": one.finish_reason}  # fmt: skip
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def main(words: list[str] | None = None) -> int:
    arguments, rest = _parser().parse_known_args(words)
    options = engine_arguments(rest)
    tasks = read_tasks(arguments.file, arguments.kind, arguments.instruction, arguments.last_number)[: arguments.limit]
    with ZipLLM(arguments.model, **options) as llm:
        chat = llm.get_tokenizer().has_chat_template if arguments.chat is None else arguments.chat
        prompts = [prompt_of(task, llm, chat, arguments.system) for task in tasks]
        params = [sampling_of(task, llm, arguments) for task in tasks]
        start = time.monotonic()
        outputs = llm.generate(prompts, params, use_tqdm=not arguments.no_progress)
        report = report_of(tasks, outputs, time.monotonic() - start)
        report["kv_budget"], report["kv_policy"] = llm.get_info()["kv_budget"] or "full", llm.get_info()["kv_policy"]
    if arguments.output:
        write_outputs(arguments.output, tasks, outputs)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    name = "score" if tasks[0].max_tokens is not None else "pass@1"
    for group, part in report["by_group"].items():
        if len(report["by_group"]) > 1:
            print(f"{group:24} {name} {part['score']:7.2%}  {part['problems']} problems")
    print(f"{'all':24} {name} {report['score']:7.2%}  {len(tasks)} problems, {report['samples']} samples, "
          f"{report['mean_output_tokens']:.0f} tokens each, {report['cut_off']} cut off, "
          f"{report['output_tokens_per_second']:.0f} tok/s, KV {report['kv_policy']} {report['kv_budget']}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, TypeError, OSError) as error:
        sys.exit(f"zipage.eval: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
