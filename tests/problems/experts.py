"""Routings of a mixture whose results are exact: weights are -1, 0 and 1, and a row has one element
that is not zero, so that a row that goes to a wrong expert, or is dropped, is another number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.nn.expert import Names
from mixed_gemm.nn.expert_tensors import apart, form_of
from mixed_gemm.nn.experts import Experts

ROUTINGS = ("all", "last", "even")
HIDDEN, INNER = 64, 128


def experts_of(count: int, dtype: torch.dtype, device: str) -> tuple[Experts, list[Tensor]]:
    """Experts whose weights are -1, 0 and 1 in 4 bits, and [gate, up, down] in float64."""
    import transformers
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    config: Any = transformers.MixtralConfig(
        hidden_size=HIDDEN, intermediate_size=INNER, num_local_experts=count, hidden_act="linear"
    )
    module = MixtralExperts(config)
    form = form_of(module)
    assert form is not None
    experts = apart(module, form, Names())
    shapes = ((INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER))
    codes = [torch.randint(-1, 2, (count, *shape), dtype=torch.int8) for shape in shapes]
    for number, expert in enumerate(experts.experts):
        for name, q in zip(("gate_proj", "up_proj", "down_proj"), codes, strict=True):
            n, k = q.shape[1:]
            scales = torch.ones(k // 32, n, dtype=dtype)
            linear: nn.Module = mixed_gemm.Linear.from_quantized(
                q[number], scales, bits=4, group_size=32
            )
            setattr(expert, name, linear)
    return experts.to(device), [q.double() for q in codes]


def check(routing: str, tokens: int, count: int, k: int, dtype: torch.dtype, device: str) -> None:
    """Compare with sums in float64, to the bit, and with a second call.

    Args:
        routing: of ``ROUTINGS``. tokens: rows. count: of experts. k: experts of a token.
    """
    experts, (gate, up, down) = experts_of(count, dtype, device)
    index = {
        "all": torch.randint(0, count, (tokens, k)),
        "last": torch.full((tokens, k), count - 1),
        "even": torch.randint(0, count, (tokens, k)) // 2 * 2 % count,
    }[routing]
    # Sums of INNER numbers that are -1, 0 or 1 are exact.
    x = torch.zeros(tokens, HIDDEN, dtype=torch.float64)
    x[torch.arange(tokens), torch.randint(0, HIDDEN, (tokens,))] = 1
    weights = 2.0 ** -torch.randint(0, 2, (tokens, k)).double()
    wanted = torch.zeros(tokens, HIDDEN, dtype=torch.float64)
    for token in range(tokens):
        for choice, weight in zip(index[token], weights[token], strict=True):
            hidden = (gate[choice] @ x[token]) * (up[choice] @ x[token])
            wanted[token] += weight * (down[choice] @ hidden)
    given = (x.to(device, dtype), index.to(device), weights.to(device, dtype))
    found = experts(*given)
    assert found.dtype == dtype and found.device.type == device
    assert torch.equal(found.cpu(), wanted.to(dtype))
    assert torch.equal(found, experts(*given))
