"""The tensors of experts as GPTQ and AWQ files have them, stacked by vLLM's loader; the codecs of
these formats read one expert after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...formats.awq import AwqGemm
from ...formats.detect import named_format
from ...formats.gptq import Gptq
from ...formats.keys import look_up
from ...formats.layer import LayerTensors
from ...formats.load import Wanted
from ...formats.loaded import LoadedTensors
from ...weights.integer import IntegerWeight
from ...weights.scheme import Scheme
from .experts_layout import Packed, Part, stacked
from .experts_stored import why_not_integers

CONFIG_FILE = Path("config.json")  # errors name the quantization_config of this file
_CODES, _ZEROS, _SCALES, _ORDER, _BIAS = "qweight", "qzeros", "scales", "g_idx", "bias"
_CODECS: dict[str, Callable[..., Any]] = {"gptq": Gptq, "awq": AwqGemm}
# Words of qzeros that say nothing: files without zero points may leave them out, and their codes
# are around the middle then.
_MIDDLE = {"awq": 0x88888888 - 2**32, "gptq": 0}


def why_not_file(config: Mapping[str, Any], section: str) -> str:
    """Tell why we do not read a file; empty where we do.

    Args:
        config: its quantization_config. section: "gptq" or "awq".
    """
    if reason := why_not_integers(*_width(config)):
        return reason
    if config.get("dynamic"):
        return "rules for single layers (dynamic) are not read"
    return next(iter(look_up(config, section).refusals), "")


def _width(config: Mapping[str, Any]) -> tuple[Any, Any]:
    return (
        config.get("bits", config.get("w_bit")),
        config.get("group_size", config.get("q_group_size")),
    )


def integers(config: Mapping[str, Any], section: str) -> IntegersLayout | str:
    """Return how a GPTQ or AWQ file has its experts; a text says why that is nothing that we read.

    Args:
        config: its quantization_config. section: "gptq" or "awq".
    """
    if reason := why_not_file(config, section):
        return reason
    if config.get("extra_config"):
        return "rules for single layers (extra_config) are not read"
    if section == "awq" and (reason := _why_not_awq(config)):
        return reason
    return IntegersLayout(config, section)


def _why_not_awq(config: Mapping[str, Any]) -> str:
    bits, found = _width(config)[0], named_format({**config, "quant_method": "awq"})
    if found != "awq gemm":
        return f"AWQ files must be in the layout of gemm, got {found}"
    return "" if bits == 4 else f"bits must be 4, got {bits}"


class IntegersLayout:
    """The experts of a GPTQ or AWQ file; a ``Layout``.

    Args:
        config: its quantization_config, which :func:`why_not_file` has no word against.
        section: "gptq" or "awq".
    """

    in_turns: ClassVar[bool] = False
    has_biases: ClassVar[bool] = True
    packs_channels: ClassVar[bool] = True
    ends_on_cpu: ClassVar[bool] = False
    names: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "b_packed": _CODES, "scales": _SCALES, "zeros": _ZEROS, "permutation": _ORDER,
            "bias": _BIAS,
        }
    )  # fmt: skip

    def __init__(self, config: Mapping[str, Any], section: str) -> None:
        self._config, self._section = dict(config), section
        self._bits, self._size = _width(config)
        symmetric = config.get("sym") if section == "gptq" else not config.get("zero_point", True)
        zeros = "sub" if symmetric is False else "none"
        self.scheme = Scheme.weight_only(self._bits, self._size, zeros)
        self.has_order = bool(config.get("desc_act")) and self._size != -1

    def parts(self, count: int, n: int, k: int, dtype: torch.dtype, stem: str) -> dict[str, Part]:
        per_word = 32 // self._bits
        shares = "channel" if self._size == -1 else "group"
        groups = 1 if self._size == -1 else k // self._size
        words = (k, n // per_word) if self._section == "awq" else (k // per_word, n)
        zeros = torch.full(
            (count, groups, n // per_word), _MIDDLE[self._section], dtype=torch.int32
        )
        codes = torch.empty(count, *words, dtype=torch.int32)
        made = {
            _CODES: Part(codes, shares, is_transposed=True),
            _ZEROS: Part(zeros, shares, is_transposed=True),
            _SCALES: Part(torch.empty(count, groups, n, dtype=dtype), shares, is_transposed=True),
            _BIAS: Part(torch.zeros(count, n, dtype=dtype)),
        }
        if self._section == "gptq":
            order = torch.full((count, k), -1, dtype=torch.int32)
            made[_ORDER] = Part(order, is_order=True)
        return made

    def packed(self, found: dict[str, Tensor], n: int, dtype: torch.dtype, stem: str) -> Packed:
        codec = _CODECS[self._section](self._config, CONFIG_FILE)
        bias, count = found.pop(_BIAS), len(found[_CODES])
        self._check_order(found)
        orders: list[Tensor | None] = []
        sizes: set[int] = set()

        def expert(number: int) -> dict[str, Tensor | None]:
            own, name = {k: x[number] for k, x in found.items()}, f"{stem} of expert {number}"
            tensors = LayerTensors(LoadedTensors(name, own), name)
            weight = codec.load(tensors, codec.describe(tensors), Wanted(dtype)).weight
            assert isinstance(weight, IntegerWeight)
            orders.append(weight.permutation)
            sizes.add(weight.scheme.group_size)
            return {"b_packed": weight.b_packed, "scales": weight.scales, "zeros": weight.zeros}

        made = stacked(count, map(expert, range(count)))
        if any(x is not None for x in orders):
            plain = torch.arange(self._columns(found), device=bias.device)
            made["permutation"] = torch.stack([plain if x is None else x for x in orders])
        if bool(bias.any()):  # some writers store zeros where a layer has none
            made["bias"] = bias.to(dtype)
        (size,) = sizes
        zeros = "sub" if "zeros" in made else "none"
        return Packed(Scheme.weight_only(self._bits, size, zeros), made)

    def _columns(self, found: dict[str, Tensor]) -> int:
        rows = found[_CODES].shape[1]
        return rows if self._section == "awq" else rows * 32 // self._bits

    def _check_order(self, found: dict[str, Tensor]) -> None:
        """Keep ``g_idx`` where it came from the file."""
        if _ORDER in found and bool((found[_ORDER] < 0).any()):
            if self.has_order:
                raise ValueError(
                    "mixed_gemm: the file says act-order (desc_act=True), but vLLM loaded no g_idx "
                    "of experts. Hint: serve the model with transformers"
                )
            del found[_ORDER]


def order_loader(layer: nn.Module) -> Callable[..., bool | None]:
    """Make what loads ``g_idx``, where vLLM's loader of experts calls it.

    Args:
        layer: vLLM's ``RoutedExperts``.
    """

    def load(
        param: nn.Parameter,
        loaded_weight: Tensor,
        weight_name: str,
        shard_id: str,
        expert_id: int,
        return_success: bool = False,
    ) -> bool | None:
        owner: Any = layer
        where = expert_id if owner.expert_map is None else int(owner.expert_map[expert_id])
        row = param.data[where]
        # Cut over ranks: groups lie side by side, or the layer is refused.
        if where >= 0 and loaded_weight.numel() == row.numel():
            take_order(row, loaded_weight, f"gate and up of expert {expert_id}")
        return where >= 0 if return_success else None

    return load


def take_order(row: Tensor, loaded: Tensor, matrices: str) -> None:
    """Copy the groups of columns of a matrix (``g_idx``), which those beside it must share.

    Args:
        row: -1 where none came yet. loaded: of the file, as many. matrices: which lie beside each
            other, for the error.

    Raises:
        ValueError: others came before.
    """
    given = loaded.reshape(-1).to(row)
    if bool((row >= 0).all()) and not torch.equal(row, given):
        raise ValueError(
            f"mixed_gemm: {matrices} are ordered differently (g_idx). Hint: serve the model with "
            "transformers, or quantize it again with static groups"
        )
    row.copy_(given)
