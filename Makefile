# Every target sets up what it needs in .venv by itself: a machine with Python and a C++ compiler is
# enough (tools/setup_env.sh). Variables: PYTHON, VENV, BUILD, JOBS, PYTEST_ARGS ("-n0 -x": one process,
# the first failure), and MIXED_GEMM_CUDA as in setup.py.
#
#   make demo      quantize a real sentence model and search with it; with the wheel of dist/ or of
#                  this folder where there is one (WHEEL=FILE names another, WHEEL= builds this tree)
#   make test      C++ and Python tests that need no GPU, the ABI, the machine code, the wheel
#   make test-vllm the plug-in inside vLLM, and docs/serving.md, in an environment of its own
#                  (.venv-vllm, 2.6 GB, kept; VENV_VLLM names another)
#   make lint      ruff, mypy --strict, clang-format, codespell
#   make matrix    the built library under the oldest and the newest torch and Python, and tests
#                  with the newest transformers, peft, pytest and hypothesis
#   make gate      what CI demands beyond them: sanitizers, mutants, fuzzing (tools/gate.py);
#                  GATE="asan fuzz" for some of its steps
#   make wheel     dist/: the sdist, and one wheel of it for x86-64, every Python, every torch and its
#                  CPUs and GPUs (tools/make_wheel.py); needs nvcc
#   make gpu-test  the tests that need a CUDA device
#   make gpu-test-vllm  vLLM's engine on a GPU with our kernels beside its own: log-probabilities
#                  against float32; SERVING_ARGS="--rows AWQ --modes eager" for some. CARRIED_VLLM
#                  names the folder of `tools/carry_vllm.py prepare`, else PYTHON has vLLM
#   make bench     python -m benchmarks gemm; BENCH_ARGS="scaled_mm --out FILE" for another op
#   make format    rewrite the sources as `make lint` wants them
#
# On a GPU machine without network, with a build carried there, nothing is installed or compiled:
#   make gpu-test PYTHON=python3 MIXED_GEMM_LIBRARY=/path/libmixed_gemm.so \
#                 MIXED_GEMM_GPU_TESTS=/path/gpu        (build/gpu, optional)
PYTHON ?= python3
VENV ?= .venv
VENV_VLLM ?= .venv-vllm
BUILD ?= build
JOBS ?= $(shell nproc)
DEMO ?= examples/semantic_search.py
WHEEL ?= $(lastword $(sort $(wildcard dist/mixed_gemm-*.whl mixed_gemm-*.whl)))
BENCH_ARGS ?= gemm
MIXED_GEMM_CUDA ?= AUTO
SERVING_OUT ?= $(BUILD)/vllm_engine.json
SERVING_VLLM ?= $(BUILD)/vllm
export PYTHON VENV VENV_VLLM BUILD JOBS
# Tools of a Python whose packages .venv shares (setup_env.sh) lie beside that Python. No slash at its
# end: pyenv would not know its own folder, and run its shims for ever.
export PATH := $(abspath $(VENV))/bin:$(PATH):$(patsubst %/,%,$(dir $(shell command -v $(PYTHON))))

PY := $(abspath $(VENV))/bin/python
BUILT_LIBRARY := $(abspath $(BUILD))/libmixed_gemm.so
IN_TREE := PYTHONPATH=$(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH)) MIXED_GEMM_CORE_MODULE_DIR=$(abspath $(BUILD))/python
CPP_FILES = $(shell find csrc tests -name '*.h' -o -name '*.cuh' -o -name '*.cu' -o -name '*.cpp')
ifdef MIXED_GEMM_LIBRARY
GPU_READY :=
GPU_RUN := $(IN_TREE) MIXED_GEMM_LIBRARY=$(abspath $(MIXED_GEMM_LIBRARY)) $(PYTHON)
else
GPU_READY := build
GPU_RUN := $(IN_TREE) MIXED_GEMM_LIBRARY=$(BUILT_LIBRARY) $(PY)
MIXED_GEMM_GPU_TESTS := $(BUILD)/gpu
endif
HAS_GPU := import sys, torch; torch.cuda.is_available() or sys.exit("torch sees no CUDA device")

.PHONY: demo test test-vllm lint matrix gate wheel gpu-test gpu-test-vllm bench format clean build

demo:
	tools/setup_env.sh demo
ifneq ($(strip $(WHEEL)),)
	@echo "demo: installing $(WHEEL) (make demo WHEEL= builds this tree instead)"
	$(PY) -m pip install --quiet --no-index --no-deps --force-reinstall $(WHEEL)
else
	MIXED_GEMM_CUDA=$$(nvidia-smi -L >/dev/null 2>&1 && echo $(MIXED_GEMM_CUDA) || echo OFF) \
	  $(PY) -m pip install --quiet --no-build-isolation --no-deps .
endif
	$(PY) $(DEMO) $(DEMO_ARGS)

# Where there is no GPU to run it on, machine code of two generations is enough for the tests: every
# family is in it. `make wheel` compiles and checks all of them.
TEST_ARCHS := $(or $(TORCH_CUDA_ARCH_LIST),$(shell nvidia-smi -L >/dev/null 2>&1 || echo "8.0;9.0"))
build:
	tools/setup_env.sh test
	cmake -S . -B $(BUILD) -G Ninja -DMIXED_GEMM_BUILD_TESTS=ON -DPython_EXECUTABLE=$(PY) \
	  -DMIXED_GEMM_CUDA=$(MIXED_GEMM_CUDA) "-DMIXED_GEMM_CUDA_ARCHS=$(TEST_ARCHS)"
	cmake --build $(BUILD) -j $(JOBS)

test: build
	ctest --test-dir $(BUILD) -L host -j $(JOBS) --output-on-failure
	$(IN_TREE) OMP_WAIT_POLICY=PASSIVE MIXED_GEMM_LIBRARY=$(BUILT_LIBRARY) \
	  $(PY) -m pytest tests/python -n $(JOBS) $(PYTEST_ARGS)
	$(PY) tools/check_wheel.py

# The newest vLLM is read from the index where that answers.
test-vllm: build
	MIXED_GEMM_LIBRARY=$(BUILT_LIBRARY) tools/setup_vllm.sh
	OMP_WAIT_POLICY=PASSIVE MIXED_GEMM_LIBRARY=$(BUILT_LIBRARY) \
	  $(abspath $(VENV_VLLM))/bin/python -m pytest tests/vllm \
	  -o tmp_path_retention_policy=failed $(PYTEST_ARGS)

lint:
	tools/setup_env.sh lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	clang-format --dry-run -Werror $(CPP_FILES)
	$(PY) -m codespell_lib

format:
	tools/setup_env.sh lint
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .
	clang-format -i $(CPP_FILES)

matrix: build
	$(PY) tools/matrix.py $(MATRIX)

gate: build
	tools/setup_env.sh test fuzz
	$(PY) tools/gate.py $(GATE)

wheel:
	tools/setup_env.sh test wheel
	MAX_JOBS=$(JOBS) $(PY) tools/make_wheel.py

gpu-test: $(GPU_READY)
	$(GPU_RUN) -c '$(HAS_GPU)'
	for test in $(if $(MIXED_GEMM_GPU_TESTS),$(MIXED_GEMM_GPU_TESTS)/gpu_*); do "$$test" || exit 1; done
	$(GPU_RUN) -m pytest tests/gpu -m gpu $(PYTEST_ARGS)

# vLLM pins its torch: its packages come from a folder, or from the Python that has them.
gpu-test-vllm: $(GPU_READY)
	$(GPU_RUN) -c '$(HAS_GPU)'
ifneq ($(CARRIED_VLLM),)
	$(PYTHON) tools/carry_vllm.py unpack $(CARRIED_VLLM) $(SERVING_VLLM)
endif
	PYTHONPATH=$(CURDIR):$(abspath $(SERVING_VLLM))$(if $(PYTHONPATH),:$(PYTHONPATH)) \
	  MIXED_GEMM_LIBRARY=$(abspath $(or $(MIXED_GEMM_LIBRARY),$(BUILT_LIBRARY))) \
	  $(PYTHON) -m benchmarks.serving.gpu_check --out $(SERVING_OUT) $(SERVING_ARGS)

bench: $(GPU_READY)
	$(GPU_RUN) -c '$(HAS_GPU)'
	$(GPU_RUN) -m benchmarks $(BENCH_ARGS)

clean:
	rm -rf $(BUILD) *.egg-info mixed_gemm/libmixed_gemm.so
