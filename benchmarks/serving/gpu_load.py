"""vLLM's OpenAI server on a GPU under load, with our kernels and with its own: requests and tokens
a second, and how long a client waits for its first token.

    python -m benchmarks.serving.gpu_load --out FILE [--variants "W4A16 g128, ours"] [--seconds 540]

Models as of ``gpu_step``. 64 clients each send one request after another: prompts of 256 to 768
tokens, 64 to 192 new ones. Servers that fit into the memory start together and are loaded one after
another; the result is the median of several rounds. The section "load" of FILE has a line for each
variant; the exit status is 75 where some are missing, so that the next call goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
from contextlib import ExitStack

from . import processes, served
from .gpu import clients, engines, random_weights, variants
from .gpu.jobs import Line, file_name
from .gpu.options import DTYPES, options, section
from .gpu.report import UNFINISHED, Report, about
from .gpu.variants import Variant
from .served import Server

KEYS = ("name", "dtype")
CLIENTS, REQUESTS, ROUNDS = 64, 256, 3
PROMPT, NEW = (256, 768), (64, 192)
# In 32 layers 56,000 tokens: CLIENTS sequences hold 37,000 on average, 61,000 if all were longest.
CACHE_BYTES = 7 << 30
DEFAULT = ("bf16", "W4A16 g128", "W8A8 dynamic", "FP8 dynamic")
CAPTURED = [1, 2, 4, 8, *range(16, CLIENTS + 1, 8)]
THREADS, LEAST_SECONDS = 4, 120


def server_options(given: argparse.Namespace) -> list[str]:
    asked: dict[str, object] = {
        "dtype": given.dtype, "load-format": "dummy", "max-model-len": PROMPT[1] + NEW[1],
        "max-num-seqs": given.clients, "max-num-batched-tokens": 8192,
        "kv-cache-memory-bytes": CACHE_BYTES // given.tensor_parallel,
        "gpu-memory-utilization": 0.05, "tensor-parallel-size": given.tensor_parallel,
        "attention-config": json.dumps({"backend": given.attention}),
        "compilation-config": json.dumps({"cudagraph_capture_sizes": CAPTURED}),
    }  # fmt: skip
    named = [text for name, value in asked.items() for text in (f"--{name}", str(value))]
    return [*named, "--skip-tokenizer-init", "--no-enable-prefix-caching"]


def start(variant: Variant, given: argparse.Namespace) -> Server:
    name = file_name(variant.name)
    shape = variants.write_shape(variant, given.work / "shapes", given.layers, given.dtype)
    own = engines.environment(given.work, f"load-{name}", variant.place, THREADS)
    plugin = random_weights.write_metadata(given.work / "random_weights")
    path = f"{plugin}:{own['PYTHONPATH']}"
    log = given.work / "logs" / f"load-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = served.environment({**own, **variant.environment}, PYTHONPATH=path)
    return Server(shape, log, environment, *server_options(given))


def held(log: str) -> list[str]:
    """Find the classes of kernels that a server's log names."""
    return sorted(set(re.findall(r"(?:Using|Selected) (\w+Kernel\w*) for", log)))


def measured(server: Server, given: argparse.Namespace) -> Line:
    """Return medians over rounds, and by name the largest less the least."""
    rounds = []
    for seed in range(ROUNDS + 1):  # the first warms up
        count = given.requests if seed else given.clients
        asked = clients.drawn_requests(count, variants.LLAMA["vocab_size"], PROMPT, NEW, seed)
        answers = asyncio.run(clients.load(server.port, server.model, asked, given.clients))
        rounds.append(clients.summary(answers))
    found = {name: [x[name] for x in rounds[1:]] for name in rounds[0]}
    return {
        **{name: round(statistics.median(x), 2) for name, x in found.items()},
        "spread": {name: round(max(x) - min(x), 2) for name, x in found.items()},
    }


def run_group(group: list[Variant], given: argparse.Namespace, end: float, report: Report) -> None:
    with ExitStack() as stack:
        servers: list[tuple[Variant, Server]] = []
        for variant in group:
            servers.append((variant, start(variant, given)))
            stack.callback(processes.end, servers[-1][1].process)
        for variant, server in servers:
            line: Line = point_of(variant, given)
            try:
                server.wait(end - time.monotonic())
            except RuntimeError as error:
                report.note({**line, "error": f"does not answer: {str(error)[-800:]}"})
        for variant, server in servers:
            line = point_of(variant, given)
            if server.process.poll() is not None or time.monotonic() > end:
                continue
            try:
                line["held"] = held(server.log.read_text())
                if variant.kernels == "ours" and not engines.ours(line["held"]):
                    raise RuntimeError(f"run by {', '.join(line['held'])}")
                line |= measured(server, given)
            except (OSError, RuntimeError, ValueError) as error:
                line["error"] = f"{type(error).__name__}: {error}"[:800]
            report.note(line)
            print(line, flush=True)


def point_of(variant: Variant, given: argparse.Namespace) -> Line:
    return {
        "name": variant.name, "weights": variant.weights, "kernels": variant.kernels,
        "dtype": given.dtype, "ranks": given.tensor_parallel, "layers": given.layers,
    }  # fmt: skip


def chosen(names: list[str]) -> list[Variant]:
    return [x for x in variants.chosen(names) if names or x.weights in DEFAULT]


def arguments() -> argparse.ArgumentParser:
    parser = options(__doc__)
    parser.add_argument("--variants", nargs="*", default=[], help="parts of names")
    parser.add_argument("--dtype", default="bfloat16", choices=DTYPES)
    parser.add_argument("--layers", type=int, default=variants.LLAMA["num_hidden_layers"])
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="in a round")
    parser.add_argument("--memory", type=float, default=76, help="GiB of a GPU for one group")
    parser.add_argument("--together", type=int, default=4, help="servers that start together")
    return parser


def main() -> int:
    given = arguments().parse_args()
    end = time.monotonic() + given.seconds
    ranks = given.tensor_parallel
    meta = about(
        given.commit, shape=f"Llama-3.1-8B, {given.layers} layers", tensor_parallel=ranks,
        clients=given.clients, requests=given.requests, rounds=ROUNDS, prompt=PROMPT, new=NEW,
        attention=given.attention,
    )  # fmt: skip
    report = Report(given.out, section("load", ranks), KEYS, meta)

    def missing() -> list[Variant]:
        return [x for x in chosen(given.variants) if not report.done(point_of(x, given))]

    cache = CACHE_BYTES // ranks
    for group in variants.groups(
        missing(), ranks, cache, given.layers, given.memory, given.together
    ):
        if end - time.monotonic() < LEAST_SECONDS:
            break
        run_group(group, given, end, report)
    left = [x.name for x in missing()]
    print(f"not measured: {', '.join(left) or 'nothing'}")
    return UNFINISHED if left else 0


if __name__ == "__main__":
    sys.exit(main())
