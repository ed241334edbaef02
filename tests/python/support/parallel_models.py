"""Tiny language models spread by transformers' own plan (tp_plan="auto"), in one of several
processes: quantized on the way and from quantized files, against one process.

    python -m support.parallel_models RANK STORE FOLDER

FOLDER: of what ``write`` made. Prints "NAME: ok" or "NAME: " and what is wrong, then "done".
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from compiled_layers import Spy, is_subclass
from support import ranks

import mixed_gemm
from mixed_gemm import QuantizedTensor

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MODELS = {"Llama": {}, "Qwen3": {"head_dim": 32}, "Qwen2": {}}  # Qwen2 has biases
SCHEMES: dict[str, dict[str, Any]] = {
    "w4a16": {"group_size": 32},
    "w4a16_asym": {"group_size": 96},  # which 4 shares of 384 columns fill, and 4 of 128 do not
    "w8a16": {},
    "w8a8": {},
    "w8a8_block": {"group_size": 32},
    "fp8": {},
}
FIXTURES = (
    "awq_gemm", "gptq_v1_4bit_zeros", "gptq_v2_4bit_act_order", "gptq_v2_8bit", "ct_pack_4bit",
    "ct_pack_4bit_zeros", "ct_pack_8bit_channel", "ct_float_channel", "ct_float_block",
    "ct_int_8bit", "native_4bit_act_order", "awq_gemv",
)  # fmt: skip
SUMS = 2e-4  # sums in another order, relative to the largest logit
ROUNDED = 0.1  # where each rank finds a scale for its share of a row of activations


def write(folder: Path) -> None:
    """The dense models, and each quantized by one process in every scheme."""
    import transformers

    for name, more in MODELS.items():
        torch.manual_seed(0)
        config = getattr(transformers, f"{name}Config")(**SIZES, **more)
        model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
        for parameter in model.parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, 1.0, 0.2)
        model.save_pretrained(folder / name)
        if name == "Llama":
            tied = transformers.LlamaConfig(**{**SIZES, "tie_word_embeddings": True})
            transformers.LlamaForCausalLM(tied).save_pretrained(folder / "Llama-tied")
            mixed_gemm.quantize_(model, "w8a16", embeddings=True, progress=False)
            model.save_pretrained(folder / "Llama-embedding")
        for scheme, options in SCHEMES.items():
            quantized = mixed_gemm.from_pretrained(
                folder / name, quantization_config=mixed_gemm.MixedGemmConfig(scheme, **options)
            )
            quantized.save_pretrained(folder / f"{name}-{scheme}")
    mixture = transformers.Qwen3MoeConfig(
        **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, head_dim=32
    )
    torch.manual_seed(0)
    transformers.Qwen3MoeForCausalLM(mixture).save_pretrained(folder / "mixture")
    asked = mixed_gemm.MixedGemmConfig("w4a16", group_size=32)
    quantized = mixed_gemm.from_pretrained(folder / "mixture", quantization_config=asked)
    quantized.save_pretrained(folder / "mixture-w4a16")


def distributed(world: int) -> dict[str, Any]:
    from transformers.distributed import DistributedConfig

    return {"distributed_config": DistributedConfig(tp_size=world, tp_plan="auto")}


def logits(model: Any) -> torch.Tensor:
    vocabulary = model.config.vocab_size
    tokens = (torch.arange(2 * 7).reshape(2, 7) * 5 % vocabulary).to(model.device)
    with torch.no_grad():
        found = model(tokens).logits
    return (found.full_tensor() if hasattr(found, "full_tensor") else found).float()


def compare(model: Any, exact: Any, rounded: bool) -> None:
    found, want = logits(model), logits(exact)
    apart = float((found - want).abs().max() / want.abs().max())
    half = model.dtype != torch.float32
    bound = ROUNDED if rounded else (0.02 if half else SUMS)
    assert apart <= bound, f"logits {apart} apart"
    spread = [x for x in model.modules() if isinstance(x, mixed_gemm.Linear)]
    assert spread
    for layer in spread:
        share: Any = getattr(layer.weight, "_local_tensor", None)
        assert isinstance(share, QuantizedTensor), "a layer is not spread"
        assert share.numel() * int(os.environ["WORLD_SIZE"]) == layer.weight.numel()
    wholes = {n: m for n, m in exact.named_modules() if isinstance(m, mixed_gemm.Linear)}
    for name, layer in model.named_modules():
        if isinstance(layer, mixed_gemm.Linear):
            assert torch.equal(layer.dequantize(), wholes[name].dequantize()), name


def gradient(model: Any) -> torch.Tensor:
    embedded = model.get_input_embeddings().weight
    values = embedded.full_tensor() if hasattr(embedded, "full_tensor") else embedded
    x = values.detach()[torch.arange(8).reshape(2, 4)].clone().requires_grad_()
    out = model(inputs_embeds=x).logits
    out = out.full_tensor() if hasattr(out, "full_tensor") else out
    out.float().square().mean().backward()
    assert x.grad is not None
    return x.grad


def from_dense(folder: Path, name: str, scheme: str, world: int) -> None:
    config = mixed_gemm.MixedGemmConfig(scheme, **SCHEMES[scheme])
    path = folder / name
    model = mixed_gemm.from_pretrained(path, quantization_config=config, **distributed(world))
    exact = mixed_gemm.from_pretrained(path, quantization_config=config).to(ranks.DEVICE)
    compare(model, exact, scheme in ("w8a8", "w8a8_block", "fp8"))
    if scheme in ("w4a16", "w8a16"):
        torch.testing.assert_close(gradient(model), gradient(exact), rtol=1e-3, atol=1e-6)


def from_quantized(folder: Path, name: str, scheme: str, world: int) -> None:
    path = folder / f"{name}-{scheme}"
    model = mixed_gemm.from_pretrained(path, **distributed(world))
    exact = mixed_gemm.from_pretrained(path).to(ranks.DEVICE)
    compare(model, exact, scheme in ("w8a8", "w8a8_block", "fp8"))


def from_fixture(name: str, world: int) -> None:
    path = Path(__file__).resolve().parents[2] / "data" / name
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32, **distributed(world))
    exact = mixed_gemm.from_pretrained(path, dtype=torch.float32).to(ranks.DEVICE)
    compare(model, exact, "float" in name or "int_8bit" in name)


def reads_its_share(folder: Path, world: int) -> None:
    """Each process reads its share of the quantized layers; bytes read of the file are counted."""
    from mixed_gemm.integrations.transformers import quantizer

    opened: list[Any] = []

    class Counted(quantizer.TensorIndex):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            opened.append(self)

    before, quantizer.TensorIndex = quantizer.TensorIndex, Counted  # type: ignore[misc]
    try:
        path = folder / "Llama-w4a16"
        mixed_gemm.from_pretrained(path, **distributed(world))
    finally:
        quantizer.TensorIndex = before  # type: ignore[misc]
    checkpoint = mixed_gemm.open_checkpoint(path)
    whole, header = sum(x.nbytes for x in checkpoint.layers.values()), checkpoint.index.bytes_read
    read = opened[0].bytes_read - header
    print(f"# {read} of {whole} bytes of quantized layers over {world} ranks", flush=True)
    assert read <= whole / world + 64 * len(checkpoint.layers), (read, whole)


def with_an_embedding(folder: Path, world: int) -> None:
    """A quantized embedding stays whole on every rank."""
    model = mixed_gemm.from_pretrained(folder / "Llama-embedding", **distributed(world))
    exact = mixed_gemm.from_pretrained(folder / "Llama-embedding").to(ranks.DEVICE)
    assert isinstance(model.model.embed_tokens, mixed_gemm.Embedding)
    compare(model, exact, False)


def mixture(folder: Path, world: int) -> None:
    """Every rank has all experts, whole, and attention is sharded; from dense files and from
    quantized ones."""
    asked = mixed_gemm.MixedGemmConfig("w4a16", group_size=32)
    exact = mixed_gemm.from_pretrained(folder / "mixture-w4a16").to(ranks.DEVICE)
    for name, options in (("mixture", {"quantization_config": asked}), ("mixture-w4a16", {})):
        model = mixed_gemm.from_pretrained(folder / name, **options, **distributed(world))
        found, want = logits(model), logits(exact)
        assert float((found - want).abs().max() / want.abs().max()) <= SUMS, name
        layer = model.model.layers[1]
        assert hasattr(layer.self_attn.q_proj.weight, "_local_tensor")
        for expert in layer.mlp.experts.experts:
            assert isinstance(expert.up_proj.weight, QuantizedTensor), name


def with_heads_on_the_way(folder: Path, world: int) -> None:
    """An embedding that is packed as it loads stays whole, and so does a head that is tied to it; a
    head of its own is spread."""
    for name, words in (
        ("Llama-tied", {"embeddings": "w8a16"}),
        ("Llama", {"embeddings": "w8a16", "heads": "w8a16"}),
    ):
        config = mixed_gemm.MixedGemmConfig("w4a16", group_size=32, **words)
        options: dict[str, Any] = {"quantization_config": config}
        model = mixed_gemm.from_pretrained(folder / name, **options, **distributed(world))
        exact = mixed_gemm.from_pretrained(folder / name, **options).to(ranks.DEVICE)
        assert isinstance(model.model.embed_tokens, mixed_gemm.Embedding)
        assert torch.equal(
            model.model.embed_tokens.dequantize(), exact.model.embed_tokens.dequantize()
        )
        if name == "Llama":
            compare(model, exact, False)
            continue
        assert model.lm_head.weight is model.model.embed_tokens.weight
        found, want = logits(model), logits(exact)
        assert float((found - want).abs().max() / want.abs().max()) <= SUMS


def compiled(folder: Path, scheme: str, world: int) -> None:
    """One graph, which has plain parts for inputs where a layer is spread: of the tensor subclasses
    among its inputs none is a weight of ours."""
    model = mixed_gemm.from_pretrained(folder / f"Qwen2-{scheme}", **distributed(world))
    want = logits(model)
    torch._dynamo.reset()
    spy = Spy()
    model.forward = torch.compile(model.forward, backend=spy, fullgraph=True)
    found = logits(model)
    assert float((found - want).abs().max() / want.abs().max()) <= SUMS
    assert spy.graphs == 1, spy.graphs
    dense = [x for x in model.parameters() if is_subclass(x) and not is_quantized(x)]
    assert spy.subclasses <= len(dense), f"{spy.subclasses} subclasses, {len(dense)} are dense"


def is_quantized(parameter: Any) -> bool:
    return isinstance(getattr(parameter, "_local_tensor", parameter), QuantizedTensor)


def saved_again(folder: Path, world: int) -> None:
    """All ranks together save what one process saves, to the byte."""
    import torch.distributed as dist

    for name, scheme in (("Llama", "w4a16"), ("Qwen2", "w4a16_asym"), ("Qwen3", "w8a8")):
        path = folder / f"{name}-{scheme}"
        model = mixed_gemm.from_pretrained(path, **distributed(world))
        again = folder / f"{name}-{scheme}-again-{world}"
        model.save_pretrained(again)
        mixed_gemm.save_checkpoint(model, folder / f"checkpoint-{name}-{world}")
        dist.barrier()
        if dist.get_rank() == 0:
            exact = mixed_gemm.open_checkpoint(path)
            for other in (again, folder / f"checkpoint-{name}-{world}"):
                found = mixed_gemm.open_checkpoint(other)
                assert set(found.layers) == set(exact.layers)
                for layer in exact.layers:
                    a, b = found.layer(layer), exact.layer(layer)
                    assert torch.equal(a.q, b.q) and torch.equal(a.scales, b.scales), layer
                    assert a.scheme == b.scheme, (a.scheme, b.scheme)
                for tensor in exact.tensors:
                    assert torch.equal(found.tensor(tensor), exact.tensor(tensor)), tensor
        dist.barrier()


def one_rank_writes(folder: Path, world: int) -> None:
    """Saving with all ranks, each to a folder of its own, adds files to that of the first only;
    a model that other readers refuse (it gets a README.md)."""
    import torch.distributed as dist

    model = mixed_gemm.from_pretrained(folder / "Llama-embedding", **distributed(world))
    mine = folder / f"written-{world}-{dist.get_rank()}"
    mine.mkdir()
    (mine / "config.json").write_text("{}")
    model.save_pretrained(mine)
    files = {file.name for file in mine.iterdir()}
    assert (files > {"README.md", "config.json"}) == (dist.get_rank() == 0), files
    assert dist.get_rank() == 0 or files == {"config.json"}, files


def main(rank: int, store: str, folder: Path) -> None:
    warnings.simplefilter("ignore")
    world = ranks.join(rank, store).size()
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    cases: dict[str, Callable[[], None]] = {}
    for name in MODELS:
        for scheme in SCHEMES:
            cases[f"{name} to {scheme}"] = lambda n=name, s=scheme: from_dense(folder, n, s, world)  # type: ignore[misc]
            cases[f"{name} in {scheme}"] = (
                lambda n=name, s=scheme: from_quantized(folder, n, s, world)  # type: ignore[misc]
            )
    if world == 2:  # they have two heads
        cases |= {x: (lambda x=x: from_fixture(x, world)) for x in FIXTURES}  # type: ignore[misc]
    if world == 4:  # a few: each process imports and loads as much as one of two
        cases = dict(list(cases.items())[::4])
    cases["reads its share"] = lambda: reads_its_share(folder, world)
    cases["mixture"] = lambda: mixture(folder, world)
    cases["embedding"] = lambda: with_an_embedding(folder, world)
    cases["heads on the way"] = lambda: with_heads_on_the_way(folder, world)
    for scheme in ("w4a16", "w8a8"):
        cases[f"compiled {scheme}"] = lambda s=scheme: compiled(folder, s, world)  # type: ignore[misc]
    cases["one rank writes"] = lambda: one_rank_writes(folder, world)
    cases["saved again"] = lambda: saved_again(folder, world)
    ranks.try_all(cases)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
