"""Judges answers of a GGUF model: transformers computes the same positions with the file's dequantised weights in f32.

usage: judge_smollm2.py MODEL.gguf ANSWERS.json LOGPROBS.f32 VERDICT.json
ANSWERS.json: [{"prompt": ids, "tokens": ids}]; LOGPROBS.f32: our log-probabilities [all tokens in order, vocabulary].
"""
import json
import os
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM

path, answers, logprobs, verdict = sys.argv[1:]
rows = json.load(open(answers))
model = AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path),
                                             dtype=torch.float32, attn_implementation="eager").eval()
ours = torch.from_numpy(np.fromfile(logprobs, dtype=np.float32).reshape(-1, model.config.vocab_size))
at, different, largest, error, scale = 0, 0, 0.0, 0.0, 0.0
with torch.no_grad():
    for row in rows:
        logits = model(torch.tensor([row["prompt"] + row["tokens"]])).logits[0, len(row["prompt"]) - 1 : -1]
        theirs = torch.log_softmax(logits.double(), -1)
        tokens = torch.tensor(row["tokens"])
        different += int((logits.argmax(-1) != tokens).sum())
        delta = ours[at : at + len(tokens)].double() - theirs
        at += len(tokens)
        largest = max(largest, float(delta.abs().max()))
        error += float((delta**2).sum())
        scale += float(((theirs - theirs.mean(-1, keepdim=True)) ** 2).sum())
assert at == len(ours), (at, len(ours))
json.dump({"different_tokens": different, "tokens": at, "max_difference": largest,
           "relative_difference": (error / scale) ** 0.5}, open(verdict, "w"))
