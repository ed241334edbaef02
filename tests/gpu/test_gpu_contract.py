"""What every kernel of every op keeps on a GPU, whatever it computes (python/support/promises.py):
the same bits from any place, of nothing, again, beside other streams, behind a late producer, in a
graph; torch's own check, one compiled graph for any number of rows, a second GPU. Every op, and
three tiles of each family that can be forced in each way to share its work out.
"""

from __future__ import annotations

import pytest
import torch
from problems import scaled
from support import promises
from support.settings import without_tf32

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
EVERY_CASE = pytest.mark.parametrize("case", promises.CASES, ids=promises.ids)
CAPTURED = pytest.mark.parametrize(
    "case", [x for x in promises.CASES if promises.may_be_captured(x)], ids=promises.ids
)
LATE = 20_000_000  # cycles, about 10 ms: a kernel that runs before its turn reads poison


@pytest.fixture(autouse=True)
def no_tf32():
    with without_tf32():
        yield


@pytest.fixture(autouse=True)
def float8_has_tensor_cores(request):
    case = request.node.callspec.params.get("case") if hasattr(request.node, "callspec") else None
    in_float8 = isinstance(case, scaled.ScaledCase) and case.operand == promises.FLOAT8
    if in_float8 and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("no float8 tensor cores before 8.9")


@EVERY_CASE
def test_places_change_no_bit(case):
    promises.check_places(case, DEVICE)


@EVERY_CASE
def test_nothing_is_right_too(case):
    promises.check_empty(case, DEVICE)


@EVERY_CASE
def test_repeats_and_neighbours_keep_their_bits(case):
    promises.check_repeats(case, DEVICE, 50)
    promises.check_canary(case, DEVICE)


@pytest.mark.parametrize("case", promises.ROWS, ids=promises.ids)
def test_rows_do_not_turn_on_each_other(case):
    promises.check_rows(case, DEVICE)


@pytest.mark.parametrize("case", promises.FIRST, ids=promises.ids)
def test_opcheck(case):
    promises.check_opcheck(case, DEVICE)


@pytest.mark.parametrize("case", promises.BATCHES, ids=promises.ids)
def test_compiles_once_for_any_number_of_rows(case):
    if promises.runs_in_torch(case, DEVICE):
        pytest.skip("torch multiplies it")
    promises.check_compiles(case, DEVICE)


# --- streams and graphs ---------------------------------------------------------------------------


@CAPTURED
def test_a_side_stream_sees_its_producer(case):
    """Every tensor is filled late, on the stream of the call."""
    problem = promises.make(case, DEVICE)
    for config in promises.few_of(problem):
        expected = problem.run(config=config)
        kept, stream = promises.spoil(problem), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LATE)
            promises.fill(problem, kept)
            out = problem.run(config=config)
        stream.synchronize()
        promises.assert_same(out, expected, config)


@CAPTURED
def test_two_streams_share_nothing(case):
    """The same configuration on two streams beside each other, each with a problem of its own."""
    problems = [promises.make(case, DEVICE, seed) for seed in (1, 2)]
    for config in promises.few_of(problems[0]):
        expected = [problem.run(config=config) for problem in problems]
        streams = [torch.cuda.Stream() for _ in problems]
        torch.cuda.synchronize()
        for _ in range(50):
            outs = []
            for stream, problem in zip(streams, problems, strict=True):
                with torch.cuda.stream(stream):
                    outs.append(problem.run(config=config))
            torch.cuda.synchronize()
            for out, wanted in zip(outs, expected, strict=True):
                promises.assert_same(out, wanted, config)


@CAPTURED
def test_a_graph_replays_what_the_op_computes(case):
    """With other values in every tensor that was captured."""
    problem, *others = (promises.make(case, DEVICE, seed) for seed in (1, 2, 3))
    for config in promises.few_of(problem):
        problem.run(config=config)  # torch's library makes its workspace outside of the capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = problem.run(config=config)
        for other in (*others, *others):
            promises.fill(problem, promises.tensors_of(other))
            promises.poison(out)
            graph.replay()
            torch.cuda.synchronize()
            promises.assert_same(out, other.run(config=config), config)


@EVERY_CASE
def test_a_second_device(case):
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device")
    first, second = (promises.make(case, f"cuda:{i}") for i in range(2))
    with torch.cuda.device(0):
        expected, out = first.run(), second.run()
    promises.assert_same(promises.on_cpu(out), promises.on_cpu(expected), "cuda:1")
