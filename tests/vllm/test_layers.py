"""The plug-in in vLLM, below the engine: its plug-in loader, its selection of a kernel, its own
GPTQ, AWQ and compressed-tensors layers on the CPU, results against the float64 reference.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import make_dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm import plugins
from vllm.model_executor.kernels import linear
from vllm.platforms import PlatformEnum, current_platform
from vllm.scalar_type import scalar_types

from mixed_gemm import reference
from mixed_gemm.formats.bitfields import pack_dense
from mixed_gemm.integrations import vllm as plugin

KERNEL_MODULE = "mixed_gemm.integrations.vllm.weight_only"
PLATFORM = PlatformEnum.CPU


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """vLLM's parameters ask for their rank, its selection for a config."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    if current_platform._enum is not PLATFORM:
        pytest.skip(f"vLLM runs on {current_platform._enum}: this file tests it on the CPU")
    with ExitStack() as stack:
        stack.enter_context(set_current_vllm_config(VllmConfig()))
        address = f"file://{tmp_path_factory.mktemp('vllm') / 'rendezvous'}"
        parallel_state.init_distributed_environment(1, 0, address, 0, "gloo")
        stack.callback(parallel_state.destroy_distributed_environment)
        parallel_state.initialize_model_parallel(1, 1)
        stack.callback(parallel_state.destroy_model_parallel)
        yield


@pytest.fixture(autouse=True)
def not_loaded(as_installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "plugins_loaded", False)


def ours() -> Any:
    return importlib.import_module(KERNEL_MODULE).MixedGemmLinearKernel


def config(**changes: Any) -> Any:
    plain = linear.MPLinearLayerConfig(
        full_weight_shape=(128, 96),
        partition_weight_shape=(128, 96),
        weight_type=scalar_types.uint4b8,
        act_type=torch.bfloat16,
        group_size=32,
        zero_points=False,
    )
    return replace(plain, **changes)


# --- loading -------------------------------------------------------------------------------------


def test_vllms_loader_finds_and_runs_the_plug_in(
    monkeypatch: pytest.MonkeyPatch, repository: Path, tmp_path: Path
) -> None:
    if not entry_points(group="vllm.general_plugins", name="mixed_gemm"):
        # A source tree that was never installed: what an installation would write.
        declared = (repository / "pyproject.toml").read_text()
        target = "mixed_gemm.integrations.vllm:register"
        assert f'[project.entry-points."vllm.general_plugins"]\nmixed_gemm = "{target}"' in declared
        info = tmp_path / "mixed_gemm-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mixed-gemm\nVersion: 0\n")
        (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\nmixed_gemm = {target}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("VLLM_PLUGINS", "mixed_gemm")
    plugins.load_general_plugins()
    assert linear._POSSIBLE_KERNELS[PLATFORM][-1] is ours()
    assert linear._POSSIBLE_KERNELS[PlatformEnum.CUDA][-1] is ours()


def test_a_wrong_place_does_not_keep_vllm_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "sometimes")
    plugin.register()
    import vllm.envs

    assert linear._POSSIBLE_KERNELS[PLATFORM][-1] is ours()
    assert vllm.envs.compile_factors()[plugin.VARIABLE] == "auto"


# --- selection -----------------------------------------------------------------------------------

TAKEN = {
    "int4, group 32": {},
    "int4, group 128": {"group_size": 128},
    "int4, per channel": {"group_size": -1},
    "int4, zero points": {"weight_type": scalar_types.uint4, "zero_points": True},
    "int4, float16": {"act_type": torch.float16},
    "int4, float32": {"act_type": torch.float32},
    "int8, group 64": {"weight_type": scalar_types.uint8b128, "group_size": 64},
    "int8, per channel": {"weight_type": scalar_types.uint8b128, "group_size": -1},
    "int8, zero points": {"weight_type": scalar_types.uint8, "zero_points": True},
    "half of the inputs": {"full_weight_shape": (256, 96)},
    "70 outputs": {"full_weight_shape": (128, 70), "partition_weight_shape": (128, 70)},
}
REFUSED = {
    "float64": ({"act_type": torch.float64}, "activations must be float16, bfloat16 or float32"),
    "int8": ({"act_type": torch.int8}, "activations must be float16, bfloat16 or float32"),
    "other output": ({"out_type": torch.float32}, "one dtype"),
    "signed": ({"weight_type": scalar_types.int4}, "weights must be unsigned codes"),
    "three bits": ({"weight_type": scalar_types.uint3b4}, "bits must be 4 or 8, got 3"),
    "float weights": ({"weight_type": scalar_types.float4_e2m1f}, "weights must be unsigned"),
    "group 24": ({"group_size": 24}, "not divisible by group_size 24"),
    "group 8": ({"group_size": 8}, "multiple of 16"),
    "a group over two ranks": (
        {"partition_weight_shape": (48, 96), "full_weight_shape": (96, 96)},
        "in_features per partition 48 is not divisible",
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_vllm_chooses_the_kernel_first_of_all(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "first")
    plugin.register()
    assert linear.choose_mp_linear_kernel(config(**TAKEN[name])) is ours()


@pytest.mark.parametrize("place", ["auto", "last"])
def test_last_serves_what_vllms_own_refuse(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv(plugin.VARIABLE, place)
    plugin.register()
    assert linear.choose_mp_linear_kernel(config()) is not ours()
    assert linear.choose_mp_linear_kernel(config(**TAKEN["int8, group 64"])) is ours()
    assert linear.choose_mp_linear_kernel(config(**TAKEN["70 outputs"])) is ours()


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_tells_vllm_why(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("VLLM_DISABLED_KERNELS", "CPUWNA16LinearKernel,Dynamic4bitLinearKernel")
    plugin.register()
    changes, reason = REFUSED[name]
    with pytest.raises(ValueError, match=f"MixedGemmLinearKernel cannot.*mixed_gemm: .*{reason}"):
        linear.choose_mp_linear_kernel(config(**changes))


class Defaults:
    """Fields that are set later."""


# --- values --------------------------------------------------------------------------------------


class Layer:
    """Random codes ``[K, N]``, scales and zero codes ``[G, N]``, for a vLLM layer to hold."""

    def __init__(
        self, k: int, n: int, bits: int, group_size: int, dtype: torch.dtype, asymmetric: bool
    ) -> None:
        self.k, self.n, self.bits, self.group_size, self.dtype = k, n, bits, group_size, dtype
        groups = 1 if group_size == -1 else k // group_size
        self.codes = torch.randint(0, 2**bits, (k, n))
        self.scales = ((0.5 + torch.rand(groups, n)) / 2**bits).to(dtype)
        self.zeros = torch.randint(0, 2**bits, (groups, n)) if asymmetric else None
        self.module = torch.nn.Module()

    def words(self, codes: Tensor, order: tuple[int, ...] | None = None) -> Tensor:
        """``[rows, columns]`` packed along the columns; by vLLM's rule, its last word filled up."""
        per_word = 32 // self.bits
        filled = torch.nn.functional.pad(codes, (0, -codes.shape[1] % per_word))
        fields = filled.view(codes.shape[0], -1, per_word)
        if order is not None:
            fields = fields[..., list(order)]
        words = (fields << (torch.arange(per_word) * self.bits)).sum(-1)
        return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """As a loader would: into the parameters that vLLM created."""
        for name, values in tensors.items():
            parameter = getattr(self.module, name)
            assert parameter.shape == values.shape, name
            parameter.data.copy_(values)

    def check(self, apply: Any) -> None:
        """What the layer computes is within the bound of the float64 reference."""
        middle = 1 << (self.bits - 1)
        q = (self.codes - middle).t().to(torch.int8)
        zeros = None if self.zeros is None else (self.zeros - middle).to(self.dtype)
        for rows in ((1,), (2, 3), (40,), (0,)):
            x, bias = torch.randn(*rows, self.k).to(self.dtype), torch.randn(self.n).to(self.dtype)
            for added in (None, bias):
                out = apply(self.module, x, added)
                assert out.dtype == self.dtype
                arguments = (x, q, self.scales, zeros, added)
                expected = reference.fpA_intB_gemm(*arguments, group_size=self.group_size)
                bound = reference.error_bound(*arguments, group_size=self.group_size)
                assert reference.error_ratio(out, expected, bound) <= 1


def sizes(layer: Layer) -> dict[str, Any]:
    """What vLLM's linear layers pass to ``create_weights``."""
    return {
        "layer": layer.module,
        "input_size_per_partition": layer.k,
        "output_partition_sizes": [layer.n],
        "input_size": layer.k,
        "output_size": layer.n,
        "params_dtype": layer.dtype,
        "weight_loader": lambda *_: None,
    }


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "first")
    plugin.register()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("k", "n", "group_size"), [(128, 96, 32), (128, 70, -1), (90, 68, -1)])
def test_compressed_tensors_layers(
    first: None, k: int, n: int, group_size: int, bits: int, asymmetric: bool, dtype: torch.dtype
) -> None:
    from vllm.model_executor.layers.quantization.compressed_tensors import schemes

    layer = Layer(k, n, bits, group_size, dtype, asymmetric)
    strategy = "channel" if group_size == -1 else "group"
    scheme = schemes.CompressedTensorsWNA16(strategy, bits, group_size, not asymmetric)
    scheme.create_weights(**sizes(layer))
    assert type(scheme.kernel) is ours()
    tensors = {
        "weight_packed": layer.words(layer.codes.t()),
        "weight_scale": layer.scales.t(),
    }
    if layer.zeros is not None:
        tensors["weight_zero_point"] = layer.words(layer.zeros).t()
    layer.fill(tensors)
    scheme.process_weights_after_loading(layer.module)
    layer.check(scheme.apply_weights)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [32, 128, -1])
def test_gptq_layers(
    first: None, monkeypatch: pytest.MonkeyPatch, group_size: int, bits: int, dtype: torch.dtype
) -> None:
    from vllm.model_executor.layers.quantization import auto_gptq

    # vLLM admits GPTQ on the CPU for its own kernel's sake, which has no 8 bits.
    monkeypatch.setattr(auto_gptq, "verify_marlin_supported", lambda *_, **__: None)
    layer = Layer(256, 96, bits, group_size, dtype, False)
    settings = auto_gptq.AutoGPTQConfig(bits, group_size, False, True, False, {}, {})
    method = auto_gptq.AutoGPTQLinearMethod(settings)
    method.create_weights(**sizes(layer))
    assert type(method.kernel) is ours()
    tensors = {"qweight": layer.words(layer.codes.t()).t(), "scales": layer.scales}
    layer.fill(tensors)
    method.process_weights_after_loading(layer.module)
    layer.check(method.apply)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [32, 128, -1])
def test_act_order_as_vllm_up_to_0_29_asks_for_it(first: None, group_size: int, bits: int) -> None:
    """This vLLM has no such layers: the field, the name and the parameter are as those had them."""
    k, n = 256, 96
    layer = Layer(k, n, bits, group_size, torch.bfloat16, False)
    asked = make_dataclass("C", [("has_g_idx", bool)], bases=(Defaults,))(has_g_idx=True)
    asked.__dict__.update(
        vars(
            config(
                full_weight_shape=(k, n),
                partition_weight_shape=(k, n),
                weight_type=scalar_types.uint4b8 if bits == 4 else scalar_types.uint8b128,
                group_size=group_size,
            )
        )
    )
    kernel = ours()(asked, "qweight", "scales")
    kernel.w_gidx_name = "g_idx"
    group = k if group_size == -1 else group_size
    order = torch.randperm(k)
    groups = torch.empty(k, dtype=torch.int32)
    groups[order] = (torch.arange(k) // group).to(torch.int32)
    by_group = groups.sort(stable=True).indices
    stored = torch.empty_like(layer.codes)
    stored[by_group] = layer.codes  # in the file codes lie as the activations do
    vllm_parameters = importlib.import_module("vllm.model_executor.parameter")
    words = layer.words(stored.t()).t().contiguous()
    for name, parameter in (
        ("qweight", vllm_parameters.PackedvLLMParameter(
            data=words, input_dim=0, output_dim=1, packed_dim=0, packed_factor=32 // bits,
            weight_loader=None)),
        ("scales", vllm_parameters.GroupQuantScaleParameter(
            data=layer.scales, input_dim=0, output_dim=1, weight_loader=None)),
        ("g_idx", vllm_parameters.RowvLLMParameter(data=groups, input_dim=0, weight_loader=None)),
    ):  # fmt: skip
        layer.module.register_parameter(name, parameter)
    kernel.process_weights_after_loading(layer.module)

    def apply(module: Any, x: Tensor, added: Tensor | None) -> Tensor:
        as_given = torch.empty_like(x)
        as_given[..., by_group] = x
        out: Tensor = kernel.apply_weights(module, as_given, added)
        return out

    layer.check(apply)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("group_size", [32, 128, -1])
def test_awq_layers(first: None, group_size: int, dtype: torch.dtype) -> None:
    from vllm.model_executor.layers.quantization import auto_awq

    layer = Layer(256, 96, 4, group_size, dtype, True)
    settings = auto_awq.AutoAWQConfig(4, group_size, True, False, None, {})
    method = auto_awq.AutoAWQMarlinLinearMethod(settings)
    method.create_weights(**sizes(layer))
    assert type(method.kernel) is ours()
    order, zeros = (0, 2, 4, 6, 1, 3, 5, 7), layer.zeros
    assert zeros is not None
    layer.fill(
        {
            "qweight": layer.words(layer.codes, order),
            "qzeros": layer.words(zeros, order),
            "scales": layer.scales,
        }
    )
    method.process_weights_after_loading(layer.module)
    layer.check(method.apply)


def test_vllm_itself_refuses_act_order() -> None:
    """So its configs have no field for it; the kernel's way with g_idx is for vLLM up to 0.29."""
    from vllm.model_executor.layers.quantization import auto_gptq

    with pytest.raises(ValueError, match="no longer supported"):
        auto_gptq.AutoGPTQConfig(4, 32, True, True, False, {}, {})


@pytest.mark.parametrize(("k", "size"), [(192, 128), (448, 128), (160, 96), (256, 64)])
@pytest.mark.parametrize("has_order", [True, False])
def test_our_gptq_layer_has_the_stated_groups(k: int, size: int, has_order: bool) -> None:
    """Where K is no multiple of the group size, the last group is short."""
    gptq = importlib.import_module("mixed_gemm.integrations.vllm.gptq")
    n, groups = 64, torch.arange(k) // size
    count = int(groups[-1]) + 1
    codes = torch.randint(0, 16, (n, k), dtype=torch.uint8)
    zeros = torch.randint(1, 16, (count, n), dtype=torch.uint8)
    scales = (0.5 + torch.rand(count, n)) / 16
    said = {"quant_method": "gptq", "bits": 4, "group_size": size, "sym": False, "desc_act": False}
    method = gptq.MixedGemmGPTQLinearMethod(gptq.MixedGemmGPTQConfig(said))
    module = torch.nn.Module()
    method.create_weights(module, k, [n], k, n, torch.float32, weight_loader=None)
    given = {
        "qweight": pack_dense(codes, 4).t(),
        "qzeros": pack_dense(zeros - 1, 4),
        "scales": scales,
    }
    for name, values in {**given, **({"g_idx": groups} if has_order else {})}.items():
        getattr(module, name).data.copy_(values)
    method.process_weights_after_loading(module)
    a = torch.randn(5, k)
    operands = (a, (codes - 8).view(torch.int8), scales, zeros.float() - 8)
    exact = reference.fpA_intB_gemm(*operands, group_size=size)
    bound = reference.error_bound(*operands, group_size=size)
    assert reference.error_ratio(method.apply(module, a), exact, bound) <= 1.0
