"""Problems of qconv2d, as problems.conv makes them."""

from problems.conv import DTYPES, ConvCase, ConvProblem, make

__all__ = ["DTYPES", "ConvCase", "ConvProblem", "make"]
