"""The record of one op: all that is particular to it, beside its public function in the file of its
family. What torch asks of an op is written once for all of them, in a file for each question, and
``registry`` hands the records to those.
"""

from __future__ import annotations

from dataclasses import dataclass

from .autograd import Derivatives
from .fake import Fake


@dataclass(frozen=True)
class Op:
    """One op.

    name: as in csrc/ops/schema.cpp. With an underscore in front it is for tests and benchmarks.
    doc: what it computes, in a line.
    fake: its result without numbers, with all refusals (``fake.Fake``); or why there is none.
    derivatives: what trains, how, and why the rest does not.
    """

    name: str
    doc: str
    fake: Fake | str
    derivatives: Derivatives
