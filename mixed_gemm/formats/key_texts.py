"""Reasons that rows of several sections of ``key_table.TABLE`` give."""

from __future__ import annotations

from .key_rows import applied

ACTIVATIONS = (
    "the file asks for rounded activations too ({path}: {value}); only its weights are used here, "
    "with activations in the dtype of the model"
)
CACHE = (
    "the file asks for rounded keys and values ({path}: {value}); they stay in the dtype of the "
    "model here"
)
ROTATION = (
    "the inputs of layers are rotated while the model runs, which is not done here, and without it "
    "the weights are those of another model. Hint: serve the file with the library that wrote it, "
    "or quantize again without online transforms"
)
ADAPTER = (
    "an adapter is added to the layers, which is not read from here. Hint: remove the key to load "
    "the layers alone, and put the adapter on top with peft"
)

LAYERS = "the tensors of the file say which layers are quantized"
CHOSEN = "how scales and integers were chosen; the file holds what came out"
KERNELS = "how another library runs or loads the model"
ORIGIN = "who wrote the file, and from what"
WORK = "how the writer spread its work"

METHOD = {"quant_method": applied("names the format")}
RULES = "bits and group_size of single layers"
