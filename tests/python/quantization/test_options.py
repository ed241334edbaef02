"""``Options`` and ``Scheme.named`` say what the older keywords of ``quantize_`` said."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
import torch
from support import quantize_calls
from torch import nn

import mixed_gemm
from mixed_gemm.quantization import Options
from mixed_gemm.quantization.options import OldKeywords

WORDS = ("bits", "group_size", "symmetric", "zero_mode", "activations")
SETTINGS = tuple(x.name for x in dataclasses.fields(Options))
RECORDED = dict(line.split(" -> ", 1) for line in quantize_calls.FILE.read_text().splitlines())


def in_new_words(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same call by a scheme and options."""
    words = {x: arguments[x] for x in WORDS if x in arguments}
    settings = {x: arguments[x] for x in SETTINGS if x in arguments}
    rest = {x: value for x, value in arguments.items() if x not in {*words, *settings}}
    if words:
        rest["scheme"] = mixed_gemm.Scheme.named(rest["scheme"], **words)
    return {**rest, "options": Options(**settings)}


def can_be_told(call: str) -> bool:
    """A function or a Scheme has no words, and 2 and 3 bits are settings of a method."""
    named = call.startswith('scheme="')
    return (named or not any(f"{x}=" in call for x in WORDS)) and "bits=3" not in call


@pytest.mark.parametrize("call", [x for x in RECORDED if can_be_told(x) and "bits=2" not in x])
def test_the_new_words_say_what_the_old_ones_said(call: str) -> None:
    arguments = eval(f"dict({call})", quantize_calls.given())
    wanted = RECORDED[call]
    try:
        told = in_new_words(arguments)
    except (TypeError, ValueError) as error:
        assert wanted.partition(": ")[2].removeprefix("quantize_") == str(error).removeprefix(
            "Scheme.named"
        )
        return
    assert quantize_calls.outcome_of(told) == wanted


def test_fewer_bits_are_a_setting_of_the_method() -> None:
    gptq = mixed_gemm.quantization.methods.GPTQ(bits=2)
    scheme = mixed_gemm.Scheme.named("w4a16", group_size=32)
    tokens = quantize_calls.given()["TOKENS"]
    call = next(x for x in RECORDED if "bits=2" in x)
    told = {"scheme": scheme, "method": gptq, "calibration": tokens}
    assert quantize_calls.outcome_of(told) == RECORDED[call]


def test_help_names_every_old_keyword() -> None:
    taken = inspect.signature(mixed_gemm.quantize_).parameters
    assert set(OldKeywords.__annotations__) == {*WORDS, *SETTINGS}
    assert set(taken) == {
        *("model", "scheme", "method", "calibration", "skip", "options"),
        *OldKeywords.__annotations__,
    }
    defaults = {x.name: x.default for x in dataclasses.fields(Options)}
    for name in OldKeywords.__annotations__:
        assert taken[name].default is defaults.get(name)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 32))


def test_a_keyword_that_nobody_knows_is_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match=r"quantize_\(\) got an unexpected keyword argument 'bit'"):
        mixed_gemm.quantize_(model(), bit=4)  # type: ignore[call-arg]


def test_a_setting_that_is_given_twice_is_refused() -> None:
    text = r"quantize_: smooth must be given once, got smooth=0.5 and smooth=0.3 in options"
    with pytest.raises(ValueError, match=text):
        mixed_gemm.quantize_(model(), "w8a8", options=Options(smooth=0.3), smooth=0.5)


def test_keywords_and_options_may_set_different_things() -> None:
    dense = model()
    ids = nn.Sequential(nn.Embedding(8, 32), dense)
    report = mixed_gemm.quantize_(ids, group_size=32, options=Options(embeddings=True), smooth=None)
    assert set(report.quantized) == {"0", "1.0"}


def test_what_is_no_options_is_refused() -> None:
    with pytest.raises(TypeError, match=r"options must be a mixed_gemm\.quantization\.Options"):
        mixed_gemm.quantize_(model(), options={"smooth": 0.5})  # type: ignore[arg-type]


def test_options_compare_without_their_tokens() -> None:
    some, other = torch.arange(4), torch.arange(5)
    assert Options(evaluate=some) == Options(evaluate=other)
    assert Options(smooth=0.5) != Options()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().smooth = 0.5  # type: ignore[misc]


def test_a_named_scheme_is_one_with_other_settings() -> None:
    named = mixed_gemm.Scheme.named
    assert named("w4a16") == mixed_gemm.weights.SCHEMES["w4a16"]
    assert named("w4a16", group_size=64) == mixed_gemm.Scheme.weight_only(4, 64)
    assert named("w4a16", symmetric=False).zero_mode == "sub"
    assert named("fp8", activations="static").activations == "static"
    with pytest.raises(ValueError, match=r"Scheme\.named: scheme must be one of w4a16"):
        named("w9a16")


@pytest.mark.parametrize(("skip", "text"), [((), "no layer of Seq"), ("no", "matches no module")])
def test_warnings_point_at_the_caller(skip: Any, text: str) -> None:
    whole = nn.Sequential(nn.ReLU()) if skip == () else model()
    with pytest.warns(UserWarning, match=text) as caught:
        mixed_gemm.quantize_(whole, "w8a16", skip=skip)
    assert [x.filename for x in caught] == [__file__]
