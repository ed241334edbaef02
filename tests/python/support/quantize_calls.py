"""Calls of ``quantize_`` by the keywords of the version before, and what came of each: what
tests/data/quantize_calls.txt holds.

    python tests/python/support/quantize_calls.py > tests/data/quantize_calls.txt

A line is a call and its outcome: the scheme, the note and the activation of each layer, and what
the model was told it is made by; or the type and the text of what was raised.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import nn  # noqa: E402

import mixed_gemm  # noqa: E402
from mixed_gemm.formats.sources import RECIPE  # noqa: E402

FILE = ROOT / "tests" / "data" / "quantize_calls.txt"
CALLS = """
scheme="w4a16"
scheme="w4a16", group_size=32
scheme="w4a16", bits=8
scheme="w4a16", bits=8, group_size=-1
scheme="w8a16", group_size=64
scheme="w4a16", symmetric=False
scheme="w4a16", group_size=32, zero_mode="add"
scheme="w4a16", symmetric=True, zero_mode="add"
scheme="w4a16_asym", symmetric=True
scheme="w4a16", bits=5
scheme="w4a16", bits=3
scheme="w4a16", bits=3, method="rtn", group_size=32, skip=("conv",)
scheme="w4a16", bits=2, method="gptq", group_size=32, calibration=TOKENS
scheme="w4a16", bits=3, method="smoothquant", calibration=TOKENS
scheme="w4a16", bits=3, method="rtn", average_bits=4.5
scheme="w4a16", group_size=100
scheme="w4a16", group_size=4096
scheme="w9a16"
scheme=3
scheme=Scheme.weight_only(4, 32), bits=8
scheme=BY_NAME, group_size=32
scheme=BY_NAME, activations="static"
scheme="w8a8"
scheme="w8a8", activations="static"
scheme="w8a8", activations="static", calibration=TOKENS
scheme="w8a8", activations="dynamic"
scheme="w8a8", activations="no"
scheme="w8a8", bits=4
scheme="w8a8", smooth=0.5
scheme="w8a8", smooth=0.5, calibration=TOKENS
scheme="w8a8", smooth="search", calibration=TOKENS
scheme="w8a8", smooth="no", calibration=TOKENS
scheme="w8a8", smooth=2.0, calibration=TOKENS
scheme="w8a8", smooth=0.5, method="smoothquant", calibration=TOKENS
scheme="w8a8", method="smoothquant", calibration=TOKENS
scheme="w8a8_block", group_size=32
scheme="w8a8_block", symmetric=False
scheme="w8a8_block", bits=4
scheme="fp8", activations="static", calibration=TOKENS
scheme="fp8", group_size=64
scheme="w4a16", smooth=0.5
scheme="w4a16", activations="static"
scheme="w4a16", method="no"
scheme="w4a16", method=3
scheme="w4a16", method="hqq", group_size=32, skip=("conv",)
scheme="w4a16", method="gptq"
scheme="w4a16", method="gptq", calibration=[]
scheme="w4a16", method="gptq", group_size=32, calibration=TOKENS
scheme="w4a16", method="awq", group_size=32, calibration=TOKENS, smooth=0.5
scheme="w8a8", method="awq", calibration=TOKENS
scheme="w4a16", average_bits=6, group_size=32
scheme="w4a16", average_bits=4.5, group_size=32, calibration=TOKENS
scheme="w4a16", average_bits=9
scheme="w8a16", average_bits=5
scheme="w4a16", embeddings=True, group_size=32
scheme="w4a16", embeddings=True, skip=("embed",), group_size=32
scheme="w4a16", skip=None, group_size=32
scheme="w4a16", skip="*"
scheme="w4a16", skip=lambda name, module: name != "up", group_size=32
scheme="w4a16", fuse_activations=True, group_size=32
scheme="w4a16", evaluate=TOKENS[0][0], group_size=32
scheme="w4a16", evaluate=TOKENS[0][0], method="gptq", calibration=TOKENS, group_size=32
scheme="w4a16", block_size=16
scheme="w4a16", block_size=17
scheme="w8a8", block_size=16
scheme="w4a16", progress=False
""".strip().splitlines()


class Small(nn.Module):
    """A model with a layer of each class that is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 128)
        self.norm = nn.LayerNorm(128)
        self.up = nn.Linear(128, 128)
        self.act = nn.Sequential(nn.Linear(128, 128), nn.ReLU())
        self.conv = nn.Conv2d(32, 32, 1)
        self.lm_head = nn.Linear(128, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embed(ids))
        x = self.act(self.up(x))
        x = x + self.conv(x.reshape(-1, 32, 4, 1)).reshape(x.shape)
        return self.lm_head(x)


def given() -> dict[str, Any]:
    """The values that the calls name."""
    generator = torch.Generator().manual_seed(0)
    tokens = [torch.randint(0, 64, (2, 32), generator=generator) for _ in range(2)]
    by_name = {"up": "w4a16", "act.0": "w8a8", "conv": "w4a16"}
    return {
        "TOKENS": tokens,
        "BY_NAME": lambda name, module: by_name.get(name),
        "Scheme": mixed_gemm.Scheme,
    }


def outcome(call: str, names: dict[str, Any]) -> str:
    """Run the call whose arguments behind the model are ``call``, and tell what came of it."""
    return outcome_of(eval(f"dict({call})", names))


def outcome_of(arguments: dict[str, Any]) -> str:
    """Run a call with these arguments behind the model, and tell what came of it."""
    torch.manual_seed(0)
    model = Small()
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            report = mixed_gemm.quantize_(model, **arguments)
    except Exception as error:
        kind = next(x for x in type(error).__mro__ if x.__module__ == "builtins")
        return f"{kind.__name__}: {' | '.join(str(error).splitlines())}"
    told = [
        ", ".join(filter(None, (f"{name} {x.scheme or x.reason}", x.note, x.activation)))
        for name, x in report.layers.items()
    ]
    told.append(f"recipe {getattr(model, RECIPE)['method']}")
    told += [f"warned {x.message}" for x in warned if x.category is UserWarning]
    if report.before is not None and report.after is not None:
        told.append(f"perplexity of {report.before.tokens} and {report.after.tokens} tokens")
    return " | ".join(line for text in told for line in text.splitlines())


def lines() -> Iterator[str]:
    """The file's lines, in its order."""
    names = given()
    for call in CALLS:
        yield f"{call} -> {outcome(call, names)}"


if __name__ == "__main__":
    print("\n".join(lines()))
