"""How a weight and its activations are stored: ``Scheme``, and the usual ones by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..ops.errors import ArgumentValueError, wrong_type, wrong_value
from ..ops.problem import (
    GROUP_STEP,
    WEIGHTS,
    ZERO_MODES,
    check_bits,
    check_group_size,
    check_zero_mode,
    float_weight,
    integer_options,
    integer_weight,
)

FLOAT8 = "e4m3"  # the weight type of float8_e4m3fn
# The scales that floats of 4 bits have, and what shares one: those of MXFP4 and of NVFP4.
FLOAT4_STRATEGIES = {"e8m0": "group", "e4m3": "tensor_group"}


@dataclass(frozen=True)
class Side:
    """How the numbers of one operand are stored, in the words of compressed-tensors.

    type: "int", "float", or the name of a code book ("nf4", "fp4"). num_bits: of one number.
    strategy: what shares a scale: "tensor", "channel", "group" (of ``group_size`` elements of K),
        "tensor_group" (the same, and one scale more for the whole weight), "block" (of ``block``
        rows and columns) or "token" (a row of activations).
    symmetric: no zero point. dynamic: scales are found when the operand arrives.
    block: (rows, columns) of the weight ``[N, K]`` that share a scale, of the strategy "block".
    scale_dtype: what a scale is, "e8m0" (a power of two), "e4m3" or "float32"; None where the
        strategy and the type say it, as of integers, whose scales are in the dtype of activations.
    """

    type: str = "int"
    num_bits: int = 8
    strategy: str = "channel"
    group_size: int | None = None
    symmetric: bool = True
    dynamic: bool = False
    block: tuple[int, int] | None = None
    scale_dtype: str | None = None

    def __post_init__(self) -> None:
        if self.block is not None:  # JSON has lists, which neither hash nor equal a tuple
            object.__setattr__(self, "block", tuple(self.block))

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it. A scale_dtype of None is left out: what is written then is what versions
        without the field wrote, and read."""
        fields = asdict(self)
        if self.scale_dtype is None:
            del fields["scale_dtype"]
        return fields


def _kind_of(weight: str) -> str:
    """The type of a side whose codes are of a weight type."""
    if weight == FLOAT8:
        return "float"
    known = WEIGHTS[weight]
    return weight if known.is_book else "int" if known.is_integer else "float"


@dataclass(frozen=True)
class Scheme:
    """How a weight is stored, how its activations are rounded, and what its real value is.

    Args:
        weights: of the weight ``[N, K]``.
        input_activations: of the activations; None leaves them in their dtype.
        zero_mode: "none" is w = q * scale, "sub" is w = (q - zero) * scale (AWQ, GPTQ, HQQ),
            "add" is w = q * scale + zero (TensorRT-LLM, MNN; convolutions).

    :meth:`weight_only`, :meth:`float4`, :meth:`w8a8`, :meth:`w8a8_block` and :meth:`fp8` make the
    usual ones; ``SCHEMES`` has them by name, and :meth:`named` gives one with another setting.
    """

    weights: Side
    input_activations: Side | None = None
    zero_mode: str = "none"

    @classmethod
    def named(
        cls,
        name: str,
        *,
        bits: int | None = None,
        group_size: int | None = None,
        symmetric: bool | None = None,
        zero_mode: str | None = None,
        activations: str | None = None,
    ) -> Scheme:
        """A scheme by its name, with other settings where they are given.

        Args:
            name: one of ``SCHEMES``: "w4a16", "w8a8", ...
            bits, zero_mode: for weight-only schemes, see :meth:`weight_only`.
            group_size: for weight-only schemes; for "w8a8_block" the block.
            symmetric: for both of these: False is with zero points.
            activations: for schemes that round them, see :meth:`w8a8` and :meth:`fp8`.

        Raises:
            ValueError: there is no scheme of this name, it has no such setting, or a setting is out
                of range.
        """
        return refined(
            "Scheme.named", name, bits=bits, group_size=group_size, symmetric=symmetric,
            zero_mode=zero_mode, activations=activations,
        )  # fmt: skip

    @classmethod
    def weight_only(cls, bits: int = 4, group_size: int = 128, zero_mode: str = "none") -> Scheme:
        """Integers of 4 or 8 bits, activations in 16 or 32.

        Args:
            bits: 4 (q in -8..7) or 8 (q in -128..127).
            group_size: elements of K that share a scale: -1 (all of K) or a multiple of 16. The
                last
                group may be ragged: there are ceil(K / group_size).
            zero_mode: see the class.

        Raises:
            ValueError: one is out of range; the text names it and what is allowed.
        """
        check_bits("Scheme", bits)
        check_group_size("Scheme", group_size)
        check_zero_mode("Scheme", zero_mode, ZERO_MODES)
        channel = group_size == -1
        return cls(
            Side(
                num_bits=bits,
                strategy="channel" if channel else "group",
                group_size=None if channel else group_size,
                symmetric=zero_mode == "none",
            ),
            zero_mode=zero_mode,
        )

    @classmethod
    def w8a8(cls, activations: str = "dynamic") -> Scheme:
        """int8 weights with a scale for each output channel, and int8 activations.

        Args:
            activations: "dynamic" (a scale for each row, found on the way), "dynamic_azp" (and a
                zero point), "static" (one scale, from calibration), "static_azp" (and a zero
                point).

        Raises:
            ValueError: ``activations`` is none of the four.
        """
        if activations not in ACTIVATION_MODES:
            wrong_value(
                "Scheme",
                "activations",
                f"be one of {tuple(ACTIVATION_MODES)}",
                repr(activations),
            )
        return cls(Side(), ACTIVATION_MODES[activations])

    @classmethod
    def fp8(
        cls,
        activations: str | None = "dynamic",
        *,
        strategy: str = "channel",
        block: tuple[int, int] | None = None,
    ) -> Scheme:
        """float8_e4m3fn weights with float32 scales, and float8_e4m3fn activations or none.

        Args:
            activations: "dynamic" (a scale for each row, found on the way), "static" (one scale,
                from calibration), or None, which leaves them in their dtype.
            strategy: what shares a scale of the weight: "channel" (an output channel), "tensor"
                (all of it) or "block".
            block: rows and columns of such a block; (128, 128) is what DeepSeek's files have. The
                last rows and columns may be fewer. "dynamic" is a scale for each row and as many
                columns there: kernels multiply such activations on CPUs and, where blocks are
                128 x 128, on GPUs of compute capability 9.0; other products on GPUs leave them in
                their dtype.

        Raises:
            ValueError: ``activations`` or ``strategy`` is none of these, or ``block`` is not given
                exactly where the strategy is "block", as two positive numbers.
        """
        if activations not in ("dynamic", "static", None):
            expected = "be 'dynamic', 'static' or None"
            wrong_value("Scheme", "activations", expected, repr(activations))
        strategies = ("channel", "tensor", "block")
        if strategy not in strategies:
            wrong_value("Scheme", "strategy", f"be one of {strategies}", repr(strategy))
        fits = block is None or (len(block) == 2 and all(size > 0 for size in block))
        if not fits or (block is None) == (strategy == "block"):
            wrong_value(
                "Scheme",
                "block",
                "be two positive numbers for the strategy 'block', and None for others",
                f"{block!r} for {strategy!r}",
            )
        side = Side("float", strategy=strategy, block=block)
        return cls(side, _float8_activations(activations, side))

    @classmethod
    def w8a8_block(cls, block_size: int = 128, symmetric: bool = True) -> Scheme:
        """int8 weights with a scale for each output channel and block of K, and int8 activations
        with a scale and a zero point for each row and block, found on the way.

        Args:
            block_size: elements of K that share a scale: -1 (all of K) or a multiple of 16. The
                last block may be ragged.
            symmetric: w = q * scale; else w = q * scale + offset (zero_mode "add").

        Raises:
            ValueError: ``block_size`` is out of range.
        """
        scheme = cls.weight_only(8, block_size, "none" if symmetric else "add")
        size = scheme.weights.group_size
        side = Side(strategy="group", group_size=size, symmetric=False, dynamic=True)
        return replace(scheme, input_activations=side)

    @classmethod
    def of_file(
        cls,
        weight: str = "int4",
        group_size: int = -1,
        zero_mode: str = "none",
        *,
        strategy: str = "",
        block: tuple[int, int] | None = None,
        input_activations: Side | None = None,
        scale_dtype: str | None = None,
    ) -> Scheme:
        """How a checkpoint stores a weight. Unlike the other constructors it takes what no kernel
        does, such as groups of 24: a kind of weight refuses that when it is to store it.

        Args:
            weight: "int4", "int8" or another of ``ops.problem.WEIGHTS``, or "e4m3"
                (float8_e4m3fn).
            group_size: elements of K that share a scale, -1 for all; not looked at with ``block``.
            zero_mode: see the class.
            strategy: "tensor" where one scale serves the whole weight, "tensor_group" where it has
                one beside those of groups; "" is "channel" or "group".
            block: (rows, columns) that share a scale, of float8 weights.
            input_activations: how activations are rounded; None leaves them in their dtype.
            scale_dtype: as of :class:`Side`.
        """
        rows_columns = None if block is None else tuple(block)
        return _of_file(
            weight, group_size, zero_mode, strategy, rows_columns, input_activations,
            scale_dtype,
        )  # fmt: skip

    @classmethod
    def float4(cls, scale_dtype: str, group_size: int) -> Scheme:
        """Floats of 4 bits (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives) with scales of a byte,
        activations in 16 or 32 bits.

        Args:
            scale_dtype: "e8m0", powers of two (MXFP4); or "e4m3" with a float32 scale for the whole
                weight (NVFP4).
            group_size: elements of K that share a scale: -1 (all of K) or a multiple of 16.

        Raises:
            ValueError: one is out of range.
        """
        if scale_dtype not in FLOAT4_STRATEGIES:
            names = tuple(FLOAT4_STRATEGIES)
            wrong_value("Scheme", "scale_dtype", f"be one of {names}", repr(scale_dtype))
        check_group_size("Scheme", group_size)
        strategy = FLOAT4_STRATEGIES[scale_dtype]
        if strategy == "group" and group_size == -1:
            strategy = "channel"
        return cls.of_file("e2m1", group_size, strategy=strategy, scale_dtype=scale_dtype)

    def for_convolution(self, block_size: int) -> Scheme:
        """The weight-only scheme of a filter: offsets in place of zero points.

        Args:
            block_size: input channels that share a scale, -1 or a multiple of 16.
        """
        side = replace(
            self.weights,
            strategy="channel" if block_size == -1 else "group",
            group_size=None if block_size == -1 else block_size,
        )
        return Scheme(side, zero_mode="add" if self.has_zeros else "none")

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it; :meth:`from_dict` is the inverse."""
        side = self.input_activations
        return {
            "weights": self.weights.as_dict(),
            "input_activations": None if side is None else side.as_dict(),
            "zero_mode": self.zero_mode,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Scheme:
        """A scheme from what :meth:`as_dict` returns, as JSON keeps it.

        Args:
            fields: by name.

        Raises:
            ValueError: a field is missing, unknown or of another type.
        """
        try:
            sides = {
                name: Side(**fields[name])
                for name in ("weights", "input_activations")
                if fields.get(name) is not None
            }
            return cls(**{**fields, **sides})
        except (TypeError, AttributeError) as error:
            raise ArgumentValueError(f"Scheme: {dict(fields)} is no scheme ({error})") from error

    def grouped(self, group_size: int, zero_mode: str | None = None) -> Scheme:
        """This scheme of packed codes with other groups.

        Args:
            group_size: elements of K that share a scale, -1 for all of them.
            zero_mode: of the result; the same when None.

        Raises:
            ValueError: as :meth:`weight_only`.
        """
        if self.is_weight_only:
            return Scheme.weight_only(self.bits, group_size, zero_mode or self.zero_mode)
        check_group_size("Scheme", group_size)
        side = self.weights
        if side.scale_dtype is not None:
            return Scheme.float4(side.scale_dtype, group_size)
        return Scheme.of_file(self.weight_type, group_size)

    def with_group_size(self, columns: int, k: int | None = None) -> Scheme:
        """This scheme with other groups, or blocks, along K; of what shares its scales otherwise,
        the same scheme.

        Args:
            columns: of the weight that share a scale, -1 for all of them.
            k: columns of the weight: one ragged group of more is all of them.

        Raises:
            ValueError: no kernel takes such groups.
        """
        side = self.weights
        if side.block is not None:
            return replace(self, weights=replace(side, block=(side.block[0], columns)))
        if k is not None and columns > k:
            columns = -1
        if columns == self.group_size or side.strategy not in (
            "channel",
            "group",
            "tensor_group",
        ):
            return self
        if self.is_weight_only or self.is_packed:
            return self.grouped(columns)
        if is_by_block(self):
            return Scheme.w8a8_block(columns, not self.has_zeros)
        if side.strategy == "group":  # float8 with a scale for each group of a row
            return replace(self, weights=replace(side, group_size=columns))
        return self

    def coded_as(self, weight: str) -> Scheme:
        """This scheme with codes of another weight type.

        Args:
            weight: a name in ``ops.problem.WEIGHTS``.
        """
        return replace(
            self,
            weights=replace(self.weights, type=_kind_of(weight), num_bits=WEIGHTS[weight].bits),
        )

    @property
    def weight_type(self) -> str:
        """The name of what a stored code is: "int4", "int8" or another of ``ops.problem.WEIGHTS``,
        "e4m3" of float8_e4m3fn; for what no kind of weight stores, its type and bits."""
        weights = self.weights
        if weights.type in WEIGHTS:  # a book
            return weights.type
        if weights.type == "int":
            return integer_weight(weights.num_bits)
        if (weights.type, weights.num_bits) == ("float", 8):
            return FLOAT8
        packed = float_weight(weights.num_bits) if weights.type == "float" else None
        return packed or f"{weights.type}{weights.num_bits}"

    @property
    def bits(self) -> int:
        """Bits of a stored weight."""
        return self.weights.num_bits

    @property
    def group_size(self) -> int:
        """Elements of K that share a scale; -1 is all of them."""
        return -1 if self.weights.group_size is None else self.weights.group_size

    @property
    def has_zeros(self) -> bool:
        """Whether weights have zero points, of whichever zero mode."""
        return self.zero_mode != "none"

    @property
    def is_weight_only(self) -> bool:
        """As :meth:`weight_only` makes them: integers with scales by channel or group."""
        return (
            self.input_activations is None
            and self.weights.type == "int"
            and self.weights.scale_dtype is None
            and self.weights.strategy in ("channel", "group")
        )

    @property
    def is_packed(self) -> bool:
        """Whether weights are packed codes of ``ops.problem.WEIGHTS`` with scales by channel or
        group, and activations stay in their dtype."""
        known = WEIGHTS.get(self.weight_type)
        if known is None or (self.has_zeros and not known.is_integer):
            return False
        side = self.weights
        shared = side.strategy in ("channel", "group")
        if side.scale_dtype is not None:
            strategy = FLOAT4_STRATEGIES.get(side.scale_dtype) if known.bits == 4 else None
            shared = (strategy == "group" and shared) or strategy == side.strategy == "tensor_group"
            shared = shared and not known.is_integer and not known.is_book
        return shared and self.input_activations is None

    @property
    def op_zero_mode(self) -> str:
        """The zero mode as the ops take it: they read "none" off ``zeros`` being None."""
        return self.zero_mode if self.has_zeros else "sub"

    @functools.cached_property
    def gemm_options(self) -> dict[str, Any]:
        """The keyword arguments by which the GEMM of packed codes knows a weight: that of
        ``fpA_intB_gemm`` for weight-only schemes, of ``fpA_fpB_gemm`` for other codes."""
        known = WEIGHTS.get(self.weight_type)
        if known is not None and not known.is_integer:
            return {"weight": self.weight_type, "group_size": self.group_size}
        zero_mode = self.op_zero_mode
        return integer_options(self.weight_type, group_size=self.group_size, zero_mode=zero_mode)

    @functools.cached_property
    def conv_options(self) -> dict[str, Any]:
        """The keyword arguments of ``qconv2d`` that its weight decides."""
        return integer_options(self.weight_type, block_size=self.group_size)

    @property
    def plan_options(self) -> dict[str, Any]:
        """The keyword arguments of ``mixed_gemm.plan``, which has a word for no zero points."""
        if "weight" in self.gemm_options:
            return self.gemm_options
        return {**self.gemm_options, "zero_mode": self.zero_mode}

    def work_out_options(self) -> None:
        """Have the options of ops ready, of weights that ops know by them. A cached property that
        is not cached yet would break the graph of torch.compile."""
        known = WEIGHTS.get(self.weight_type)
        if known is not None:
            _ = self.gemm_options, known.is_integer and self.conv_options

    @property
    def activations(self) -> str | None:
        """ "dynamic", "dynamic_azp", "static" or "static_azp"; None where activations stay as they
        are."""
        side = self.input_activations
        if side is not None and side.type == "float":
            return "dynamic" if side.dynamic else "static"
        if is_by_block(self):
            return "dynamic"
        return next((name for name, mode in ACTIVATION_MODES.items() if side == mode), None)

    def __str__(self) -> str:
        weights = self.weights
        size = weights.group_size
        group = f"per {weights.strategy}" if size is None else f"group {size}"
        if weights.block is not None:
            group = "blocks of {} x {}".format(*weights.block)
        if weights.scale_dtype is not None:
            group += f" with {weights.scale_dtype} scales"
        zero = "symmetric" if not self.has_zeros else f"zeros {self.zero_mode!r}"
        bits = "" if weights.type in WEIGHTS else weights.num_bits
        text = f"{weights.type}{bits}, {group}, {zero}"
        side = self.input_activations
        if side is None:
            return text
        return (
            f"{text}; {side.type}{side.num_bits} activations, {self.activations or side.strategy}"
        )


# How activations become int8: a scale for each token or one from calibration, with a zero point
# where they are not centred at 0.
ACTIVATION_MODES = {
    "dynamic": Side(strategy="token", dynamic=True),
    "dynamic_azp": Side(strategy="token", dynamic=True, symmetric=False),
    "static": Side(strategy="tensor"),
    "static_azp": Side(strategy="tensor", symmetric=False),
}


def _float8_activations(activations: str | None, weights: Side) -> Side | None:
    """How they become float8, which has no zero points: as files ask for it beside such weights."""
    if activations is None:
        return None
    if activations == "static":
        return Side("float", strategy="tensor")
    if weights.block is not None:
        return Side("float", strategy="group", group_size=weights.block[1], dynamic=True)
    return Side("float", strategy="token", dynamic=True)


def is_by_block(scheme: Scheme) -> bool:
    """Whether a scheme is one of :meth:`Scheme.w8a8_block`."""
    side = scheme.input_activations
    if side is None or (side.type, side.strategy) != ("int", "group"):
        return False
    size = scheme.group_size
    if size != -1 and (size < 1 or size % GROUP_STEP):
        return False
    return scheme == Scheme.w8a8_block(size, not scheme.has_zeros)


# Layers of a model have few schemes, and each of these works its options out once.
@functools.lru_cache(maxsize=1024, typed=True)
def _of_file(
    weight: str,
    group_size: int,
    zero_mode: str,
    strategy: str,
    block: tuple[int, int] | None,
    input_activations: Side | None,
    scale_dtype: str | None,
) -> Scheme:
    """``Scheme.of_file``, whose arguments these are."""
    if block is not None:
        strategy = "block"
    elif not strategy:
        strategy = "channel" if group_size == -1 else "group"
    side = Side(
        type=_kind_of(weight),
        num_bits=8 if weight == FLOAT8 else WEIGHTS[weight].bits,
        strategy=strategy,
        group_size=None if group_size == -1 or block is not None else group_size,
        symmetric=zero_mode == "none",
        block=block,
        scale_dtype=scale_dtype,
    )
    return Scheme(side, input_activations, zero_mode)


# The schemes that a user may ask for by name.
SCHEMES = {
    "w4a16": Scheme.weight_only(4, 128),
    "w4a16_asym": Scheme.weight_only(4, 128, "sub"),
    "w8a16": Scheme.weight_only(8, -1),
    "w8a16_fp8": Scheme.fp8(None),
    "mxfp4": Scheme.float4("e8m0", 32),
    "nvfp4": Scheme.float4("e4m3", 16),
    "nf4": Scheme.of_file("nf4", 64),
    "fp4": Scheme.of_file("fp4", 64),
    "w8a8": Scheme.w8a8("dynamic"),
    "w8a8_block": Scheme.w8a8_block(),
    "fp8": Scheme.fp8("dynamic"),
    "fp8_block": Scheme.fp8("dynamic", strategy="block", block=(128, 128)),
}


def refined(
    where: str,
    scheme: str | Scheme,
    *,
    bits: int | None = None,
    group_size: int | None = None,
    symmetric: bool | None = None,
    zero_mode: str | None = None,
    activations: str | None = None,
) -> Scheme:
    """A scheme, by name or as it is, with what is not None changed.

    Raises:
        ValueError: there is no scheme of this name, or it has no such setting: ``bits`` and the
            like are of weight-only schemes, ``activations`` of those that round activations,
            ``group_size`` and ``symmetric`` of weight-only ones and of "w8a8_block"; packed codes
            that are no integers have ``group_size`` alone.
    """
    if isinstance(scheme, str):
        if scheme not in SCHEMES:
            wrong_value(where, "scheme", f"be one of {', '.join(SCHEMES)}", repr(scheme))
        scheme = SCHEMES[scheme]
    if not isinstance(scheme, Scheme):
        wrong_type(where, "scheme", "be a name or a mixed_gemm.Scheme", repr(scheme))
    asked = {"bits": bits, "group_size": group_size, "symmetric": symmetric, "zero_mode": zero_mode}
    asked = {name: value for name, value in asked.items() if value is not None}
    if is_by_block(scheme):
        return _other_blocks(where, scheme, asked, activations)
    rounds_activations = scheme.input_activations is not None
    is_packed_float = scheme.is_packed and not scheme.is_weight_only
    if is_packed_float and group_size is not None and len(asked) == 1 and activations is None:
        return scheme.grouped(group_size)
    if asked and not scheme.is_weight_only:
        name, value = next(iter(asked.items()))
        wrong_value(where, name, f"not be given with the scheme {scheme}", repr(value))
    if scheme.weights.type == "float" and activations is not None and not is_packed_float:
        Scheme.fp8(activations)  # refuses what is no name
        side = _float8_activations(activations, scheme.weights)
        return replace(scheme, input_activations=side)
    if rounds_activations:
        return scheme if activations is None else Scheme.w8a8(activations)
    if activations is not None:
        wrong_value(
            where,
            "activations",
            f"not be given with the weight-only scheme {scheme}",
            repr(activations),
            hint="scheme='w8a8'",
        )
    if not asked:
        return scheme
    if symmetric is None:
        symmetric = not scheme.has_zeros if zero_mode is None else zero_mode == "none"
    mode = "none" if symmetric else zero_mode or (scheme.zero_mode if scheme.has_zeros else "sub")
    return Scheme.weight_only(
        scheme.bits if bits is None else bits,
        scheme.group_size if group_size is None else group_size,
        mode,
    )


def _other_blocks(
    where: str, scheme: Scheme, asked: Mapping[str, Any], activations: str | None
) -> Scheme:
    """:func:`refined` of a scheme by block."""
    given = {**asked, **({} if activations in (None, "dynamic") else {"activations": activations})}
    for name in given.keys() - {"group_size", "symmetric"}:
        wrong_value(where, name, f"not be given with the scheme {scheme}", repr(given[name]))
    symmetric = asked.get("symmetric", not scheme.has_zeros)
    return Scheme.w8a8_block(asked.get("group_size", scheme.group_size), symmetric)
