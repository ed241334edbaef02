"""Why an op lacks something: sentences that several records share. "{name}" stands for
the argument.
"""

ON_GPU = "for tests and benchmarks, on CUDA tensors: nothing traces it"
IN_PARALLEL = "of mixed_gemm.parallel alone, whose own op is what torch traces"
NO_FLOATS = "no floating-point operands"
NO_PRODUCT = "no product"
DETACH = "Hint: {name}.detach()"
WEIGHTS = f"quantized weights do not train. {DETACH}"
ADAPTER = f"{WEIGHTS}, and train an adapter (LoRA) or the bias instead"
SCALES = f"scales do not train. {DETACH}"
INTEGERS = f"integers do not train. {DETACH}"
ROUNDING = (
    f"rounding to int8 has no gradient. {DETACH}, or mixed_gemm.Linear(scheme='w8a8'), which "
    "trains straight through it"
)
ROUNDING_FP8 = (
    f"rounding to float8 has no gradient. {DETACH}, or mixed_gemm.Linear(scheme='fp8'), which "
    "trains straight through it"
)
FORCED = (
    "a forced configuration is for tests and benchmarks, and has no gradient. "
    f"{DETACH}, or the op without _config"
)
