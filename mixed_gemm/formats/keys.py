"""A quantization_config held to ``key_table.TABLE``: what it asks for is read, told or refused, and
a key that nobody here knows is warned of by its name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import CheckpointError, CheckpointWarning
from .key_rows import Row, Use, shown
from .key_table import TABLE
from .layer import Config

_DEEPEST = 16  # objects in objects; what is read here has 6


@dataclass
class Answer:
    """The wishes of a configuration that are not met.

    refusals: why the file is not read, a text each. notes: what is not rounded here, in words.
    lost: those notes whose keys are not saved again. unknown: keys without a row.
    """

    refusals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def look_up(config: Config, section: str) -> Answer:
    """Every key of a configuration, in the objects inside of it too.

    Args:
        config: the quantization_config. section: of the table: "gptq", "compressed-tensors", ...
    """
    answer = Answer()
    _walk(config, section, "", answer, _DEEPEST)
    return answer


def _walk(config: Mapping[str, Any], section: str, prefix: str, answer: Answer, left: int) -> None:
    rows = TABLE[section]
    for key, value in config.items():
        path, row = f"{prefix}{key}", rows.get(key)
        if row is None:
            answer.unknown.append(path)
            continue
        if value in (None, ""):
            continue
        if not row.fine.test(value):
            if row.use is Use.TOLD:
                _tell(path, value, row, answer)
            else:
                answer.refusals.append(_refusal(path, value, row))
                continue
        for name, inner in _objects(value, row.each) if row.inside and left else ():
            _walk(inner, row.inside, f"{path}{name}.", answer, left - 1)


def _tell(path: str, value: Any, row: Row, answer: Answer) -> None:
    """Once for each reason: rules for single layers may repeat it many times."""
    start = row.why.partition("{")[0]
    if not any(note.startswith(start) for note in answer.notes):
        answer.notes.append(row.why.format(path=path, value=shown(value)))
        is_kept = row.kept is not None and row.kept.test(value)
        answer.lost += [] if is_kept else answer.notes[-1:]


def _refusal(path: str, value: Any, row: Row) -> str:
    if row.use is Use.REFUSED:
        return f"{path} is {shown(value)}, which is not read: {row.why}"
    return f"{path} must be {row.fine.words}, got {shown(value)}: {row.why}"


def _objects(value: Any, each: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (the end of its path, object) of what a key holds: one, several by name, or a list."""
    if isinstance(value, Mapping):
        named = [(f".{name}", inner) for name, inner in value.items()] if each else [("", value)]
    else:
        named = [(f".{i}", x) for i, x in enumerate(value)] if isinstance(value, list) else []
    return ((name, inner) for name, inner in named if isinstance(inner, Mapping))


def check_keys(config: Config, section: str, where: Path) -> Answer:
    """Tell what the configuration asks for and is not done here; warn of unknown keys.

    Args:
        config, section: as of :func:`look_up`. where: the file that it stands in.

    Raises:
        CheckpointError: a key has a value with which the file is not read.
    """
    answer = look_up(config, section)
    if answer.refusals:
        others = len(answer.refusals) - 1
        more = f" (and {others} more keys are refused)" if others else ""
        raise CheckpointError(where, "", f"{answer.refusals[0]}{more}")
    if answer.unknown:
        some = ", ".join(x if x.isprintable() else ascii(x) for x in answer.unknown[:10])[:500]
        more = f" and {len(answer.unknown) - 10} more" if len(answer.unknown) > 10 else ""
        warnings.warn(
            f"{where}: the quantization_config has {some}{more}, which is not known here and not "
            "used",
            CheckpointWarning,
            stacklevel=2,
        )
    return answer
