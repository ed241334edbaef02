"""``average_bits`` over output heads and embeddings: a tensor costs its bits once, however many
layers compute with it."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from support import decoders
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Embedding, Linear, Scheme
from mixed_gemm.quantization import Options
from mixed_gemm.quantization.effect import effects
from mixed_gemm.quantization.mixed_bits import chosen, widened
from mixed_gemm.quantization.select import Target
from mixed_gemm.quantization.sensitivity import Candidate, Seen, error, observe, rounding

pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

GROUPED = Scheme.named("w4a16", group_size=32)
HEAD, TABLE = "lm_head", "model.embed_tokens"


def decoder(is_tied: bool) -> Any:
    model = decoders.decoder(layers=2)
    if is_tied:
        model.config.tie_word_embeddings = True
        model.tie_weights()
        assert model.lm_head.weight is model.model.embed_tokens.weight
    return model


def quantized(model: nn.Module, average: float, scheme: Any = GROUPED, **words: Any) -> Any:
    method, data = words.pop("method", None), words.pop("data", None)
    options = Options(average_bits=average, progress=False, **words)
    return mixed_gemm.quantize_(model, scheme, method=method, calibration=data, options=options)


def stored_bits(model: nn.Module) -> tuple[int, int]:
    """(bits, weights) of the quantized tensors that the model has, each once."""
    weights = {id(x.weight): x.weight for x in model.modules() if isinstance(x, Linear | Embedding)}
    sizes = [x.shape[0] * x.shape[1] for x in weights.values()]
    bits = [x.scheme.bits for x in weights.values()]
    return sum(b * s for b, s in zip(bits, sizes, strict=True)), sum(sizes)


@pytest.mark.parametrize("average", (4, 4.7, 6, 7.9, 8))
@pytest.mark.parametrize("method", (None, "gptq"))
@pytest.mark.parametrize(
    ("is_tied", "words"),
    (
        (False, {"heads": True}),
        (False, {"heads": GROUPED, "embeddings": "nf4"}),
        (True, {"embeddings": GROUPED}),
        (True, {"embeddings": "mxfp4", "heads": True}),
    ),
)
def test_the_average_is_that_of_all_the_tensors_each_once(
    is_tied: bool, words: dict[str, Any], method: str | None, average: float
) -> None:
    model = decoder(is_tied)
    report = quantized(model, average, method=method, data=decoders.batches(1), **words)
    spent, weights = stored_bits(model)
    assert report.average.asked == average and report.average.weights == weights
    assert report.average.found == spent / weights <= average
    for name, bits in report.average.bits.items():
        assert (
            model.get_submodule(name).weight.scheme.bits == bits == report.layers[name].scheme.bits
        )
    assert report.average.tied == ({HEAD: TABLE} if is_tied else {})
    assert (HEAD in report.average.bits) == (not is_tied)
    assert (TABLE in report.average.bits) == ("embeddings" in words)
    assert is_tied == (model.lm_head.weight is model.model.embed_tokens.weight)
    if average == 4:
        assert set(report.average.bits.values()) == {4}
    if average == 8:
        assert set(report.average.bits.values()) == {8}
        assert model.lm_head.scheme == widened(report_scheme(words, is_tied))


def report_scheme(words: dict[str, Any], is_tied: bool) -> Scheme:
    asked = words["embeddings"] if is_tied else words["heads"]
    asked = GROUPED if asked is True else asked
    return Scheme.named(asked) if isinstance(asked, str) else asked


def round_to_4_bits(weight: Tensor) -> None:
    """Leave nothing that 8 bits could give back."""
    with torch.no_grad():
        dense = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        dense.weight.copy_(weight)
        weight.copy_(Linear.from_float(dense, GROUPED).dequantize())


@pytest.mark.parametrize("data", (None, decoders.batches(1)))
@pytest.mark.parametrize("is_tied", (True, False))
def test_a_head_gets_the_bits_that_it_needs_and_no_other(is_tied: bool, data: Any) -> None:
    words = {"embeddings": GROUPED} if is_tied else {"heads": True}
    for needs_more in (True, False):
        model = decoder(is_tied)
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear) and (name == HEAD) != needs_more:
                round_to_4_bits(layer.weight)
        report = quantized(model, 6, data=data, **words)
        assert model.lm_head.scheme.bits == (8 if needs_more else 4), report


def test_what_has_another_scheme_of_its_own_is_not_counted_and_said() -> None:
    report = quantized(decoder(False), 5, heads="w8a16", embeddings=True)
    assert not {HEAD, TABLE} & set(report.average.bits)
    assert set(report.average.apart) == {HEAD, TABLE}
    assert f"  {HEAD}: is int8, per channel, symmetric as asked, and not counted" in str(report)
    report = quantized(decoder(True), 5, embeddings="w8a16")
    assert set(report.average.apart) == {HEAD, TABLE}
    report = quantized(decoder(False), 5)
    assert not {HEAD, TABLE} & {*report.average.bits, *report.average.apart}
    with pytest.raises(ValueError, match="average_bits needs layers of 4 bits, got model"):
        quantized(decoder(False), 5, "w8a16", heads=GROUPED)


def test_the_report_says_what_was_asked_what_was_found_and_of_which() -> None:
    text = str(quantized(decoder(True), 8, embeddings=GROUPED))
    first = "8 bits of a weight on average, at most 8, over 15 tensors of 0.11 M weights, measured "
    assert f"{first}by the weights alone:" in text
    assert f"  {TABLE}, {HEAD}: 8 bits, one tensor" in text
    assert "  model.layers.*.mlp.down_proj (2): 8 bits" in text
    text = str(quantized(decoder(True), 8, embeddings=GROUPED, data=decoders.batches(2)))
    assert f"{first}on 2 batches:" in text
    assert mixed_gemm.quantize_(decoder(True), GROUPED, progress=False).average is None


class Tied(nn.Module):
    """A head whose inputs have one channel each, so that the errors of channels do not mix."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(48, 64), nn.Linear(64, 48, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.words(ids), self.head(x)


@pytest.mark.parametrize("scheme", (GROUPED, Scheme.named("w8a16"), Scheme.named("nf4")))
def test_the_error_of_a_tied_tensor_is_that_of_both_outputs(scheme: Scheme) -> None:
    torch.manual_seed(5)
    model = Tied()
    batches = [
        (torch.randint(48, (3, 5)), torch.eye(64)[torch.randint(64, (7,))] * torch.randn(7, 1))
        for _ in range(3)
    ]
    uses = {
        "words": Target(model.words, scheme, model.words, packs_rows=True),
        "head": Target(model.head, scheme, model.head, tied="words"),
    }
    tensor = Candidate(uses["words"], uses)
    seen = observe(model, [tensor], batches)
    found = error(tensor, seen, rounding(tensor, seen, scheme)())
    dense = [model(*batch) for batch in batches]
    rounded = Embedding.from_float(model.words, scheme).dequantize().double()
    lost = [torch.zeros(2, dtype=torch.float64) for _ in range(2)]
    for (ids, x), outputs in zip(batches, dense, strict=True):
        for i, new in enumerate((rounded[ids], x.double() @ rounded.t())):
            lost[i][0] += (new - outputs[i].double()).square().sum()
            lost[i][1] += outputs[i].double().square().sum()
    torch.testing.assert_close(torch.tensor(found), sum(x[0] / x[1] for x in lost).float())


@pytest.mark.parametrize("is_tied", (True, False))
def test_an_effect_is_that_on_the_logits_less_their_mean(is_tied: bool) -> None:
    model, batches = decoder(is_tied), decoders.batches(2)
    names = [HEAD, TABLE] if is_tied else ["model.layers.0.self_attn.k_proj", HEAD]
    layers = {name: model.get_submodule(name) for name in names}
    new = {name: torch.randn_like(x.weight) for name, x in layers.items()}
    if is_tied:
        new[HEAD] = new[TABLE]
    weights = [(Target(x, GROUPED, x), lambda y=new[n]: y.float()) for n, x in layers.items()]
    before = {name: x.clone() for name, x in model.state_dict().items()}
    found = effects(model, {"none": [], "all": weights}, batches)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert not any(x._forward_hooks or x._forward_pre_hooks for x in model.modules())

    def centred(changed: Any) -> Tensor:
        with torch.no_grad():
            out = torch.cat([changed(x).logits for x in batches]).double()
        return out - out.mean(-1, keepdim=True)

    dense = centred(model)
    for name, layer in layers.items():
        layer.weight = nn.Parameter(new[name])
    wanted = (centred(model) - dense).square().sum() / dense.square().sum()
    assert found["none"] == 0
    torch.testing.assert_close(torch.tensor(found["all"]), wanted.float())


def test_a_head_is_compared_by_what_the_model_returns() -> None:
    """The layer loses more of its own output than the head does, and of the logits next to
    nothing. By the outputs of layers alone it would come first."""

    class Faint(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.body = nn.Embedding(64, 64), nn.Linear(64, 64, bias=False)
            self.lm_head = nn.Linear(64, 64, bias=False)

        def forward(self, ids: Tensor) -> Any:
            words = self.words(ids)
            return self.lm_head(words + 1e-3 * self.body(words))

    torch.manual_seed(8)
    model = Faint()
    with torch.no_grad():
        model.body.weight.copy_(torch.randn(64, 64) ** 3)
    dense = copy.deepcopy(model)
    report = quantized(model, 6, heads=True, data=[torch.randint(64, (40,))])
    assert report.average.bits == {"body": 4, "lm_head": 8}
    report = quantized(dense, 6, heads=True)
    assert report.average.bits == {"body": 8, "lm_head": 4}


def test_layers_of_gpt2_whose_weights_are_transposed() -> None:
    import transformers

    torch.manual_seed(9)
    config = transformers.GPT2Config(
        vocab_size=96,
        n_embd=64,
        n_layer=1,
        n_head=4,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    data = [torch.randint(96, (2, 32))]
    report = quantized(model, 6, embeddings=GROUPED, data=data, method="gptq")
    spent, weights = stored_bits(model)
    assert report.average.found == spent / weights <= 6
    assert report.average.tied == {"lm_head": "transformer.wte"}
    assert "transformer.wpe" in report.average.bits
    assert "transformer.h.0.attn.c_attn" in report.average.bits


def test_a_model_that_returns_no_floats_is_refused_and_one_of_tuples_is_not() -> None:
    class Chosen(Tied):
        def forward(self, ids: Tensor, x: Tensor) -> Any:
            return super().forward(ids, x)[1].argmax(-1)

    class Body(nn.Module):
        def __init__(self, ends: type[nn.Module]) -> None:
            super().__init__()
            self.ends, self.body = ends(), nn.Linear(64, 64)

        def forward(self, ids: Tensor, x: Tensor) -> Any:
            return self.ends(ids, self.body(x))

    batch = (torch.arange(5), torch.randn(3, 64))
    with pytest.raises(ValueError, match="needs a model that returns a tensor of floats, got Tens"):
        quantized(Body(Chosen), 6, embeddings=GROUPED, data=[batch])
    report = quantized(Body(Tied), 6, embeddings=GROUPED, data=[batch])
    assert report.average.tied == {"ends.head": "ends.words"}


def test_rows_count_as_often_as_they_are_looked_up() -> None:
    table = nn.Embedding(6, 16)
    seen = Seen(table.weight, is_table=True)
    ids = torch.tensor([[0, 3, 3], [5, 3, 0]], dtype=torch.int32)
    seen(table, (ids,), table(ids))
    assert seen.costs.tolist() == [[2], [0], [0], [3], [0], [1]]
    assert seen.outputs == pytest.approx(float(table(ids).detach().square().sum()))


def test_no_choice_of_few_tensors_is_worth_twice_as_much() -> None:
    """Against every choice there is; one tensor is as large as the rest together."""
    generator = torch.Generator().manual_seed(6)
    for count in (1, 3, 7):
        for _ in range(40):
            gain = {str(i): float(x) for i, x in enumerate(torch.rand(count, generator=generator))}
            size = {x: int(torch.randint(1, 9, (), generator=generator)) for x in gain}
            size["0"] = sum(size.values())
            room = float(torch.rand((), generator=generator)) * 1.2 * sum(size.values())
            found = chosen(gain, size, room)
            assert sum(size[x] for x in found) <= room
            every = (
                set(x) for n in range(count + 1) for x in itertools.combinations(gain, n)
                if sum(size[y] for y in x) <= room
            )  # fmt: skip
            best = max(sum(gain[x] for x in names) for names in every)
            assert 2 * sum(gain[x] for x in found) >= best


def test_a_large_tensor_is_chosen_before_many_small_ones_that_gain_less() -> None:
    gain = {"head": 10.0, **{f"layer {i}": 1.1 for i in range(8)}}
    size = {"head": 10, **{f"layer {i}": 1 for i in range(8)}}
    assert chosen(gain, size, 10) == {"head"}
    assert chosen(gain, size, 9) == set(gain) - {"head"}
