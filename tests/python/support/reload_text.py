"""Load models with transformers and print what each writes, as JSON: a list of token ids for each
folder.

    python reload_text.py with|without PROMPT FOLDER...

"with" imports mixed_gemm before transformers; "without" must not import it at all. PROMPT is a list
of token ids as JSON.
"""

from __future__ import annotations

import json
import sys


def main(imported: str, prompt: str, folders: list[str]) -> None:
    if imported == "with":
        import mixed_gemm
    import torch
    import transformers

    ids, found = torch.tensor([json.loads(prompt)]), []
    for folder in folders:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        kinds = {type(m) for m in model.modules()}
        assert imported == "without" or mixed_gemm.Linear in kinds
        tokens = model.generate(ids, max_new_tokens=24, do_sample=False)
        found.append(tokens[0].tolist())
    assert ("mixed_gemm" in sys.modules) == (imported == "with")
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
