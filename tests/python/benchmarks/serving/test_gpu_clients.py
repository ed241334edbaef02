"""Clients that load a server, against one that answers as vLLM's does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from benchmarks.serving.gpu import clients
from benchmarks.serving.gpu.clients import Answered, Request


class Fake:
    """Streams tokens, a chunk each, and counts how many requests it has at once."""

    def __init__(self, lost: int = 0, status: str = "200 OK", error: str = "") -> None:
        self.lost, self.status, self.error, self.now, self.most = lost, status, error, 0, 0
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, reader: Any, writer: Any) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(x for x in head.split("\r\n") if x.startswith("Content-Length"))
        asked = json.loads(await reader.readexactly(int(length.split(": ")[1])))
        self.asked.append(asked)
        writer.write(f"HTTP/1.1 {self.status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        if self.error:
            self.send(writer, {"error": {"message": self.error}})
        for _ in range(asked["max_tokens"]):
            await asyncio.sleep(0.01)
            self.send(writer, {"choices": [{"text": ""}], "usage": None})
        new = asked["max_tokens"] - self.lost
        self.send(writer, {"choices": [], "usage": {"completion_tokens": new}})
        self.send(writer, "[DONE]")
        self.now -= 1
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    @staticmethod
    def send(writer: Any, event: Any) -> None:
        text = event if isinstance(event, str) else json.dumps(event)
        data = f"data: {text}\n\n".encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def answers(server: Fake, requests: list[Request], at_once: int) -> list[Answered]:
    async def run() -> list[Answered]:
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            return await clients.load(port, "model", requests, at_once)

    return asyncio.run(run())


def test_so_many_clients_ask_all_requests() -> None:
    server = Fake()
    requests = clients.drawn_requests(9, 100, (5, 20), (2, 6), seed=1)
    found = answers(server, requests, 4)
    assert server.most == 4 and len(found) == 9
    assert sorted(x["prompt"] for x in server.asked) == sorted(x.prompt for x in requests)
    assert sorted(x.tokens for x in found) == sorted(x.new for x in requests)
    assert all(x.sent < x.first <= x.last for x in found)
    assert all(x.last - x.first >= 0.009 * (x.tokens - 1) for x in found)
    assert all(x["stream"] and x["ignore_eos"] for x in server.asked)


def test_an_answer_that_lacks_tokens_is_no_answer() -> None:
    with pytest.raises(RuntimeError, match="2 tokens came, 3 were wanted"):
        answers(Fake(lost=1), [Request([1], 3)], 1)


def test_a_refusal_is_told() -> None:
    with pytest.raises(RuntimeError, match="400 Bad Request"):
        answers(Fake(status="400 Bad Request"), [Request([1], 1)], 1)


def test_a_failure_in_the_stream_is_told() -> None:
    with pytest.raises(RuntimeError, match="in the stream"):
        answers(Fake(error="EngineCore encountered an issue"), [Request([1], 1)], 1)


def test_requests_are_drawn_within_their_bounds_and_again() -> None:
    made = clients.drawn_requests(50, 100, (5, 20), (2, 6), seed=1)
    assert made == clients.drawn_requests(50, 100, (5, 20), (2, 6), seed=1)
    assert made != clients.drawn_requests(50, 100, (5, 20), (2, 6), seed=2)
    assert {len(x.prompt) for x in made} <= set(range(5, 21))
    assert {x.new for x in made} == {2, 3, 4, 5, 6}
    assert all(3 <= token < 100 for x in made for token in x.prompt)


def test_what_a_round_was_like() -> None:
    found = clients.summary([Answered(10.0, 10.1, 12.0, 30), Answered(11.0, 11.5, 14.0, 50)])
    assert found["requests_per_second"] == 0.5 and found["tokens_per_second"] == 20
    assert found["first_token_ms_p50"] == pytest.approx(100)
    assert found["first_token_ms_p99"] == pytest.approx(500)
