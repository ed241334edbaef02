"""``python -m mixed_gemm.env`` prints the report of ``mixed_gemm.env()``. Paste it into an issue.

Not imported by the package, so that ``mixed_gemm.env`` is the function and -m finds a fresh module.
"""

from ._environment import env

if __name__ == "__main__":
    print(env())
