import os
import time
from pathlib import Path

import pytest

os.environ.setdefault("ZIPAGE_CONFIGURE_LOGGING", "0")

from zipage import AsyncLLM, SamplingParams, ZipLLM  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = str(ROOT / "models" / "reasoner-16m")
# Small enough for a busy machine.
ENGINE = {"device": "cpu", "kv_cache_memory": "64MiB", "block_size": 64, "kv_budget": 512, "max_model_len": 4096}
MUL = "<|im_start|>user\nmul 12345*67890<|im_end|>\n<|im_start|>assistant\n<think>\n"
GREEDY = SamplingParams(temperature=0, max_tokens=12)


def wait_until_idle(engine):
    """The stats once the step that ended the last request is over."""
    for _ in range(600):
        stats = engine._engine.stats()
        if stats["num_running"] + stats["num_waiting"] == 0:
            return stats
        time.sleep(0.05)
    raise AssertionError(stats)


@pytest.fixture(scope="session")
def llm():
    with ZipLLM(MODEL, **ENGINE) as engine:
        yield engine


@pytest.fixture(scope="session")
def async_llm():
    engine = AsyncLLM(MODEL, **ENGINE)
    yield engine
    engine.shutdown()
