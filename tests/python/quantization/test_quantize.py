"""Round-to-nearest: quantize_weight, and quantize_ over whole models."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Linear, Report, Scheme, quantize_, quantize_weight, reference

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def error(weight: Tensor, bits: int, group_size: int, symmetric: bool) -> Tensor:
    """(w - quantized w) in steps of its group."""
    q, scales, zeros = quantize_weight(weight, bits, group_size, symmetric)
    w = reference.dequantize(q, scales, zeros, group_size=group_size)
    step = reference.expand_groups(scales, weight.shape[1], group_size).abs()
    return (weight.double() - w) / step


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("k", "group_size"), [(128, 32), (100, 32), (100, -1), (33, 16), (1, -1)])
def test_quantize_weight_is_within_a_step(
    k: int, group_size: int, bits: int, symmetric: bool, dtype: torch.dtype
) -> None:
    weight = torch.randn(48, k).to(dtype)
    q, scales, zeros = quantize_weight(weight, bits, group_size, symmetric)
    groups = 1 if group_size == -1 else -(-k // group_size)
    low = -(2 ** (bits - 1))
    assert q.dtype == torch.int8 and q.shape == weight.shape
    assert low <= q.min() and q.max() <= -low - 1
    assert scales.shape == (groups, 48) and scales.dtype == dtype and scales.is_contiguous()
    assert (zeros is None) == symmetric
    if zeros is not None:
        assert torch.equal(zeros, zeros.round()) and zeros.shape == scales.shape
        assert low <= zeros.min() and zeros.max() <= -low - 1
    # Half a step inside the range. At its end: the symmetric range stops one step short on one
    # side, and a scale rounded to `dtype` moves the end by 2^(bits-1) * u steps.
    u = reference.ROUNDING[dtype][0]
    end = (1.0 if symmetric else 0.5 + 0.5) + 2**bits * u
    assert error(weight, bits, group_size, symmetric).abs().max() <= end + 1e-6


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [16, 32])
def test_integers_survive_quantization(group_size: int, bits: int) -> None:
    # A weight that is on a grid already, extreme included, must come back as it is.
    low = -(2 ** (bits - 1))
    integers = torch.randint(low, -low, (40, 64))
    integers[:, ::group_size] = low
    weight = integers * 0.125
    q, scales, zeros = quantize_weight(weight, bits, group_size)
    assert torch.equal(reference.dequantize(q, scales, group_size=group_size), weight.double())
    assert zeros is None


def test_symmetric_error_is_below_the_absmax_conventions() -> None:
    weight = torch.randn(256, 512)
    groups = weight.view(256, -1, 32)

    def rms(scale: Tensor) -> float:
        q = (groups / scale).round().clamp(-8, 7)
        return (q * scale - groups).square().mean().sqrt().item()

    absmax = groups.abs().amax(-1, keepdim=True)
    q, scales, _ = quantize_weight(weight, 4, 32)
    ours = (reference.dequantize(q, scales, group_size=32) - weight).square().mean().sqrt().item()
    assert ours < 0.95 * min(rms(absmax / 7), rms(absmax / 7.5))


def test_asymmetric_beats_symmetric_on_a_shifted_weight() -> None:
    weight = torch.rand(64, 256)
    sizes = {}
    for symmetric in (True, False):
        q, scales, zeros = quantize_weight(weight, 4, 64, symmetric)
        w = reference.dequantize(q, scales, zeros, group_size=64)
        sizes[symmetric] = (w - weight).square().mean().sqrt().item()
    assert sizes[False] < 0.7 * sizes[True]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("tiny", [0.0, 1e-12])
def test_all_zero_group_gives_zero_and_no_nan(
    tiny: float, symmetric: bool, dtype: torch.dtype
) -> None:
    weight = torch.randn(8, 64)
    weight[3, 32:] = 0
    weight[5] = tiny  # underflows to scale 0 in float16
    weight = weight.to(dtype)
    q, scales, zeros = quantize_weight(weight, 4, 32, symmetric)
    w = reference.dequantize(q, scales, zeros, group_size=32)
    assert scales.isfinite().all() and (scales != 0).all()
    assert (w[3, 32:] == 0).all()
    assert w[5].abs().max() <= 2 * tiny


def test_largest_float16_weights_do_not_overflow() -> None:
    weight = torch.tensor([[65504.0, -65504.0] * 16], dtype=torch.float16)
    for symmetric in (True, False):
        assert error(weight, 4, 16, symmetric).abs().max() <= 1.01


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_non_finite_weight_raises(value: float) -> None:
    weight = torch.randn(4, 32)
    weight[2, 5] = value
    with pytest.raises(ValueError, match=r"weight must be finite, got (nan|inf) at \(2, 5\)"):
        quantize_weight(weight, 4, 32)


@pytest.mark.parametrize("weight", [torch.zeros(4, 4, dtype=torch.float64), torch.zeros(4)])
def test_wrong_weight_raises(weight: Tensor) -> None:
    with pytest.raises(RuntimeError, match="weight must be a 2-D float16, bfloat16 or float32"):
        quantize_weight(weight, 4, -1)


# --- whole models ------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, k: int = 64) -> None:
        super().__init__()
        self.up = nn.Linear(k, 2 * k)
        self.down = nn.Linear(2 * k, k, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    """A language model in outline: embedding, blocks, head."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        self.layers = nn.ModuleList([Block(), Block()])
        self.lm_head = nn.Linear(64, 50, bias=False)
        if tied:
            self.lm_head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


INNER = ("layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down")
TOKENS = torch.arange(12).view(2, 6)


EMBEDDING = {
    "embedding": "is an embedding: rows are looked up, not multiplied. Hint: embeddings=True makes "
    "them int8"
}


def quantized(model: nn.Module) -> tuple[str, ...]:
    return tuple(name for name, m in model.named_modules() if isinstance(m, Linear))


def test_quantize_model_by_default_leaves_the_head() -> None:
    model = Model()
    dense = copy.deepcopy(model)
    report = quantize_(model, group_size=32)
    assert quantized(model) == report.quantized == INNER
    assert report.skipped == {"lm_head": "matches skip='lm_head'", **EMBEDDING}
    assert report.bytes_before == 4 * 64 * 128 * 4
    assert report.bytes_after == 4 * (64 * 128 // 2 + 64 * 128 // 32 * 4)
    assert "4 layers quantized: 0.13 MB -> 0.02 MB" in str(report)
    assert "lm_head: matches skip" in str(report)
    error = (model(TOKENS) - dense(TOKENS)).norm() / dense(TOKENS).norm()
    assert 0 < error < 0.05


@pytest.mark.parametrize(("bits", "symmetric", "limit"), [(8, True, 0.003), (4, False, 0.05)])
def test_quantize_model_output_stays_near(bits: int, symmetric: bool, limit: float) -> None:
    model = Model()
    dense = copy.deepcopy(model)
    quantize_(model, bits=bits, group_size=32, symmetric=symmetric, skip=None)
    assert quantized(model) == (*INNER, "lm_head")
    assert (model(TOKENS) - dense(TOKENS)).norm() / dense(TOKENS).norm() < 2 * limit


@pytest.mark.parametrize(
    ("skip", "left"),
    [
        (("layers.1",), ("layers.1.up", "layers.1.down")),
        ("*.up", ("layers.0.up", "layers.1.up")),
        (["down", "lm_head"], ("layers.0.down", "layers.1.down", "lm_head")),
        (lambda name, module: module.bias is not None, ("layers.0.up", "layers.1.up")),
        ("layers.?.up", ("layers.0.up", "layers.1.up")),
        ((), ()),
    ],
)
def test_quantize_skip_by_name_pattern_or_function(skip: Any, left: tuple[str, ...]) -> None:
    model = Model()
    report = quantize_(model, group_size=32, skip=skip)
    assert tuple(report.skipped) == (*left, *EMBEDDING)
    assert set(quantized(model)) == {*INNER, "lm_head"} - set(left)


def test_quantize_skip_that_matches_nothing_warns() -> None:
    with pytest.warns(UserWarning, match="skip='lmhead' matches no module"):
        quantize_(Model(), group_size=32, skip="lmhead")


def test_quantize_does_not_match_inside_a_name() -> None:
    model = nn.ModuleDict({"up": nn.Linear(32, 32), "upper": nn.Linear(32, 32)})
    quantize_(model, group_size=32, skip="up")
    assert quantized(model) == ("upper",)


def test_quantize_tied_weight_is_skipped_and_reported() -> None:
    model = Model(tied=True)
    report = quantize_(model, group_size=32, skip=None)
    assert report.skipped == {"lm_head": "its weight is tied to another module", **EMBEDDING}
    assert model.lm_head.weight is model.embedding.weight


def test_quantize_one_module_at_two_places_stays_one() -> None:
    shared = nn.Linear(32, 32)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)})
    report = quantize_(model, group_size=32)
    assert report.quantized == ("a",)
    assert model["a"] is model["b"][0]  # type: ignore[index]
    assert isinstance(model["a"], Linear)


def test_quantize_subclass_hooked_and_normed_layers_are_left_alone() -> None:
    class Special(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).relu()

    model = nn.ModuleDict(
        {
            "special": Special(32, 32),
            "hooked": nn.Linear(32, 32),
            "normed": nn.utils.parametrizations.weight_norm(nn.Linear(32, 32)),
            "plain": nn.Linear(32, 32),
        }
    )
    model["hooked"].register_forward_hook(lambda *_: None)
    report = quantize_(model, group_size=32)
    assert report.quantized == ("plain",)
    assert report.skipped["special"] == "is a Special, which computes otherwise than nn.Linear"
    assert "hooks" in report.skipped["hooked"]
    assert "Parametrized" in report.skipped["normed"]


def test_quantize_empty_layer_is_left_alone() -> None:
    with pytest.warns(UserWarning, match="zero-element"):
        model = nn.Sequential(nn.Linear(0, 32), nn.Linear(32, 32))
    report = quantize_(model, group_size=32)
    assert report.quantized == ("1",)
    assert report.skipped == {"0": "its weight is empty"}
    with pytest.raises(ValueError, match="must not be empty"):
        quantize_weight(torch.zeros(4, 0), 4, -1)


def test_quantize_twice_changes_nothing() -> None:
    model = Model()
    quantize_(model, group_size=32)
    before = [m for m in model.modules() if isinstance(m, Linear)]
    report = quantize_(model, group_size=32)
    assert report.quantized == () and set(report.skipped) == {*INNER, "lm_head", *EMBEDDING}
    assert [m for m in model.modules() if isinstance(m, Linear)] == before


def test_quantize_group_above_k_names_every_layer_and_changes_nothing() -> None:
    model = Model()
    with pytest.raises(ValueError, match="nothing was changed") as caught:
        quantize_(model, group_size=128)
    for text in (
        "layers.0.up: group_size",
        "layers.1.up",
        "K=64",
        "group_size=128",
        "skip",
        "else -1",
    ):
        assert text in str(caught.value)
    assert "layers.0.down" not in str(caught.value)
    assert quantized(model) == ()


def test_quantize_bits_and_groups_per_layer() -> None:
    model = Model()
    quantize_(
        model,
        lambda name, linear: Scheme.weight_only(
            8 if name.endswith("down") else 4, 128 if linear.in_features >= 128 else -1
        ),
    )
    up, down = model.layers[0].up, model.layers[0].down
    assert (up.bits, up.group_size, down.bits, down.group_size) == (4, -1, 8, 128)
    model(TOKENS)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.double(), "layers.0.up: dtype torch.float64 is not"),
        (lambda m: m.layers[1].down.weight.data.fill_(torch.nan), "layers.1.down: .*finite"),
    ],
)
def test_quantize_bad_weight_names_the_layer(change: Any, text: str) -> None:
    model = Model()
    change(model)
    with pytest.raises(ValueError, match=text):
        quantize_(model, group_size=32)


def test_quantize_of_a_bare_linear_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"Linear\.from_float"):
        quantize_(nn.Linear(32, 32))


def test_quantize_on_meta_then_load() -> None:
    source = Model()
    quantize_(source, group_size=32)
    with torch.device("meta"):
        empty = Model()
    quantize_(empty, group_size=32)
    empty.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(empty(TOKENS), source(TOKENS))


def test_quantize_keeps_training_mode_bias_object_and_requires_grad() -> None:
    model = Model()
    model.layers[0].up.bias.requires_grad_(False)
    bias = model.layers[0].up.bias
    model.eval()
    quantize_(model, group_size=32)
    assert model.layers[0].up.bias is bias
    assert not model.layers[0].up.training


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_quantize_keeps_the_dtype_of_the_model(dtype: torch.dtype) -> None:
    model = Model().to(dtype)
    quantize_(model, group_size=32)
    assert model.layers[0].up.scales.dtype == dtype
    assert model(TOKENS).dtype == dtype


def test_quantize_transformer_encoder_in_inference_mode() -> None:
    # nn.TransformerEncoderLayer has a fast path that reads linear1.weight itself.
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    dense = copy.deepcopy(model)
    report = quantize_(model, bits=8, group_size=32)
    assert len(report.quantized) == 4
    left = ("out_proj", "in_proj_weight")
    assert set(report.skipped) == {f"layers.{i}.self_attn.{x}" for i in (0, 1) for x in left}
    x = torch.randn(2, 5, 64)
    with torch.inference_mode():
        out, want = model(x), dense(x)
    assert (out - want).norm() / want.norm() < 0.01


@pytest.mark.parametrize("tqdm", [False, True])
@pytest.mark.parametrize("progress", [False, True, "force"])
def test_quantize_progress_is_on_stderr_when_forced(
    progress: Any, tqdm: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    quantize_(Model(), group_size=32, progress=progress)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("quantize" in captured.err) == (progress == "force")
    if progress == "force":
        assert "4/4" in captured.err and captured.err.endswith("\n")


def test_report_is_public() -> None:
    assert isinstance(quantize_(Model(), group_size=32), Report)
    assert mixed_gemm.Report is Report
