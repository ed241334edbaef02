"""``mixed_gemm.LinearW8A8``: a linear layer with int8 weights and int8 activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .. import _library, ops
from ..ops.autograd import refusal, transforms_active
from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_not_freed, check_storage
from ..weights.rounding import quantize_weight
from ..weights.state_w8a8 import FLOATS, Int8Layer
from .linear import Linear

if TYPE_CHECKING:
    from ..weights.exchange import QuantizedWeight

INT8_STEPS = 255  # between -128 and 127
MIN_SCALE = 2.0**-126  # as problem/quantize.h


@dataclass(frozen=True)
class ActivationMode:
    """How activations become int8.

    per_token: every row has its own scale, found on the way; otherwise one scale, from calibration.
    azp: with a zero point, for activations that are not centred at 0.
    """

    per_token: bool
    azp: bool


ACTIVATION_MODES = {
    "dynamic": ActivationMode(per_token=True, azp=False),
    "dynamic_azp": ActivationMode(per_token=True, azp=True),
    "static": ActivationMode(per_token=False, azp=False),
    "static_azp": ActivationMode(per_token=False, azp=True),
}


def check_activations(where: str, activations: str) -> ActivationMode:
    """Raise ``ValueError`` unless ``activations`` is one of ``ACTIVATION_MODES``."""
    if activations not in ACTIVATION_MODES:
        raise ValueError(
            f"{where}: activations must be one of {tuple(ACTIVATION_MODES)}, got {activations!r}"
        )
    return ACTIVATION_MODES[activations]


def input_quantization(low: float, high: float, azp: bool) -> tuple[float, int]:
    """(scale, zero point) for activations in low..high: the formula of ``quantize_per_token``."""
    low, high = min(low, 0.0), max(high, 0.0)
    if not azp:
        return max(max(-low, high) / 127, MIN_SCALE), 0
    scale = max(high / INT8_STEPS - low / INT8_STEPS, MIN_SCALE)
    return scale, max(-128, min(127, -128 - round(low / scale)))


def _refuse_non_finite(tensors: Mapping[str, Tensor | None], where: str) -> None:
    for name in FLOATS:
        tensor = tensors.get(name)
        if tensor is not None and not tensor.is_meta and not bool(tensor.isfinite().all()):
            raise ValueError(f"{where}: {name} must be finite, got NaN or Inf")


def _product(
    x: Tensor,
    weight_int8: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    azp_adj: Tensor | None,
    input_scale: Tensor | None,
    input_azp: Tensor | None,
) -> Tensor:
    azp: Tensor | None
    if input_scale is None:
        q, scale, azp = ops.quantize_per_token(x, symmetric=azp_adj is None)
    else:
        q, scale, azp = ops.quantize_per_tensor(x, input_scale, input_azp), input_scale, None
    b = weight_int8.t()
    if azp_adj is None:
        return ops.scaled_mm(q, b, scale, weight_scale, bias, out_dtype=x.dtype)
    return ops.scaled_mm_azp(q, b, scale, weight_scale, azp_adj, azp, bias, out_dtype=x.dtype)


_FROZEN = {2: "weight_scale", 5: "input_scale"}  # by their place in the arguments of _product


def _refuse_frozen(asks: tuple[bool, ...], what: str) -> None:
    for i, name in _FROZEN.items():
        if asks[i]:
            why = "scales do not train. Hint: {name}.detach()"
            raise refusal("mixed_gemm.LinearW8A8", name, what, why)


class _StraightThrough(torch.autograd.Function):
    """The product, differentiated as if the activations had not been rounded. Arguments as of
    ``_product``."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        _refuse_frozen(ctx.needs_input_grad, "requires grad")
        ctx.save_for_backward(*args[1:3])
        return _product(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        grad_x = grad_bias = None
        if grad is not None and ctx.needs_input_grad[0]:
            weight_int8, weight_scale = ctx.saved_tensors
            grad_x = (grad * weight_scale.to(grad.dtype)) @ weight_int8.to(grad.dtype)
        if grad is not None and ctx.needs_input_grad[3]:
            grad_bias = grad.sum_to_size(grad.shape[-1])
        return grad_x, None, None, grad_bias, None, None, None


class _Transformable(torch.autograd.Function):
    """``_StraightThrough`` for forward mode and torch.func: torch.compile takes no Function with
    ``jvp``, and one with ``setup_context`` takes 0.1 ms longer a call."""

    generate_vmap_rule = True
    forward = staticmethod(_product)
    backward = _StraightThrough.backward

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _refuse_frozen(ctx.needs_input_grad, "requires grad")
        ctx.save_for_backward(*inputs[1:3])
        ctx.save_for_forward(*inputs[1:3])
        ctx.output_shape = output.shape
        ctx.set_materialize_grads(False)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        _refuse_frozen(tuple(x is not None for x in tangents), "has a tangent")
        weight_int8, weight_scale = ctx.saved_tensors
        dx, dbias = tangents[0], tangents[3]
        if dx is None:
            assert dbias is not None
            return dbias.expand(ctx.output_shape)
        weight = (weight_int8 * weight_scale.unsqueeze(1)).to(dx.dtype)
        out: Tensor = dx @ weight.t()
        return out if dbias is None else out + dbias


class LinearW8A8(Linear):
    """y = scale_x * scale_w * (q_x @ q_w.T) + bias: weight and activations in int8.

    A :class:`mixed_gemm.Linear` whose activations are rounded too, so that integer tensor cores
    (VNNI on a CPU) multiply them. Gradients pass straight through the rounding.

    The constructor makes a module that computes w = 0, to be filled by ``load_state_dict``; use
    :meth:`from_float`, :meth:`from_quantized` or ``mixed_gemm.quantize_(model, scheme="w8a8")``.

    Args:
        in_features: K, at most 131071.
        out_features: N.
        bias: whether to have one; it is an ``nn.Parameter`` and may train.
        activations: "dynamic" (a scale for each row, found on the way), "dynamic_azp" (and a zero
            point), "static" (one scale, from calibration), "static_azp" (and a zero point).
        pre_scale: whether activations are multiplied by a ``[K]`` vector first (SmoothQuant that
            could not be folded into the layer before).
        device: of everything.
        dtype: of the bias and pre_scale, and so of the activations.

    Buffers:
        weight_int8: int8 ``[N, K]``. weight_scale: float32 ``[N]``.
        azp_adj: int32 ``[N]`` with a zero point, else None.
        input_scale: float32 ``[]`` and input_azp: int32 ``[]`` when static, else None.
        pre_scale: ``[K]`` or None.
        ``half()`` and ``to(dtype)`` change the bias and pre_scale only.

    Raises:
        ValueError: ``activations`` is not one of the four.
    """

    weight_int8: Tensor
    weight_scale: Tensor
    azp_adj: Tensor | None
    input_scale: Tensor | None
    input_azp: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        activations: str = "dynamic",
        pre_scale: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        nn.Module.__init__(self)
        mode = check_activations("mixed_gemm.LinearW8A8", activations)
        self.in_features = in_features
        self.out_features = out_features
        self.bits, self.group_size, self.zero_mode = 8, -1, "none"
        self.activations = activations
        self._dtype = dtype or torch.get_default_dtype()
        n, k = out_features, in_features
        floats: dict[str, Any] = {"device": device, "dtype": self._dtype}

        def buffer(name: str, exists: bool, shape: tuple[int, ...], dtype: torch.dtype) -> None:
            value = torch.zeros(shape, dtype=dtype, device=device) if exists else None
            self.register_buffer(name, value)

        buffer("weight_int8", True, (n, k), torch.int8)
        buffer("weight_scale", True, (n,), torch.float32)
        buffer("azp_adj", mode.azp, (n,), torch.int32)
        buffer("input_scale", not mode.per_token, (), torch.float32)
        buffer("input_azp", mode.azp and not mode.per_token, (), torch.int32)
        self.register_buffer("pre_scale", torch.ones(k, **floats) if pre_scale else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(n, **floats)) if bias else None)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """An empty tensor with the dtype and device of the activations this module takes. The
        values are in ``weight_int8``; :meth:`dequantize`."""
        told = self.bias if self.bias is not None else self.pre_scale
        return self.weight_int8.new_empty(0, dtype=self._dtype if told is None else told.dtype)

    def forward(self, input: Tensor) -> Tensor:
        """``[..., K]`` -> ``[..., N]``, in the dtype of ``input`` (or of autocast)."""
        bias: Tensor | None = self.bias
        pre_scale = self.pre_scale
        read_by_torch = {} if pre_scale is None else {"input": input, "pre_scale": pre_scale}
        check_not_freed("mixed_gemm.LinearW8A8", weight_int8=self.weight_int8, **read_by_torch)
        device = input.device.type
        if torch.is_autocast_enabled(device) and input.dtype != torch.float64:
            dtype = torch.get_autocast_dtype(device)
            input = input.to(dtype)
            bias = None if bias is None else bias.to(dtype)
            pre_scale = None if pre_scale is None else pre_scale.to(dtype)
        x = input if pre_scale is None else input * pre_scale
        product: Callable[..., Tensor] = _product
        if torch.is_grad_enabled() and x.requires_grad:
            product = _StraightThrough.apply
        if not torch.compiler.is_compiling() and transforms_active():
            product = _Transformable.apply
        return product(
            x,
            self.weight_int8,
            self.weight_scale,
            bias,
            self.azp_adj,
            self.input_scale,
            self.input_azp,
        )

    @classmethod
    def from_float(  # type: ignore[override]
        cls,
        linear: nn.Linear,
        activations: str = "dynamic",
        *,
        input_range: tuple[float, float] | None = None,
        smoothing: Tensor | None = None,
        folded: bool = False,
    ) -> LinearW8A8:
        """Quantize an ``nn.Linear`` by rounding to nearest, with a scale for each output channel.

        Args:
            linear: with a float16, bfloat16 or float32 weight. Its bias is shared, not copied.
            activations: see the class.
            input_range: least and largest activation that is rounded, so after smoothing; needed
                when static.
            smoothing: SmoothQuant's factors ``[K]``: column k of the weight is multiplied by
                smoothing[k] and the activation divided by it.
            folded: the layer before divides already, so that no pre_scale is kept.

        Raises:
            ValueError: ``activations`` is unknown, a static mode has no range, or the weight or the
                range holds NaN or Inf.
            TypeError: the weight has another dtype.
        """
        where = "mixed_gemm.LinearW8A8.from_float"
        mode = check_activations(where, activations)
        scale, azp = None, 0
        if not mode.per_token:
            if input_range is None or not all(map(math.isfinite, input_range)):
                raise ValueError(
                    f"{where}: activations={activations!r} needs a finite input_range, got "
                    f"{input_range}"
                )
            scale, azp = input_quantization(*input_range, mode.azp)
        weight = linear.weight.detach()
        if smoothing is not None:
            weight = weight.float() * smoothing
        q, scales, _ = quantize_weight(weight, 8, -1, scale_dtype=torch.float32)
        pre_scale = None
        if smoothing is not None and not folded:
            pre_scale = smoothing.reciprocal().to(linear.weight.dtype)
        result = cls.from_quantized(
            q,
            scales[0],
            pre_scale=pre_scale,
            activations=activations,
            input_scale=scale,
            input_azp=azp,
            dtype=linear.weight.dtype,
        )
        result.bias = linear.bias
        return result.train(linear.training)

    @classmethod
    def from_quantized(  # type: ignore[override]
        cls,
        weight: Tensor,
        weight_scale: Tensor,
        bias: Tensor | None = None,
        pre_scale: Tensor | None = None,
        *,
        activations: str = "dynamic",
        input_scale: float | Tensor | None = None,
        input_azp: int | Tensor = 0,
        dtype: torch.dtype | None = None,
    ) -> LinearW8A8:
        """Take a weight that is int8 already, as a checkpoint loader has it.

        Args:
            weight: int8 ``[N, K]``.
            weight_scale: ``[N]`` or ``[N, 1]``, or one element; kept in float32.
            bias: ``[N]`` or None. pre_scale: ``[K]`` or None.
            activations: see the class.
            input_scale, input_azp: of the activations, when static.
            dtype: of the activations, where neither bias nor pre_scale tells it.

        Raises:
            ValueError: a static mode has no input_scale, a scale is NaN or Inf, or a tensor does
                not fit the rest or has lost its storage.
            TypeError: ``weight`` is not int8.
        """
        where = "mixed_gemm.LinearW8A8.from_quantized"
        _library.require()
        mode = check_activations(where, activations)
        if weight.dim() != 2 or weight.dtype != torch.int8:
            error = ArgumentTypeError if weight.dtype != torch.int8 else ArgumentValueError
            raise error(
                f"{where}: weight must be int8 [N, K], got {weight.dtype} {tuple(weight.shape)}"
            )
        check_storage(
            where, weight=weight, weight_scale=weight_scale, bias=bias, pre_scale=pre_scale
        )
        if mode.per_token != (input_scale is None):
            raise ValueError(
                f"{where}: activations={activations!r} needs "
                f"{'no input_scale' if mode.per_token else 'input_scale'}, got {input_scale}"
            )
        n, k = weight.shape
        told = bias if bias is not None else pre_scale
        module = cls(
            k,
            n,
            bias=bias is not None,
            activations=activations,
            pre_scale=pre_scale is not None,
            device="meta",
            dtype=told.dtype if told is not None else dtype,
        )
        if weight_scale.numel() in (1, n):
            weight_scale = weight_scale.detach().float().reshape(-1).expand(n).contiguous()
        options: dict[str, Any] = {"device": weight.device}
        tensors: dict[str, Tensor | None] = {
            "weight_int8": weight.detach().contiguous(),
            "weight_scale": weight_scale,
            "azp_adj": None,
            "input_scale": None,
            "input_azp": None,
            "pre_scale": None if pre_scale is None else pre_scale.detach().contiguous(),
        }
        if input_scale is not None:
            scale = torch.as_tensor(input_scale, dtype=torch.float32, **options)
            tensors["input_scale"] = scale.reshape(())
        if mode.azp:
            if input_scale is not None:
                point = torch.as_tensor(input_azp, dtype=torch.int32, **options).reshape(())
                tensors["input_azp"] = point
            folded = None if mode.per_token else int(input_azp)
            tensors["azp_adj"] = ops.azp_adjustment(weight, folded)
        problems = module._layer().tensor_problems({**tensors, "bias": bias})
        if problems:
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        _refuse_non_finite(tensors, where)
        for name, tensor in tensors.items():
            setattr(module, name, tensor)
        if bias is not None:
            module.bias = bias if isinstance(bias, nn.Parameter) else nn.Parameter(bias.detach())
        return module

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense ``[N, K]`` weight in ``dtype`` (of the activations when None), without
        pre_scale."""
        weight_int8, weight_scale = self.weight_int8, self.weight_scale
        check_storage("mixed_gemm.LinearW8A8", weight_int8=weight_int8, weight_scale=weight_scale)
        weight = weight_int8.float() * weight_scale[:, None]
        return weight.to(self.weight.dtype if dtype is None else dtype)

    def to_quantized_weight(self, name: str = "") -> QuantizedWeight:
        """Refused: a checkpoint of weights would not say that activations are rounded."""
        raise ValueError(
            f"mixed_gemm.LinearW8A8: {name or 'a W8A8 layer'} has no weight-only form. Hint: "
            "state_dict(), or to_float()"
        )

    def to_float(self) -> nn.Linear:
        """A dense ``nn.Linear`` with the dequantized weight; pre_scale is folded into it. The bias
        is shared."""
        dtype = self.weight.dtype
        weight = self.dequantize(torch.float32)
        if self.pre_scale is not None:
            weight = weight * self.pre_scale.float()
        linear = nn.Linear(
            self.in_features, self.out_features, bias=False, device="meta", dtype=dtype
        )
        linear.weight = nn.Parameter(weight.to(dtype))
        linear.bias = self.bias
        return linear.train(self.training)

    def extra_repr(self) -> str:
        pre_scale = ", pre_scale=True" if self.pre_scale is not None else ""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, activations={self.activations}{pre_scale}, "
            f"dtype={str(self.weight.dtype).removeprefix('torch.')}"
        )

    def _layer(self) -> Int8Layer:
        return Int8Layer(
            self.in_features, self.out_features, self.scheme, activations=self.activations
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        mine = {name: state_dict.get(prefix + name) for name in FLOATS}
        _refuse_non_finite(mine, f"{prefix}mixed_gemm.LinearW8A8")
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LinearW8A8:
        # The scales are float32 whatever the activations are: a cast moves them only.
        kept = {x: self._buffers[x] for x in ("weight_scale", "input_scale")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in kept.items():
            after = self._buffers[name]
            if before is not None and after is not None and after.dtype != before.dtype:
                self._buffers[name] = before.to(after.device)
        self._dtype = fn(torch.empty(0, dtype=self._dtype)).dtype
        return self
