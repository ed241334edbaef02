"""Problems of fpA_intB_gemm, as problems.gemm makes them."""

from problems.gemm import DTYPES, GROUP_SIZES, ZERO_MODES, Case, Problem, make

__all__ = ["DTYPES", "GROUP_SIZES", "ZERO_MODES", "Case", "Problem", "make"]
