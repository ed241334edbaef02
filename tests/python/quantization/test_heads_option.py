"""``Options.heads``: an output head alone, its embedding alone, or both, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Scheme, reference
from mixed_gemm.quantization import Options
from mixed_gemm.quantization.methods import AWQ, GPTQ
from mixed_gemm.quantization.names import DEFAULT_SKIP

GROUPED = Scheme.named("w4a16", group_size=32)
W8 = Scheme.named("w8a16")
IDS = torch.randint(0, 61, (2, 9), generator=torch.Generator().manual_seed(1))


class Words(nn.Module):
    """A language model in small: a table, a linear, an output head."""

    def __init__(self, is_tied: bool = False, bias: bool = False) -> None:
        super().__init__()
        self.words, self.body = nn.Embedding(61, 64), nn.Linear(64, 64)
        self.lm_head = nn.Linear(64, 61, bias=bias)
        if is_tied:
            self.lm_head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.lm_head(self.body(self.words(ids)))
        return out


def model(is_tied: bool = False, bias: bool = False) -> Words:
    torch.manual_seed(3)
    return Words(is_tied, bias).eval()


def quantized(
    dense: nn.Module, scheme: Any = GROUPED, skip: Any = DEFAULT_SKIP, **words: Any
) -> Any:
    method, calibration = words.pop("method", None), words.pop("calibration", None)
    options = Options(progress=False, **words)
    return mixed_gemm.quantize_(
        dense, scheme, method=method, calibration=calibration, skip=skip, options=options
    )


def schemes(report: Any) -> dict[str, Scheme | None]:
    return {name: x.scheme for name, x in report.layers.items()}


@pytest.mark.parametrize(
    ("words", "head", "table"),
    (
        ({}, None, None),
        ({"heads": True}, GROUPED, None),
        ({"heads": "w8a16"}, W8, None),
        ({"heads": "w8a8"}, Scheme.named("w8a8"), None),
        ({"embeddings": "w8a16"}, None, W8),
        ({"heads": "mxfp4", "embeddings": "w8a16"}, Scheme.named("mxfp4"), W8),
        ({"heads": W8, "embeddings": True}, W8, W8),
    ),
)
def test_a_head_that_is_not_tied_alone_an_embedding_alone_or_both(
    words: Any, head: Scheme | None, table: Scheme | None
) -> None:
    dense = model()
    report = quantized(dense, **words)
    assert schemes(report) == {"words": table, "body": GROUPED, "lm_head": head}
    assert isinstance(dense.lm_head, mixed_gemm.Linear) == (head is not None)
    assert isinstance(dense.words, mixed_gemm.Embedding) == (table is not None)
    assert dense(IDS).isfinite().all()


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32))
@pytest.mark.parametrize("is_tied", (True, False))
@pytest.mark.parametrize("scheme", ("w8a16", GROUPED, Scheme.named("w4a16_asym", group_size=32)))
def test_logits_are_within_the_bound_of_the_reference(
    scheme: Any, is_tied: bool, dtype: torch.dtype
) -> None:
    dense = model(is_tied).to(dtype)
    quantized(dense, heads=scheme, embeddings=scheme if is_tied else False)
    x = dense.body(dense.words(IDS)).detach()
    weight = dense.lm_head.to_quantized_weight()
    tensors = (x, weight.q, weight.scales.to(dtype), weight.zeros, None)
    words = {"group_size": weight.group_size, "zero_mode": dense.lm_head.scheme.op_zero_mode}
    exact = reference.fpA_intB_gemm(*tensors, **words)
    bound = reference.error_bound(*tensors, **words)
    assert reference.error_ratio(dense.lm_head(x).detach(), exact, bound) <= 1


def test_true_is_the_scheme_of_the_others_and_a_function_is_asked_for_it() -> None:
    asked: list[str] = []

    def of(name: str, layer: nn.Module) -> Scheme:
        asked.append(name)
        return W8 if name == "lm_head" else GROUPED

    report = quantized(model(), of, heads=True)
    assert schemes(report)["lm_head"] == W8 and asked == ["body", "lm_head"]
    quantized(model(), of, heads="nf4")
    assert asked[2:] == ["body"]


def test_a_head_that_is_tied_has_the_tensor_of_its_embedding() -> None:
    for heads in (True, False, "w8a16"):
        dense = model(is_tied=True)
        report = quantized(dense, embeddings="w8a16", heads=heads)
        assert dense.lm_head.weight is dense.words.weight
        assert report.layers["lm_head"].note == "shares the weight of words"


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "dense table": (
        model(is_tied=True), {"heads": "w8a16"},
        r"heads must be False where lm_head has the weight of words, which is dense, got int8, per "
        r"channel, symmetric\. Hint: embeddings='w8a16' packs one tensor for both",
    ),
    "rows of int8": (
        model(is_tied=True), {"heads": True, "embeddings": True}, "has the weight of words, which",
    ),
    "bias": (
        model(is_tied=True, bias=True), {"heads": True, "embeddings": "w8a16"},
        "lm_head has the weight of words, which is dense, got True; words: its weight is tied to",
    ),
    "two schemes": (
        model(is_tied=True), {"heads": "w8a16", "embeddings": GROUPED},
        r"heads must be as embeddings where lm_head has the weight of words, one tensor, got "
        r"int8.* and int4, group 32",
    ),
    "no head": (
        nn.Sequential(nn.Linear(64, 64)), {"heads": True},
        r"heads must be False where no output head is a linear to quantize, got True \(no linear "
        r"is called as in quantization\.names\.HEADS\)",
    ),
    "skipped": (model(), {"heads": True, "skip": "lm_head"}, "lm_head: matches skip='lm_head'"),
    "skipped by a function": (
        model(), {"heads": True, "skip": lambda name, x: name == "lm_head"},
        r"lm_head: skip\(name, module\) is true",
    ),
    "no scheme": (model(), {"heads": "w9a16"}, "scheme must be one of w4a16"),
    "fewer bits": (
        model(), {"heads": "w8a16", "method": AWQ(then=GPTQ(bits=3)), "calibration": [IDS]},
        "heads must be a scheme of 4 bits with codes of 3, got int8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_by_name_and_changes_nothing(case: str) -> None:
    dense, words, text = REFUSED[case]
    before = [type(x) for x in dense.modules()]
    with pytest.raises(ValueError, match=text):
        quantized(dense, **words)
    assert [type(x) for x in dense.modules()] == before


def test_names_that_are_added_to_the_default_of_skip_still_count() -> None:
    report = quantized(model(), skip=(*DEFAULT_SKIP, "body"), heads="w8a16")
    assert report.quantized == ("lm_head",) and "skip='body'" in report.skipped["body"]

    class Gated(Words):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(64, 16)

    report = quantized(Gated(), heads=True)
    assert "skip='gate'" in report.skipped["gate"] and "lm_head" in report.quantized


def test_a_convolution_that_is_a_head_by_its_name_stays_with_skip() -> None:
    class Segments(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.classifier, self.aux_head = nn.Conv2d(16, 16, 1), nn.Linear(64, 16)

    report = quantized(Segments(), heads="w8a16")
    assert report.quantized == ("aux_head",) and "classifier" in report.skipped


def test_a_state_dict_and_a_graph_of_a_model_with_both(tmp_path: Path) -> None:
    dense, fresh = model(), model()
    quantized(dense, heads="w8a16", embeddings=GROUPED)
    want = dense(IDS)
    torch.save(dense.state_dict(), tmp_path / "state.pt")
    quantized(fresh.to("meta"), heads="w8a16", embeddings=GROUPED)
    fresh.load_state_dict(torch.load(tmp_path / "state.pt"), assign=True)
    assert torch.equal(fresh(IDS), want)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(dense, fullgraph=True)(IDS), want)
