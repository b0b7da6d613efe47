"""lm-eval's local-completions against a server over the embedded model: loglikelihood and generate_until.

usage: judge_lm_eval.py FOLDER   (FOLDER/port.txt: where it listens, key "sesame"; FOLDER/model.txt: the model's folder)

The log-likelihoods that lm-eval got must be those of transformers, and its greedy answers right.
"""
import json
import os
import pathlib
import sys

FOLDER = pathlib.Path(sys.argv[1])
MODEL = (FOLDER / "model.txt").read_text()
URL = f"http://127.0.0.1:{(FOLDER / 'port.txt').read_text()}/v1/completions"
os.environ |= {"OPENAI_API_KEY": "sesame", "HF_HOME": str(FOLDER / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
               "HF_UPDATE_DOWNLOAD_COUNTS": "0", "TOKENIZERS_PARALLELISM": "false"}

import torch  # noqa: E402
from lm_eval import simple_evaluate  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

LIKELIHOOD_TASK = """
task: tiny_loglikelihood
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{prompt}}}}"
doc_to_target: label
doc_to_choice: choices
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""
GENERATION_TASK = """
task: tiny_generate
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: answer
target_delimiter: ""
generation_kwargs: {{until: ["<|im_end|>"], max_gen_toks: 700, do_sample: false, temperature: 0.0}}
filter_list:
  - name: boxed
    filter:
      - {{function: regex, regex_pattern: "boxed{{(.*?)}}"}}
      - {{function: take_first}}
metric_list: [{{metric: exact_match}}]
"""


def write_task(name, text, records):
    data = FOLDER / f"{name}.jsonl"
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    (FOLDER / f"{name}.yaml").write_text(text.format(file=data))


def evaluate(task, tokenizer):
    arguments = {"model": "reasoner", "base_url": URL, "num_concurrent": 3, "max_retries": 1, "max_length": 4096,
                 "tokenized_requests": tokenizer is not None, "tokenizer_backend": tokenizer}
    if tokenizer == "remote":
        arguments["auth_token"] = "sesame"
    if tokenizer == "huggingface":
        arguments["tokenizer"] = MODEL
    return simple_evaluate(model="local-completions", model_args=arguments, tasks=[task], batch_size=2, log_samples=True,
                           bootstrap_iters=0, task_manager=TaskManager(include_path=str(FOLDER), include_defaults=False))


def prompt(question):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n"


def check_loglikelihood():
    records = [{"prompt": prompt("mul 12*34"), "choices": ["12*34:", "3", "xyz"], "label": 0},
               {"prompt": prompt("mul 1234*5678") + "1234*5678", "choices": ["=", "\n", "9999"], "label": 1},
               {"prompt": "abc " * 60, "choices": ["abc", "zzz"], "label": 0}]
    write_task("tiny_loglikelihood", LIKELIHOOD_TASK, records)
    result = evaluate("tiny_loglikelihood", "huggingface")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    samples = result["samples"]["tiny_loglikelihood"]
    assert len(samples) == len(records)
    for sample in samples:
        record = records[sample["doc_id"]]
        assert len(sample["resps"]) == len(record["choices"])
        for choice, response in zip(record["choices"], sample["resps"]):
            ours, greedy = response[0]
            # lm-eval counts white space at the context's end to what follows it.
            context, whole = tokenizer.encode(record["prompt"].rstrip()), tokenizer.encode(record["prompt"] + choice)
            assert whole[:len(context)] == context and len(whole) > len(context)
            with torch.no_grad():
                logits = model(torch.tensor([whole[:-1]])).logits[0, len(context) - 1:].double()
            tokens = torch.tensor(whole[len(context):])
            theirs = float(torch.log_softmax(logits, -1).gather(1, tokens[:, None]).sum())
            assert abs(float(ours) - theirs) < 5e-3, (record, choice, ours, theirs)
            is_greedy = bool((logits.argmax(-1) == tokens).all())
            assert str(greedy) == str(is_greedy), (record, choice, greedy)


def check_generate_until():
    questions = {f"mul {a}*{b}": str(a * b) for a, b in ((2345, 6789), (4321, 8765), (1234, 5678))}
    write_task("tiny_generate", GENERATION_TASK, [{"prompt": prompt(q), "answer": a} for q, a in questions.items()])
    for tokenizer in ("huggingface", "remote", None):
        result = evaluate("tiny_generate", tokenizer)
        assert result["results"]["tiny_generate"]["exact_match,boxed"] == 1.0, result["samples"]


check_loglikelihood()
check_generate_until()
