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

import pytest
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
# Experts that 4 ranks do not divide, of sizes that no rank's share is a multiple of.
MIXTURES: dict[str, dict[str, Any]] = {
    "Qwen3Moe": {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 208,
                 "head_dim": 32},
    "Mixtral": {"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 320},
}  # fmt: skip
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
    for name, more in MIXTURES.items():
        config = getattr(transformers, f"{name}Config")(**{**SIZES, **more})
        torch.manual_seed(0)
        getattr(transformers, f"{name}ForCausalLM")(config).save_pretrained(folder / name)
        for scheme, asked in mixture_schemes(name):
            quantized = mixed_gemm.from_pretrained(folder / name, quantization_config=asked)
            quantized.save_pretrained(folder / f"{name}-{scheme}")


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


def mixture_schemes(name: str) -> list[tuple[str, Any]]:
    size = 96 if name == "Qwen3Moe" else 64
    asked = mixed_gemm.MixedGemmConfig
    return [("w4a16_asym", asked("w4a16_asym", group_size=size)), ("mxfp4", asked("mxfp4"))]


def mixture(folder: Path, name: str, world: int) -> None:
    """Ranks share experts, by tensor and by expert parallelism, and attention is sharded; from
    dense files and from quantized ones, and what they save is what one process saves."""
    import torch.distributed as dist
    from transformers.distributed import DistributedConfig

    (scheme, asked), *others = mixture_schemes(name)
    rows: list[tuple[str, dict[str, Any]]] = [(name, {"quantization_config": asked})]
    rows += [(f"{name}-{x}", {}) for x in (scheme, *(x for x, _ in others))]
    ways: dict[str, dict[str, Any]] = {
        "cut": {},
        "whole": {"ep_size": world},
        "exchanged": {"ep_size": world, "ep_implementation": "all_to_all"},
    }
    for source, options in rows:
        exact = mixed_gemm.from_pretrained(folder / source, **options).to(ranks.DEVICE)
        for way, more in ways.items():
            config = DistributedConfig(tp_size=world, tp_plan="auto", **more)
            model = mixed_gemm.from_pretrained(
                folder / source, **options, distributed_config=config
            )
            found, want = logits(model), logits(exact)
            assert float((found - want).abs().max() / want.abs().max()) <= SUMS, (source, way)
            layer = model.model.layers[1]
            assert hasattr(layer.self_attn.q_proj.weight, "_local_tensor")
            experts = layer.mlp.experts
            assert experts.spread.way == way
            held = [x.own_weight for e in experts.experts for x in e.linears]
            every = [x.weight for e in exact.model.layers[1].mlp.experts.experts for x in e.linears]
            share = sum(x.numel() for x in held) / sum(x.numel() for x in every)
            assert share <= (0.62 if world == 2 else 0.41), (source, way, share)
            if way == "cut" and options:
                continue
            again = folder / f"{source}-{way}-again-{world}"
            model.save_pretrained(again)
            dist.barrier()
            if dist.get_rank() == 0:
                first = folder / (f"{name}-{scheme}" if options else source)
                assert equal_files(again, first), (source, way)
            dist.barrier()


def gpt_oss(folder: Path, world: int) -> None:
    """Its own MXFP4, of which a rank reads the experts that it has; or by a rule of one's own, that
    transformers learns after the model is made, its share of each."""
    import torch.distributed as dist
    from integrations.test_experts import gpt_oss as write_gpt_oss
    from transformers.distributed import DistributedConfig

    path = folder / "gpt-oss"
    if dist.get_rank() == 0:
        path.mkdir()
        write_gpt_oss(path)
    dist.barrier()
    (source,) = {x.parent for x in path.rglob("config.json")}
    exact = mixed_gemm.from_pretrained(source).to(ranks.DEVICE)
    rule = {"model.layers.*.mlp.experts": "moe_tp_experts"}
    for way, more in (
        ("whole", {"tp_plan": "auto", "ep_size": world}),
        ("cut", {"tp_plan": rule}),
        (None, {"tp_plan": "auto"}),  # which has no rule for experts
    ):
        config = DistributedConfig(tp_size=world, **more)
        model = mixed_gemm.from_pretrained(source, distributed_config=config)
        found, want = logits(model), logits(exact)
        assert float((found - want).abs().max() / want.abs().max()) <= SUMS, way
        spread = model.model.layers[0].mlp.experts.spread
        assert (spread and spread.way) == way
        model.save_pretrained(again := folder / f"gpt-oss-{way}")
        dist.barrier()
        if dist.get_rank() == 0:
            assert equal_files(again, source), way
        dist.barrier()


def gpt_oss_on_the_way(folder: Path, world: int) -> None:
    """Dense experts of a layer in one tensor: a rank reads those that it has, or cuts each."""
    import torch.distributed as dist
    from integrations.test_stacked_files import written
    from transformers.distributed import DistributedConfig

    path = folder / "gpt-oss-dense"
    if dist.get_rank() == 0:
        written(path, "gpt-oss")
    dist.barrier()
    options: dict[str, Any] = {"quantization_config": mixed_gemm.MixedGemmConfig("w8a16")}
    exact = mixed_gemm.from_pretrained(path, dtype=torch.float32, **options).to(ranks.DEVICE)
    exact.save_pretrained(first := folder / f"gpt-oss-first-{dist.get_rank()}")
    rule = {"model.layers.*.mlp.experts": "moe_tp_experts"}
    for way, more in (
        ("whole", {"tp_plan": "auto", "ep_size": world}),
        ("cut", {"tp_plan": rule}),
        (None, {"tp_plan": "auto"}),
    ):
        config = DistributedConfig(tp_size=world, **more)
        model = mixed_gemm.from_pretrained(
            path, dtype=torch.float32, distributed_config=config, **options
        )
        found, want = logits(model), logits(exact)
        assert float((found - want).abs().max() / want.abs().max()) <= SUMS, way
        spread = model.model.layers[0].mlp.experts.spread
        assert (spread and spread.way) == way
        if way == "cut":
            continue
        model.save_pretrained(again := folder / f"gpt-oss-dense-{way}")
        dist.barrier()
        if dist.get_rank() == 0:
            assert equal_files(again, first), way
        dist.barrier()


def beside_fsdp(folder: Path, world: int) -> None:
    """Experts are shared, all else is sharded by FSDP2, and each rank has tokens of its own, as the
    refusal of the same while loading says how to."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import parallelize_module
    from transformers.distributed import DistributedConfig

    from mixed_gemm.parallel import ExpertParallel

    path = folder / "Qwen3Moe-w4a16_asym"
    refused = DistributedConfig(tp_size=1, fsdp_size=world, ep_size=world)
    with pytest.raises(ValueError, match=r"beside tp_size=1 has .*ExpertParallel.*fully_shard"):
        mixed_gemm.from_pretrained(path, distributed_config=refused)
    exact = mixed_gemm.from_pretrained(path).to(ranks.DEVICE)
    model = mixed_gemm.from_pretrained(path).to(ranks.DEVICE)
    mesh = torch.distributed.device_mesh.init_device_mesh(ranks.DEVICE, (world,))
    plan = {"model.layers.*.mlp.experts": ExpertParallel(input_layouts=Shard(0))}
    parallelize_module(model, mesh, plan)
    ours = {p for layer in model.model.layers for p in layer.mlp.experts.parameters()}
    for part in (*model.model.layers, model):
        fully_shard(part, mesh=mesh, ignored_params=ours)
    tokens = torch.arange(5 + dist.get_rank()).unsqueeze(0).to(ranks.DEVICE)
    out, want = model(tokens).logits, exact(tokens).logits
    assert float((out - want).abs().max() / want.abs().max()) <= SUMS
    out.square().mean().backward()
    want.square().mean().backward()
    for name in ("model.norm", "model.layers.0.mlp.gate"):
        found, grad = model.get_submodule(name).weight.grad, exact.get_submodule(name).weight.grad
        dist.all_reduce(grad)
        torch.testing.assert_close(found.full_tensor(), grad / world, rtol=1e-3, atol=1e-6)


def equal_files(one: Path, other: Path) -> bool:
    from safetensors.torch import load_file

    a, b = ({k: v for f in sorted(x.glob("*.safetensors")) for k, v in load_file(f).items()}
            for x in (one, other))  # fmt: skip
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


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


def fused_as_it_loads(folder: Path, world: int) -> None:
    """Each rank runs its shard of a layer by itself, which is said, and not what is asked for."""
    exact = mixed_gemm.from_pretrained(folder / "Llama-w4a16").to(ranks.DEVICE)
    config = mixed_gemm.MixedGemmConfig("w4a16", group_size=32, fuse=True)
    ways: dict[str, dict[str, Any]] = {
        "Llama-w4a16": {"fuse": True},
        "Llama": {"quantization_config": config},
    }
    for name, options in ways.items():
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = mixed_gemm.from_pretrained(folder / name, **options, **distributed(world))
        found = [str(x.message) for x in said if "fuse=True fused nothing" in str(x.message)]
        assert len(found) == 1 and "its weight is spread over ranks" in found[0], found
        compare(model, exact, False)
        report = mixed_gemm.fuse_(model, mlps=True)
        assert not report.sets and not report.mlps
        compare(model, exact, False)


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
        cases["gpt-oss"] = lambda: gpt_oss(folder, world)
        cases["beside FSDP"] = lambda: beside_fsdp(folder, world)
        cases["gpt-oss on the way"] = lambda: gpt_oss_on_the_way(folder, world)
    if world == 4:  # a few: each process imports and loads as much as one of two
        cases = dict(list(cases.items())[::4])
    cases["reads its share"] = lambda: reads_its_share(folder, world)
    for name in list(MIXTURES)[world // 4 :]:
        cases[f"mixture {name}"] = lambda n=name: mixture(folder, n, world)  # type: ignore[misc]
    cases["embedding"] = lambda: with_an_embedding(folder, world)
    cases["fused as it loads"] = lambda: fused_as_it_loads(folder, world)
    cases["heads on the way"] = lambda: with_heads_on_the_way(folder, world)
    for scheme in ("w4a16", "w8a8"):
        cases[f"compiled {scheme}"] = lambda s=scheme: compiled(folder, s, world)  # type: ignore[misc]
    cases["one rank writes"] = lambda: one_rank_writes(folder, world)
    cases["saved again"] = lambda: saved_again(folder, world)
    ranks.try_all(cases)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
