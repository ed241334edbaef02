"""Regular expressions that come with a file. Python's backtrack, and some take longer than anybody
waits; what is matched here are the names of modules, for which simple patterns do.
"""

from __future__ import annotations

import functools
import re

_MAX_LENGTH = 500  # characters
_MAX_WAYS = 10**9  # to fit a name of 100 characters: what backtracking may try at worst
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*(?:,\d*)?\}|\(\?P?[:<]?|.", re.DOTALL)


def _why_slow(pattern: str) -> str:
    """Why it may be slow: a repeated group that can match in several ways, or too many choices."""
    several = [False]  # for each open group: it repeats something, or has alternatives
    alternatives = [1]
    closed = False  # the group that was just closed is one of them
    ways = 1
    for token in _TOKEN.findall(pattern):
        repeats = token in ("*", "+") or (len(token) > 2 and token[0] == "{")
        if repeats and closed:
            return "repeats a group with repetitions or alternatives in it"
        if repeats or token == "?":
            several[-1] = True
            ways *= 100 if repeats else 2
        elif token == "|":
            several[-1] = True
            alternatives[-1] += 1
        elif token[0] == "(":
            several.append(False)
            alternatives.append(1)
        closed = False
        if token == ")" and len(several) > 1:
            closed = several.pop()
            several[-1] = several[-1] or closed
            ways *= alternatives.pop()
    ways *= alternatives[0]
    return "has too many repetitions and alternatives" if ways > _MAX_WAYS else ""


@functools.lru_cache(maxsize=4096)
def pattern_problem(pattern: str) -> str:
    """Why a pattern is not used; empty for one that is."""
    if len(pattern) > _MAX_LENGTH:
        return f"has {len(pattern)} characters, at most {_MAX_LENGTH} are read"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression ({error})"
    return _why_slow(pattern)


def matches_pattern(pattern: str, name: str) -> bool:
    """Whether a pattern without a :func:`pattern_problem` fits the beginning of a name."""
    return re.match(pattern, name) is not None


def finds_pattern(pattern: str, name: str) -> bool:
    """Whether a pattern without a :func:`pattern_problem` fits any part of a name."""
    return re.search(pattern, name) is not None
