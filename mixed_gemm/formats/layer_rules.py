"""The rules of a configuration for single layers, ``dynamic`` of GPTQModel and ``extra_config`` of
AutoRound, and for all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .layer import Config, int_option
from .name_patterns import finds_pattern, matches_pattern, pattern_problem

_DENSE = "-:"  # begins a pattern of GPTQModel for layers that are not quantized
_QUANTIZED = "+:"  # and, at will, one for those that are


@dataclass(frozen=True)
class _Rule:
    """The rule for the layers of one name, or pattern of names. None is not said."""

    pattern: str
    bits: int | None
    group_size: int | None


class LayerRules:
    """Bits and group sizes as a configuration states them.

    Args:
        config: the quantization_config. where: the file that it stands in.

    Attributes:
        bits, group_size: of layers that no rule is for; None where nothing is said.
        has_rules: whether some layers may be otherwise: what is stated and does not fit the tensors
            of one is then read off its shapes.

    Raises:
        CheckpointError: an option is no integer. ValueError: a group size is neither -1 nor
            positive, or a rule has a pattern that is no regular expression or takes too long.
    """

    def __init__(self, config: Config, where: Path) -> None:
        self.bits = int_option(config, where, "bits", "w_bit")
        self.group_size = _size(config, where)
        self.has_rules = bool(config.get("dynamic") or config.get("extra_config"))
        self._dynamic = list(self._read(config, "dynamic", where))
        extra = list(self._read(config, "extra_config", where))
        # Files of many experts name many layers, which are looked up; parts of names are searched.
        self._named = {rule.pattern: rule for rule in extra if _is_name(rule.pattern)}
        self._extra = [rule for rule in extra if _is_part(rule.pattern)]

    def _read(self, config: Config, key: str, where: Path) -> Iterator[_Rule]:
        rules = config.get(key)
        for pattern, said in rules.items() if isinstance(rules, Mapping) else ():
            if not isinstance(said, Mapping) or (key == "dynamic" and pattern.startswith(_DENSE)):
                continue
            bits, size = int_option(said, where, "bits"), _size(said, where)
            pattern = pattern.removeprefix(_QUANTIZED) if key == "dynamic" else pattern
            problem = pattern_problem(pattern) if key == "dynamic" or not _is_name(pattern) else ""
            if problem and (bits is not None or size is not None):
                raise ValueError(f"the pattern {pattern!r} of {key} {problem}")
            if not problem:
                yield _Rule(pattern, bits, size)

    def _of(self, name: str) -> Iterator[_Rule]:
        """The rules for a layer, the one that decides first."""
        yield from (rule for rule in self._dynamic if matches_pattern(rule.pattern, name))
        if name in self._named:
            yield self._named[name]
        yield from (rule for rule in self._extra if finds_pattern(rule.pattern, name))

    def bits_of(self, name: str) -> tuple[int, ...]:
        """The bits that are stated for a layer, the most direct first."""
        return self._stated(next((rule.bits for rule in self._of(name)), None), self.bits)

    def group_sizes_of(self, name: str) -> tuple[int, ...]:
        """As :meth:`bits_of`."""
        return self._stated(
            next((rule.group_size for rule in self._of(name)), None), self.group_size
        )

    @staticmethod
    def _stated(*values: int | None) -> tuple[int, ...]:
        return tuple(dict.fromkeys(value for value in values if value is not None))


def _size(config: Config, where: Path) -> int | None:
    size = int_option(config, where, "group_size", "q_group_size")
    if size is not None and size != -1 and size < 1:
        raise ValueError(f"group_size must be -1 or positive, got {size}")
    return size


def _is_name(pattern: str) -> bool:
    """Whether it may be the name of a layer: AutoRound takes those as they are."""
    return all(part.isidentifier() or part.isdigit() for part in pattern.split("."))


def _is_part(pattern: str) -> bool:
    """Whether it may fit layers that have another name."""
    return not _is_name(pattern) or pattern.count(".") < 2
