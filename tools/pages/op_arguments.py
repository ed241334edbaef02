"""The arguments and results of every op, as its contract says them; ops.py puts them into its page.

The words come from the rules that refuse a call, or stand beside the function that does.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from .table import table

FORCED = "config"  # the argument that forces a kernel by name


def sections() -> str:
    """One section for each op. Ops with the arguments of another are told with it."""
    contracts = json.loads(torch.ops.mixed_gemm._contracts())
    first: dict[str, dict[str, Any]] = {}
    beside: dict[str, list[str]] = {}
    for contract in contracts:
        rows = _rows(contract)
        plain = str([row for row in rows if row[0] != f"`{FORCED}`"])
        if plain in first:
            name = str(first[plain]["name"])
            is_forced = any(row[0] == f"`{FORCED}`" for row in rows)
            more = f" and `{FORCED}`, a kernel by its name" if is_forced else ""
            if contract["results"] != first[plain]["results"]:
                more += f"; returns {_results(contract)}"
            beside.setdefault(name, []).append(f"`{contract['name']}` takes the same{more}.")
        else:
            first[plain] = contract
    return "\n\n".join(_section(x, beside.get(str(x["name"]), [])) for x in first.values())


def _section(contract: dict[str, Any], beside: list[str]) -> str:
    header = ["argument", "type", "dtype", "shape or value"]
    returned = f"Returns {_results(contract)}."
    parts = [f"### {contract['name']}", table(header, _rows(contract)), returned]
    return "\n\n".join([*parts, *beside])


def _rows(contract: dict[str, Any]) -> list[list[str]]:
    rows = []
    # An argument that is a size itself has the symbol of that size.
    symbols = {x: symbol for symbol, (x, _, factor) in contract["symbols"].items() if factor == 0}
    for (name, kind), (default, by_name, (dtype, shape)) in zip(
        contract["arguments"], contract["told"], strict=True
    ):
        text = f"`{kind} = {default}`" if default else f"`{kind}`"
        is_any = kind.startswith("Tensor") and not shape
        told = shape or symbols.get(name, "any" if is_any else "")
        rows.append([f"`{name}`", f"{text}, by name" if by_name else text, dtype, told])
    return rows


def _results(contract: dict[str, Any]) -> str:
    return "; ".join(_result(x) for x in contract["results"])


def _result(result: dict[str, Any]) -> str:
    """Its name where there are several, its shape, its dtype, and where there is none."""
    if result["form"] == "text":
        return "the names of its configurations, a line each"
    name = f"`{result['name']}` " if result["name"] else ""
    if result["form"] == "made":
        return f"{name}{result['words']}"
    dtype = result["dtype"] or (
        f"`{result['dtype_of']}`" if result["dtype_of"] else f"the dtype of `{result['like']}`"
    )
    same = f"(the shape of `{result['like']}`)"
    told = f"{name}{same if result['form'] == 'like' else result['words']}"
    unless = f", None with `{result['unless']}`" if result["unless"] else ""
    return f"{told} in {dtype}{unless}"
