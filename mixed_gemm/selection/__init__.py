"""The choice of a kernel: the answer of the library, measured choices, and measuring them."""

from .benchmark import BenchResult, bench
from .planning import Candidate, Plan, WhyNot, plan, why_not
from .tuning import TuneResult, tune

__all__ = [
    "BenchResult",
    "Candidate",
    "Plan",
    "TuneResult",
    "WhyNot",
    "bench",
    "plan",
    "tune",
    "why_not",
]
