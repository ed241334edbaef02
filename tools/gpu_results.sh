#!/bin/bash
# The runs of a GPU machine without network for the results of a commit, with a build carried there
# (MIXED_GEMM_LIBRARY and MIXED_GEMM_GPU_TESTS as for `make gpu-test`). On an H200:
#
#   tools/gpu_results.sh candidates OUT COMMIT    4 min: all candidates, for make_tuned_table.py
#   tools/gpu_results.sh benchmarks OUT COMMIT    3 min: what docs/speed.md tells
#   tools/gpu_results.sh tests OUT COMMIT         4 min: the GPU tests and their report
#   tools/gpu_results.sh fp8 OUT COMMIT           3 min: tests of float8 by wgmma, its times beside
#                                                 torch's (MIXED_GEMM_PEERS=mslk,deep_gemm: and
#                                                 those, where installed), sanitizers
#   tools/gpu_results.sh push OUT COMMIT          1 min: the sum over ranks on one GPU, and the layer
#                                                 object as vLLM drives it
#   tools/gpu_results.sh ranks OUT COMMIT         2 min and the first step, not measured, 2 H100s:
#                                                 sums to the bit, figures of docs/parallel.md
#                                                 (tools/write_parallel.py), layers over NCCL
#   tools/gpu_results.sh vllm OUT COMMIT [PART...] [-- OPTION...]
#                                                 9 min a part (check, step, load), one H100: vLLM's
#                                                 engine with our kernels beside its own, in
#                                                 OUT/vllm_engine.json. CARRIED_VLLM is the folder
#                                                 of tools/carry_vllm.py, else python3 has vLLM.
#                                                 BUDGET: seconds of a part; 75 is the exit status
#                                                 where they were too few, and BEFORE names the file
#                                                 that the next call goes on with
#   tools/gpu_results.sh reliability OUT COMMIT [PART...]
#                                                 12 min, or some of its parts: parts of the table
#                                                 of tools/reliability_report.py in OUT/reliability
#   tools/gpu_results.sh wheel OUT WHEEL          2 min: a wheel that was carried there installs beside
#                                                 the torch of python3, its first products on every
#                                                 GPU are right, and the GPU tests pass with it
#   tools/gpu_results.sh counters OUT POINTS      6 s a point of missed_points.py: ncu
#
# The parts of `reliability`, as long as they took or should take on an H100 with 16 cores; without
# PART all of them, in three lines of work beside each other, behind `push`, whose kernels wait for
# each other and want the GPU to themselves:
#
#   push         1 min    sums over ranks, with streams of the GPU for ranks
#   sweep        1 min    20,000 random problems of every op, with forced kernels
#   pairs        1 min    problems that differ in one thing, one after another
#   sizes        1 min    extents around 2^31
#   checked      30 s     as sweep; MIXED_GEMM_CHECKED names a build with MIXED_GEMM_CHECK_STAGES=ON
#   stress       2 min    repeats on streams and in graphs, threads, memory that runs out
#   mutants      3 min    mistakes; MIXED_GEMM_MUTATED names a build of what tools/mutants.py writes
#   sanitizers   7 min    compute-sanitizer; SANITIZERS="racecheck and skinny" is pytest's -k
#
# Files in OUT are named as in benchmarks/results, without the GPU's name; what was printed is in
# OUT/log.
set -euo pipefail
cd "$(dirname "$0")/.."
stage=$1 out=$2
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

# A failure is told, and the rest still runs; the exit status remembers.
failed=0
timed() {
  local name=$1 begun=$SECONDS
  shift
  "$@" >>"$out/log" 2>&1 || { failed=1 && echo "$name FAILED: $*"; }
  echo "$name: $((SECONDS - begun)) s, $(tail -n 1 "$out/log")"
}

case $stage in
  candidates)
    timed candidates python3 -m benchmarks gemm --suite full --candidates all --keep all \
      --budget-s 560 --commit "$3" --out "$out/candidates.json"
    xz "$out/candidates.json"
    ;;
  benchmarks)
    while read -r op file; do
      timed "$op" python3 -m benchmarks "$op" --commit "$3" --out "$out/$file.json" </dev/null
    done <<'OPS'
gemm gemm
scaled_mm scaled
block_quant_gemm block_quant
qconv2d conv
awq_gemm awq
OPS
    ;;
  tests)
    export MIXED_GEMM_COMMIT=$3 MIXED_GEMM_GPU_REPORT="$out/gpu_test.json"
    timed gpu-test make gpu-test PYTHON=python3 PYTEST_ARGS="-q -n 8 --dist worksteal"
    ;;
  fp8)
    export MIXED_GEMM_COMMIT=$3 MIXED_GEMM_GPU_REPORT="$out/fp8_test.json"
    gpu_tests="python3 -m pytest -p no:cacheprovider -m gpu --tb=short -q"
    timed fp8-smoke timeout -k 5 60 $gpu_tests tests/gpu/test_gpu_fp8_wgmma.py \
      -k "all_products or one_hot"
    [ $failed = 0 ] || tail -n 60 "$out/log"
    # A kernel that hangs would take the time of all that follows.
    tail -n 1 "$out/log" | grep -qE "passed|failed" || exit 1
    timed fp8-kernels timeout -k 5 200 $gpu_tests -n 6 tests/gpu/test_gpu_fp8_wgmma.py
    timed fp8-times timeout -k 5 240 python3 -m benchmarks fp8 --budget-s 200 --commit "$3" \
      --peers "${MIXED_GEMM_PEERS-}" --out "$out/fp8.json"
    tail -n 120 "$out/log"
    unset MIXED_GEMM_GPU_REPORT
    timed scaled timeout 200 $gpu_tests -n 8 tests/gpu/test_gpu_scaled_mm.py \
      tests/gpu/test_gpu_scaled_inputs.py tests/gpu/test_gpu_fp8.py tests/gpu/test_gpu_w8a8.py
    timed sanitizers timeout 200 $gpu_tests -n 8 tests/gpu/test_gpu_sanitizer.py \
      -k "scaled_wgmma or fp8_blocks"
    ;;
  push)
    timed push timeout 300 python3 -m pytest -p no:cacheprovider -m gpu --tb=short -q \
      tests/gpu/test_gpu_push.py
    tail -n 40 "$out/log"
    timed layer timeout 200 python3 -m benchmarks.serving.layer --commit "$3" \
      --out "$out/layer.json"
    tail -n 40 "$out/log"
    ;;
  ranks)
    several="python3 -m pytest -p no:cacheprovider --tb=short -q"
    timed push timeout -k 5 150 $several -m gpu tests/gpu/test_gpu_parallel.py -k push
    tail -n 40 "$out/log"
    timed table timeout -k 5 240 torchrun --nproc-per-node=2 -m benchmarks.tensor_parallel \
      --all-methods --commit "$3" --out "$out/tensor_parallel.json"
    tail -n 80 "$out/log"
    MIXED_GEMM_TEST_BACKEND=nccl timed layers timeout -k 5 180 $several \
      tests/python/parallel/test_layers.py tests/python/parallel/test_state.py
    tail -n 20 "$out/log"
    ;;
  reliability)
    export MIXED_GEMM_COMMIT=$3 MIXED_GEMM_RELIABILITY="$out/reliability" OMP_NUM_THREADS=1
    mkdir -p "$MIXED_GEMM_RELIABILITY"
    all="push sweep pairs sizes checked stress mutants sanitizers"
    asked="${*:4}"
    asked=${asked:-$all}
    for part in $asked; do
      [[ " $all " == *" $part "* ]] || { echo "no part '$part' among $all" && exit 2; }
      for build in checked:MIXED_GEMM_CHECKED mutants:MIXED_GEMM_MUTATED; do
        [[ $part != "${build%:*}" || -f $(printenv "${build#*:}") ]] ||
          { echo "$part: ${build#*:} must name a build of its own" && exit 2; }
      done
    done
    sweep="python3 tests/gpu/sweep.py --processes 8"
    several="python3 -m pytest -p no:cacheprovider -m gpu --tb=short -q"
    part() {  # part NAME COMMAND...: if it is asked for
      [[ " $asked " != *" $1 "* ]] || timed "$@"
    }
    part push $several tests/gpu/test_gpu_push.py
    {
      part sanitizers $several -n "${SANITIZER_JOBS:-10}" tests/gpu/test_gpu_sanitizer.py \
        -k "${SANITIZERS:-sanitizer}"
      exit $failed
    } &
    sanitizers=$!
    {
      part mutants python3 tools/mutants.py --gpu --library "${MIXED_GEMM_MUTATED-}" --jobs 5 \
        --device "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)"
      part stress python3 tests/gpu/stress.py --out "$out/stress.json"
      exit $failed
    } &
    mistakes=$!
    part sweep $sweep --count 20000 --out "$out/sweep.json"
    part pairs $sweep --pairs --count 2000 --out "$out/pairs.json"
    part sizes python3 tests/gpu/sizes.py --out "$out/sizes.json"
    MIXED_GEMM_LIBRARY=${MIXED_GEMM_CHECKED-} \
      part checked $sweep --count 8000 --seed 1 --label "stages checked" --out "$out/checked.json"
    wait "$sanitizers" || failed=1
    wait "$mistakes" || failed=1
    ;;
  vllm)
    commit=$3 parts=()
    shift 3
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
      [[ " check step load " == *" $1 "* ]] ||
        { echo "no part '$1' among check step load" && exit 2; }
      parts+=("$1")
      shift
    done
    [ ${#parts[@]} -gt 0 ] || parts=(check step load)
    options=("${@:2}") work=${TMPDIR:-/tmp}/serving-gpu
    [ -z "${BEFORE-}" ] || cp "$BEFORE" "$out/vllm_engine.json"
    if [ -n "${CARRIED_VLLM-}" ]; then
      timed unpack python3 tools/carry_vllm.py unpack "$CARRIED_VLLM" "$work/vllm"
      export PYTHONPATH="$PYTHONPATH:$work/vllm"
      export MIXED_GEMM_LIBRARY=${MIXED_GEMM_LIBRARY:-$work/vllm/libmixed_gemm.so}
    fi
    for part in "${parts[@]}"; do
      begun=$SECONDS status=0
      python3 -m "benchmarks.serving.gpu_$part" --out "$out/vllm_engine.json" --commit "$commit" \
        --work "$work" --seconds "${BUDGET:-540}" "${options[@]}" >>"$out/log" 2>&1 || status=$?
      echo "$part: $((SECONDS - begun)) s, $(tail -n 1 "$out/log")"
      case $status in
        0) ;;
        75) [ $failed != 0 ] || failed=75 ;;
        *) failed=1 && echo "$part FAILED with status $status" ;;
      esac
    done
    [ ! -d "$work/logs" ] || tar cJf "$out/vllm_logs.txz" -C "$work" logs
    ;;
  wheel)
    timed install python3 tools/install_times.py wheel "$3" --here
    cp benchmarks/results/wheel_install_gpu.json "$out/"
    python3 -m zipfile -e "$3" "$out/unpacked"
    export MIXED_GEMM_LIBRARY="$out/unpacked/mixed_gemm/libmixed_gemm.so"
    export MIXED_GEMM_GPU_REPORT="$out/wheel_gpu_test.json"
    timed gpu-test make gpu-test PYTHON=python3 MIXED_GEMM_LIBRARY="$MIXED_GEMM_LIBRARY" \
      PYTEST_ARGS="-q -n 8 --dist worksteal"
    ;;
  counters)
    timed counters python3 -m benchmarks.profile_gemm --points "$(paste -sd, "$3")" \
      --budget-s 580 --out "$out/ncu.json"
    ;;
  *) echo "no stage '$stage'" && exit 2 ;;
esac
exit $failed
