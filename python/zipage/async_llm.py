"""Streaming generation in asyncio."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any

from zipage import _core
from zipage._engine import EngineError, EngineUser, RunningRequest, check_not_supported, submit
from zipage.outputs import RequestOutput
from zipage.prompts import PromptType, read_prompt
from zipage.sampling_params import SamplingParams


class _LoopRequests:
    """The requests of one event loop, which is told by a file descriptor when some of them gained something."""

    def __init__(self, engine: _core.Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.collector = _core.Collector(engine, True)
        self._events: dict[int, asyncio.Event] = {}
        self._num_keys = 0
        self._loop = weakref.ref(loop)
        loop.add_reader(self.collector.fileno(), _wake, weakref.ref(self))  # the loop must not keep the engine
        weakref.finalize(self, _remove_reader, os.getpid(), self._loop, self.collector.fileno()).atexit = False

    def open(self) -> tuple[int, asyncio.Event]:
        self._num_keys += 1
        event = self._events[self._num_keys] = asyncio.Event()
        return self._num_keys, event

    def close(self, key: int) -> None:
        self._events.pop(key, None)

    def wake_all(self) -> None:
        """From any thread."""
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            for event in list(self._events.values()):
                loop.call_soon_threadsafe(event.set)

    def wake(self) -> None:
        for key in self.collector.wait(0.0):
            event = self._events.get(key)
            if event is not None:
                event.set()
            else:
                self.collector.take(key)  # of a stream that its reader has left


def _wake(requests_of: Callable[[], _LoopRequests | None]) -> None:
    requests = requests_of()
    if requests is not None:
        requests.wake()


def _remove_reader(process: int, loop_of: Callable[[], asyncio.AbstractEventLoop | None], descriptor: int) -> None:
    loop = loop_of()
    # A forked child shares the loop's selector with its parent, and must leave it alone.
    if loop is not None and not loop.is_closed() and os.getpid() == process:
        loop.remove_reader(descriptor)


class AsyncLLM(EngineUser):
    """ZipLLM for asyncio: every request is a stream, and streams share the engine. Use it from any number of loops."""

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(model, **options)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopRequests] = weakref.WeakKeyDictionary()
        self._running: dict[str, tuple[_LoopRequests, int]] = {}
        self._num_requests = 0

    async def generate(
        self,
        prompt: PromptType,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: None = None,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Outputs as they grow; `sampling_params.output_kind` says whether each holds all, the new part, or the end only.

        Leaving the loop over it, or cancelling its task, aborts the request.
        """
        self._engine.check()
        check_not_supported(lora_request)
        params = sampling_params if sampling_params is not None else self.get_default_sampling_params()
        if request_id is None:
            request_id, self._num_requests = f"async-{self._num_requests}", self._num_requests + 1
        if request_id in self._running:
            raise ValueError(f"request_id {request_id!r} is in use")
        request = RunningRequest(request_id, read_prompt(prompt, self.get_tokenizer), params, self.get_tokenizer)
        requests = self._requests_of_loop()
        key, event = requests.open()
        try:
            submit(requests.collector, key, request, priority)
            self._running[request_id] = (requests, key)
            while not request.finished:
                await event.wait()
                event.clear()
                if self._engine.closed:
                    raise EngineError("the engine was shut down while the request ran")
                request.add(requests.collector.take(key))
                if request.is_due():
                    yield request.output(params.output_kind)
            if request.error is not None:
                raise EngineError(request.error)
        finally:
            requests.close(key)
            self._running.pop(request_id, None)
            if not request.finished and not self._engine.closed:
                requests.collector.abort(key)
            self._drain_log()

    async def abort(self, request_id: str) -> None:
        """Ends a request; its stream ends with finish_reason "abort". An unknown or finished one is not minded."""
        found = self._running.get(request_id)
        if found is not None:
            requests, key = found
            requests.collector.abort(key)

    async def reset_prefix_cache(self) -> bool:
        self._engine.reset_prefix_cache()
        return True

    def shutdown(self) -> None:
        super().shutdown()
        for requests in list(self._loops.values()):
            requests.wake_all()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.shutdown()

    def _requests_of_loop(self) -> _LoopRequests:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = _LoopRequests(self._engine, loop)
        return self._loops[loop]

