#!/usr/bin/env bash
# Runs a command with the linters of .venv, which it sets up where they are missing. For
# .pre-commit-config.yaml: its hooks and `make lint` have one list of versions, pyproject.toml's.
#
#   tools/lint_hook.sh COMMAND...
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup_env.sh lint
PATH=$(realpath "${VENV:-.venv}")/bin:$PATH exec "$@"
