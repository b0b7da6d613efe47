"""Judges answers of a GGUF model: transformers computes the same positions with the file's dequantised weights in f32.

usage: judge_smollm2.py MODEL.gguf ANSWERS.json VERDICT.json
ANSWERS.json: [{"prompt": ids, "tokens": ids, "listed": [[[id, log-probability], ...]]}]; a list for each token but the
first, of the token itself and of what we take for the best.
"""
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM

path, answers, verdict = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path),
                                             dtype=torch.float32, attn_implementation="eager").eval()
different, count, largest, error, scale = 0, 0, 0.0, 0.0, 0.0
with torch.no_grad():
    for row in json.load(open(answers)):
        ids = row["prompt"] + row["tokens"]
        theirs = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1].double(), -1)
        assert len(row["listed"]) == len(theirs)
        different += int((theirs[len(row["prompt"]) - 1 :].argmax(-1) != torch.tensor(row["tokens"])).sum())
        count += len(row["tokens"])
        listed = torch.tensor([[id for id, _ in entries] for entries in row["listed"]])
        ours = torch.tensor([[value for _, value in entries] for entries in row["listed"]], dtype=torch.float64)
        assert (listed[:, 0] == torch.tensor(ids[1:])).all()
        assert all(len(set(entries)) == listed.shape[1] - 1 for entries in listed[:, 1:].tolist())
        delta = ours - theirs.gather(1, listed)
        worst_listed = theirs.gather(1, listed[:, 1:]).amin(1)
        missed = theirs.topk(listed.shape[1] - 1).values[:, -1] - worst_listed
        largest = max(largest, float(delta.abs().max()), float(missed.max()))
        error += float((delta**2).mean(-1).sum())
        scale += float(((theirs - theirs.mean(-1, keepdim=True)) ** 2).mean(-1).sum())
json.dump({"different_tokens": different, "tokens": count, "max_difference": largest,
           "relative_difference": (error / scale) ** 0.5}, open(verdict, "w"))
