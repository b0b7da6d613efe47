"""Judges log-probabilities of prompts by transformers' log_softmax.

usage: judge_prompt_logprobs.py FOLDER   (FOLDER/model.txt, FOLDER/scores.json)
"""
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

folder = pathlib.Path(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained((folder / "model.txt").read_text(), dtype=torch.float32,
                                             attn_implementation="eager").eval()
TOLERANCE = 2e-3
with torch.no_grad():
    for row in json.loads((folder / "scores.json").read_text()):
        prompt, wanted, scores = row["prompt"], row["wanted"], row["scores"]
        logprobs = torch.log_softmax(model(torch.tensor([prompt])).logits[0].double(), -1)
        assert len(scores) == len(prompt) and scores[0] == []
        for i, score in enumerate(scores[1:], 1):
            theirs = logprobs[i - 1]
            assert len(score) == wanted + 1 and score[0][0] == prompt[i], (i, score)
            for token, ours, rank in score:
                assert abs(ours - float(theirs[token])) < TOLERANCE, (i, token, ours, float(theirs[token]))
                # Tokens that are as likely up to rounding may change places.
                assert int((theirs > theirs[token] + TOLERANCE).sum()) < rank <= int((theirs >= theirs[token] - TOLERANCE).sum()), (i, token, rank)
            assert [rank for _, _, rank in score[1:]] == list(range(1, wanted + 1))
