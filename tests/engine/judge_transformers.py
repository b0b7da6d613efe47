"""Judges greedy answers: at every output position transformers' argmax must be our token.

usage: judge_transformers.py MODEL_FOLDER ANSWERS.json VERDICT.json
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM

model_folder, answers, verdict = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, attn_implementation="eager").eval()
different, total, largest = 0, 0, 0.0
with torch.no_grad():
    for row in json.load(open(answers)):
        ids = torch.tensor([row["prompt"] + row["tokens"]])
        logits = model(ids).logits[0, len(row["prompt"]) - 1 : -1]
        logprobs = torch.log_softmax(logits.double(), -1)
        tokens = torch.tensor(row["tokens"])
        different += int((logits.argmax(-1) != tokens).sum())
        ours = torch.tensor(row["logprobs"], dtype=torch.double)
        theirs = logprobs.gather(1, tokens[:, None])[:, 0]
        largest = max(largest, float((ours - theirs).abs().max()))
        total += len(tokens)
json.dump({"different_tokens": different, "tokens": total, "max_logprob_difference": largest}, open(verdict, "w"))
