"""Clients of an OpenAI server, many at once, each with one request after another, and when they
got their tokens. vLLM's own ``bench serve`` does the same but wants a tokenizer, which a model of
random weights has not.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from dataclasses import dataclass
from typing import Any

from .samples import percentile

LIMIT = 1 << 20  # bytes of a line of an answer
DATA, DONE = b"data: ", b"[DONE]"


@dataclass(frozen=True)
class Request:
    prompt: list[int]
    new: int  # tokens that are wanted


@dataclass(frozen=True)
class Answered:
    """Seconds on one clock, and how many tokens came."""

    sent: float
    first: float
    last: float
    tokens: int


def drawn_requests(
    count: int, vocabulary: int, prompt: tuple[int, int], new: tuple[int, int], seed: int
) -> list[Request]:
    """Draw requests; their lengths are even between two bounds."""
    draw = random.Random(seed)
    return [
        Request([draw.randrange(3, vocabulary) for _ in range(draw.randint(*prompt))],
                draw.randint(*new))
        for _ in range(count)
    ]  # fmt: skip


async def ask(port: int, model: str, request: Request) -> Answered:
    """Stream one answer.

    Raises:
        RuntimeError: the server refuses or fails, or not all tokens come.
    """
    asked = {
        "model": model, "prompt": request.prompt, "max_tokens": request.new, "temperature": 0,
        "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
        "return_token_ids": True, "detokenize": False,
    }  # fmt: skip
    body = json.dumps(asked).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LIMIT)
    sent = time.perf_counter()
    writer.write(head.encode() + body)
    try:
        status = await reader.readline()
        if b" 200 " not in status:
            told = (await reader.read()).decode(errors="replace")
            raise RuntimeError(f"{status.decode().strip()}: {told[-500:]}")
        first, tokens = 0.0, 0
        async for line in reader:  # between lines of data are lengths of chunks
            if not line.startswith(DATA) or DONE in line:
                continue
            event: dict[str, Any] = json.loads(line.removeprefix(DATA))
            if "error" in event:
                raise RuntimeError(f"in the stream: {event['error']}")
            if event.get("choices") and not first:
                first = time.perf_counter()
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
    finally:
        writer.close()
    if tokens != request.new:
        raise RuntimeError(f"{tokens} tokens came, {request.new} were wanted")
    return Answered(sent, first, time.perf_counter(), tokens)


async def load(port: int, model: str, requests: list[Request], clients: int) -> list[Answered]:
    """Send all requests, by so many clients at once."""
    left = iter(requests)

    async def client() -> list[Answered]:
        return [await ask(port, model, request) for request in left]

    found = await asyncio.gather(*(client() for _ in range(clients)))
    return list(itertools.chain.from_iterable(found))


def summary(answers: list[Answered]) -> dict[str, float]:
    """Return requests and tokens a second, and milliseconds until the first token."""
    seconds = max(x.last for x in answers) - min(x.sent for x in answers)
    waited = [(x.first - x.sent) * 1e3 for x in answers]
    return {
        "requests_per_second": len(answers) / seconds,
        "tokens_per_second": sum(x.tokens for x in answers) / seconds,
        "first_token_ms_p50": percentile(waited, 0.5),
        "first_token_ms_p99": percentile(waited, 0.99),
    }
