"""What surrounds the library goes wrong, or happens at once: an old torch, a machine without a
driver, a process that forks, threads that import and call for the first time together.

Each runs in a process of its own, since a process imports and calls for the first time once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Every CPU op once, as name -> bytes of its result: what threads and forks must agree on.
EVERY_OP = """
import mixed_gemm, torch

g = torch.Generator().manual_seed(0)
q = torch.randint(-8, 8, (72, 128), generator=g, dtype=torch.int8)
w = torch.randint(-127, 128, (72, 128), generator=g, dtype=torch.int8)
x = torch.randn(40, 128, generator=g)
image = torch.randn(2, 16, 6, 5, generator=g)
filters = torch.randint(-8, 8, (24, 16, 3, 3), generator=g, dtype=torch.int8)
words = torch.randint(-2**31, 2**31 - 1, (128, 16), generator=g, dtype=torch.int32)
scales = torch.rand(2, 72, generator=g)

def int8():
    q8, scale_a, azp = mixed_gemm.quantize_per_token(x, symmetric=False)
    scale_b, adjust = torch.ones(72), mixed_gemm.ops.azp_adjustment(w)
    return mixed_gemm.scaled_mm_azp(
        q8, w.t(), scale_a, scale_b, adjust, azp, out_dtype=torch.float32
    )

def awq():
    scales, zeros = torch.ones(2, 128), words[:2].contiguous()
    return mixed_gemm.awq_gemm(x, words, scales, zeros)

def conv():
    packed = mixed_gemm.pack_conv_weights(filters, 4)
    return mixed_gemm.qconv2d(
        image, packed, torch.ones(1, 24), bits=4, kernel_size=3, padding=1
    )

def float8():
    a, b = (t.to(torch.float8_e4m3fn) for t in (x, w.float() / 32))
    return mixed_gemm.scaled_mm(a, b.t(), torch.ones(1), torch.ones(1), out_dtype=torch.float32)

OPS = {
    "gemm": lambda: mixed_gemm.fpA_intB_gemm(
        x, mixed_gemm.pack_weights(q, 4), scales, bits=4, group_size=64
    ),
    "gemv": lambda: mixed_gemm.fpA_intB_gemm(
        x[:1].bfloat16(), mixed_gemm.pack_weights(w, 8), scales[:1].bfloat16(), bits=8
    ),
    "int8": int8,
    "float8": float8,
    "awq": awq,
    "conv": conv,
    "block": lambda: mixed_gemm.block_quant_gemm(x, w.t(), scales, scales, block_size=64),
    "plan": lambda: str(mixed_gemm.plan(1, 64, 64, group_size=64, device="cpu")),
}

def run(name):
    out = OPS[name]()
    return out if isinstance(out, str) else out.contiguous().view(torch.uint8).numpy().tobytes()
"""


def run(code: str, repository: Path, timeout: float = 60, **environment: str) -> str:
    """The output of a Python program that must end well, and soon."""
    path = os.pathsep.join((str(repository), os.environ.get("PYTHONPATH", "")))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        pytest.fail(f"hangs: more than {timeout} s")
    finally:  # forked children of a program that hangs, too
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, f"ended with {process.returncode}\n{out}\n{err[-4000:]}"
    return out


@pytest.mark.parametrize(
    ("version", "accepted"),
    (("2.9.1+cu130", False), ("2.10.0a0+git1", True)),
)
def test_a_torch_that_is_too_old_is_named_and_breaks_no_import(repository, version, accepted):
    code = f"""
import torch
torch.__version__ = torch.torch_version.TorchVersion({version!r})
import mixed_gemm
try:
    mixed_gemm.pack_weights(torch.zeros(4, 4, dtype=torch.int8), 4)
    print("packed")
except ImportError as error:
    print(error)
print(mixed_gemm.env().error is None)
"""
    message, fine = run(code, repository).splitlines()
    assert fine == str(accepted)
    if accepted:
        assert message == "packed"
    else:
        assert "needs torch >= 2.10" in message and f"torch {version}" in message
        assert "Hint: pip install -U torch" in message


@pytest.mark.parametrize("devices", ("", "-1"))
def test_a_process_that_sees_no_gpu_uses_the_cpu_and_says_why_not_cuda(repository, devices):
    code = (
        EVERY_OP
        + """
for name in OPS:
    run(name)
print(mixed_gemm.plan(1, 64, 64, group_size=64).selected)
for call in (
    lambda: mixed_gemm.plan(1, 64, 64, device="cuda:0"),
    lambda: mixed_gemm.tune(torch.nn.Linear(64, 64)),
):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error).replace(chr(10), " "))
    else:
        print("no error")
"""
    )
    selected, *errors = run(code, repository, CUDA_VISIBLE_DEVICES=devices).splitlines()
    assert selected.startswith("cpu_")
    for error in errors:
        assert error.startswith(("RuntimeError", "ValueError")), error
        assert "CUDA" in error or "cuda" in error


# As torch's DataLoader does it: the child has one thread, because the pool of OpenMP does not
# survive a fork.
FORK = """
import os, sys

def child_agrees(expected):
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)
            same = all(run(name) == value for name, value in expected.items())
        except BaseException as error:
            print(error, file=sys.stderr)
            same = False
        os._exit(0 if same else 1)
    return os.waitpid(pid, 0)[1] == 0
"""


@pytest.mark.parametrize("when", ("after the import", "after the first calls"))
def test_a_fork_computes_the_same(repository, when):
    if when == "after the import":
        # The expected values come from another child.
        steps = """
import tempfile, pickle
with tempfile.NamedTemporaryFile() as file:
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)
        with open(file.name, "wb") as out:
            pickle.dump({name: run(name) for name in OPS}, out)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    with open(file.name, "rb") as out:
        expected = pickle.load(out)
"""
    else:
        steps = "expected = {name: run(name) for name in OPS}\n"
    code = EVERY_OP + FORK + steps + "assert child_agrees(expected) and child_agrees(expected)\n"
    # The parent goes on as before.
    code += "assert {name: run(name) for name in OPS} == expected\nprint('same')"
    assert run(code, repository).split() == ["same"]


@pytest.mark.parametrize("method", ("fork", "forkserver", "spawn"))
def test_multiprocessing_takes_layers_along(repository, tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import multiprocessing, sys, torch, mixed_gemm

def work(layer, x, queue):
    torch.set_num_threads(1)
    queue.put(layer(x).detach().numpy())

if __name__ == "__main__":
    torch.manual_seed(0)
    layer = mixed_gemm.Linear.from_float(torch.nn.Linear(64, 32), group_size=32)
    x = torch.randn(3, 64)
    expected = layer(x)
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    process = context.Process(target=work, args=(layer, x, queue))
    process.start()
    out = torch.from_numpy(queue.get(timeout=50))
    process.join()
    assert process.exitcode == 0 and torch.equal(out, expected)
    print("same")
"""
    )
    code = f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    if method != "fork":  # these import the program again, by its path
        command = f"[sys.executable, {str(program)!r}]"
        code = f"import subprocess, sys; subprocess.run({command}, check=True)"
    assert run(code, repository).split() == ["same"]


def test_threads_whose_first_calls_meet_agree(repository):
    code = (
        EVERY_OP
        + """
import threading
THREADS = 12
barrier, results, errors = threading.Barrier(THREADS), [], []

def work(i):
    names = list(OPS)
    names = names[i % len(names):] + names[:i % len(names)]  # each begins with another one
    try:
        barrier.wait()
        results.append({name: run(name) for name in names})
    except BaseException as error:
        errors.append(error)

threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
for t in threads: t.start()
for t in threads: t.join()
assert not errors, errors
alone = {name: run(name) for name in OPS}
assert len(results) == THREADS and all(r == alone for r in results)
print("same")
"""
    )
    assert run(code, repository).split() == ["same"]


def test_threads_that_import_together_all_get_the_ops(repository):
    code = """
import threading, torch
THREADS = 8
barrier, errors = threading.Barrier(THREADS), []

def work():
    try:
        barrier.wait()
        import mixed_gemm
        q = torch.randint(-8, 8, (72, 128), dtype=torch.int8)
        assert torch.equal(mixed_gemm.unpack_weights(mixed_gemm.pack_weights(q, 4), 4, 72, 128), q)
    except BaseException as error:
        errors.append(error)

threads = [threading.Thread(target=work) for _ in range(THREADS)]
for t in threads: t.start()
for t in threads: t.join()
assert not errors, errors
print("same")
"""
    assert run(code, repository).split() == ["same"]


def test_a_second_load_of_the_library_is_harmless(repository):
    code = """
import os, torch, mixed_gemm
torch.ops.load_library(mixed_gemm._library.path)
import importlib
again = importlib.reload(mixed_gemm._library)
assert again.available, again.error
print(torch.ops.mixed_gemm._env() != "")
"""
    assert run(code, repository).split() == ["True"]


def test_a_call_from_many_threads_while_the_tuned_table_is_replaced(repository):
    code = """
import threading, torch, mixed_gemm
from mixed_gemm.selection import tables
device = "cuda:sm=90,sms=132,smem=232448"
ask = lambda: torch.ops.mixed_gemm._plan(16, 4096, 4096, "float16", 4, 128, "none", device)
torch.ops.mixed_gemm._set_tuned_table("")
empty = ask()
tables.install()
full = ask()
assert empty != full
stop, wrong = threading.Event(), []

def plan():
    while not stop.is_set():
        if ask() not in (empty, full):
            wrong.append(ask())

threads = [threading.Thread(target=plan) for _ in range(4)]
for t in threads: t.start()
for _ in range(20):
    torch.ops.mixed_gemm._set_tuned_table("")
    tables.install()
stop.set()
for t in threads: t.join()
assert not wrong, wrong[0]
assert ask() == full
print("same")
"""
    assert run(code, repository).split() == ["same"]


def test_the_threads_of_the_caller_do_not_change_the_result(repository):
    code = (
        EVERY_OP
        + """
expected = {name: run(name) for name in OPS}
for threads in (1, 2, 3, 7):
    torch.set_num_threads(threads)
    assert {name: run(name) for name in OPS} == expected, threads
print("same")
"""
    )
    assert run(code, repository).split() == ["same"]


@pytest.mark.skipif(
    "asan" in os.environ.get("LD_PRELOAD", ""), reason="ASan reserves more than any limit"
)
@pytest.mark.parametrize("op", ("quantize", "gemm"))
def test_scratch_memory_that_is_not_there_is_a_memory_error_and_the_retry_works(repository, op):
    """`quantize` asks for a row in fp32 in every worker of the pool, `gemm` for all of A, once."""
    code = rf"""
import re, resource, torch, mixed_gemm
torch.set_num_threads(2)
LONG, HEADROOM = 1 << 25, 96 << 20
row = torch.zeros(2, LONG, dtype=torch.bfloat16)
packed = mixed_gemm.pack_weights(torch.ones(8, 1 << 17, dtype=torch.int8), 4)
wide = torch.ones(1, 1 << 17).expand(1024, 1 << 17)
calls = {{
    "quantize": lambda: mixed_gemm.quantize_per_token(row)[0],
    "gemm": lambda: mixed_gemm.fpA_intB_gemm(wide, packed, torch.ones(1, 8), bits=4),
}}
torch.rand(1 << 20).exp().sum()  # the pool is there
size = int(re.search(r"VmSize:\s+(\d+)", open("/proc/self/status").read())[1]) << 10
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + HEADROOM, before[1]))
try:
    calls[{op!r}]()
    print("no error")
except (MemoryError, torch.OutOfMemoryError) as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, before)
print(tuple(calls[{op!r}]().shape))
"""
    message, shape = run(code, repository).splitlines()
    assert "alloc" in message or "memory" in message, message
    assert shape in ("(2, 33554432)", "(1024, 8)")
