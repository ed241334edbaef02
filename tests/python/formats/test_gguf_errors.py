"""GGUF files that are broken, or of what is not read: refused with file, tensor and reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import gguf_files
from support.gguf_files import HIDDEN, tiny

from mixed_gemm.formats import CheckpointError, open_checkpoint

MODEL = tiny()
Q = MODEL.tensors["blk.0.attn_q.weight"]
REFUSED = {
    "another architecture": (
        MODEL.with_metadata(general__architecture="mamba"),
        "architecture 'mamba' is not read; llama, qwen2, qwen3 are",
    ),
    "no architecture": (
        MODEL.with_metadata(general__architecture=None),
        "architecture None is not read",
    ),
    "experts": (MODEL.with_metadata(llama__expert_count=8), "llama.expert_used_count must be one"),
    "experts of another architecture": (
        MODEL.with_metadata(general__architecture="qwen3", qwen3__expert_count=8),
        "architecture 'qwen3' with 8 experts is not read",
    ),
    "a part of a head turns": (
        MODEL.with_metadata(llama__rope__dimension_count=32),
        "rope.dimension_count is 32; only 64",
    ),
    "yarn": (MODEL.with_metadata(llama__rope__scaling__type="yarn"), "'yarn' is not read"),
    "more layers than tensors": (
        MODEL.with_metadata(llama__block_count=2**31 - 1),
        "block_count is 2147483647, and it has tensors of 2 layers",
    ),
    "no layers": (MODEL.with_metadata(llama__block_count=0), r"must be in 1\.\.2\^31, got 0"),
    "a count that is a string": (
        MODEL.with_metadata(llama__embedding_length="256"),
        "must be one int, got '256'",
    ),
    "an epsilon that is no number": (
        MODEL.with_metadata(llama__attention__layer_norm_rms_epsilon=float("nan")),
        "must be positive and finite",
    ),
    "another shape": (
        MODEL.with_tensors(blk__0__attn_q__weight=gguf_files.matrix("Q4_0", (HIDDEN, 512))),
        r"blk.0.attn_q.weight: must be of the shape \(256, 256\), got \(256, 512\)",
    ),
    "an unknown tensor": (
        MODEL.with_tensors(blk__0__ssm_a__weight=Q),
        "blk.0.ssm_a.weight: is no tensor of the architecture llama",
    ),
    "an unknown type": (
        MODEL.with_tensors(blk__0__attn_q__weight=replace(Q, type=4)),
        "blk.0.attn_q.weight: is of the type 4, which the gguf package does not know",
    ),
    "a type of no weights": (
        MODEL.with_tensors(blk__0__attn_q__weight=replace(Q, type=26)),
        "is of the type I32, which is no type of weights",
    ),
    "a type without values": (
        MODEL.with_tensors(blk__0__attn_q__weight=replace(Q, type=15)),
        "is of the type Q8_K, whose values",
    ),
    "half a block": (
        MODEL.with_tensors(blk__0__attn_q__weight=replace(Q, shape=(512, 120))),
        "with rows in blocks of 32",
    ),
    "tensors in one place": (
        MODEL.with_tensors(blk__0__attn_q__weight=replace(Q, offset=64)),
        "blk.0.attn_q.weight.*begins at byte 64 of the data, inside token_embd.weight",
    ),
    "behind the end": (
        MODEL.with_tensors(blk__1__ffn_down__weight=replace(Q, shape=(256, 512), offset=1 << 40)),
        r"blk.1.ffn_down.weight.*ends at byte 1099\d+, and the file has",
    ),
    "version 1": (replace(MODEL, version=1), "of version 1; little-endian files of version 2 and"),
    "big-endian": (replace(MODEL, version=3 << 24), "it is big-endian"),
    "a part of several": (MODEL.with_metadata(split__count=3), "one of 3 parts. Hint: llama-gguf-"),
    "an alignment of 0": (MODEL.with_metadata(general__alignment=0), "general.alignment is 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_read_is_refused_with_the_reason(tmp_path, case):
    if "type" in case:
        pytest.importorskip("gguf", reason="the extra gguf, which knows all types")
    model, text = REFUSED[case]
    path = model.write(tmp_path / "model.gguf")
    with pytest.raises(CheckpointError, match=text) as caught:
        open_checkpoint(path)
    assert caught.value.file == str(path)


def test_a_scale_that_is_no_number_is_refused_when_its_layer_is_read(tmp_path):
    broken = bytearray(Q.content)
    broken[0:2] = b"\x00\x7e"  # NaN
    model = MODEL.with_tensors(blk__0__attn_q__weight=replace(Q, content=bytes(broken)))
    checkpoint = open_checkpoint(model.write(tmp_path / "model.gguf"))
    with pytest.raises(CheckpointError, match=r"q_proj.*scales must be finite"):
        checkpoint.layer("model.layers.0.self_attn.q_proj")


def test_every_truncated_header_is_refused(tmp_path):
    content, length = MODEL.content(), len(MODEL.header())
    path = tmp_path / "model.gguf"
    padded = len(content) - gguf_files.ALIGNMENT - 1
    for size in [*range(0, length, 7), length, len(content) // 2, padded]:
        path.write_bytes(content[:size])
        with pytest.raises(CheckpointError):
            open_checkpoint(path)


def test_a_changed_byte_of_the_header_is_refused_or_read(tmp_path):
    content, length = bytearray(MODEL.content()), len(MODEL.header())
    random = np.random.default_rng(0)
    path = tmp_path / "model.gguf"
    for at in random.integers(0, length, 300):
        before = content[at]
        content[at] = int(random.integers(0, 256))
        path.write_bytes(content)
        try:
            assert len(open_checkpoint(path)) == 14
        except CheckpointError as error:
            assert error.file == str(path)
        content[at] = before
