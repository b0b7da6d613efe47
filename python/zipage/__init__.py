"""Zipage: an inference engine for reasoning models that caps each request's KV cache.

    from zipage import ZipLLM as LLM, SamplingParams
    llm = LLM("path/to/model")
    print(llm.generate("hello", SamplingParams(temperature=0.6))[0].outputs[0].text)
"""

from importlib.metadata import PackageNotFoundError, version

from zipage._engine import EngineError
from zipage.async_llm import AsyncLLM
from zipage.llm import GenerationError, ZipLLM
from zipage.outputs import CompletionOutput, Logprob, RequestOutput
from zipage.prompts import TextPrompt, TokensPrompt
from zipage.sampling_params import RequestOutputKind, SamplingParams
from zipage.tokenizer import Tokenizer

try:
    __version__ = version("zipage")
except PackageNotFoundError:  # imported from the source tree
    __version__ = "0.0.0"

LLM = ZipLLM
AsyncLLMEngine = AsyncLLM

__all__ = [
    "LLM", "AsyncLLM", "AsyncLLMEngine", "CompletionOutput", "EngineError", "GenerationError", "Logprob", "RequestOutput",
    "RequestOutputKind", "SamplingParams", "TextPrompt", "TokensPrompt", "Tokenizer", "ZipLLM", "__version__",
]  # fmt: skip
