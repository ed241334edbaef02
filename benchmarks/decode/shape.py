"""The shapes of decoders that are timed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder of Llama's kind.

    Attributes:
        hidden, intermediate: features between blocks, and inside of an MLP.
        heads, kv_heads: of the queries; of keys and values. head: features of one.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int

    def linears(self, products: str = "apart") -> dict[str, tuple[int, int]]:
        """The linear layers of a block: name -> (input features, output features).

        Args:
            products: one of PRODUCTS: a layer each, or one for all layers with the same input.
        """
        if products == "joint":
            apart = self.linears()
            outputs = {x: sum(apart[name][1] for name in JOINT[x]) for x in JOINT}
            return {
                "qkv": (self.hidden, outputs["qkv"]),
                "o": apart["o"],
                "gate_up": (self.hidden, outputs["gate_up"]),
                "down": apart["down"],
            }
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        return {
            "q": (self.hidden, queries),
            "k": (self.hidden, keys),
            "v": (self.hidden, keys),
            "o": (queries, self.hidden),
            "gate": (self.hidden, self.intermediate),
            "up": (self.hidden, self.intermediate),
            "down": (self.intermediate, self.hidden),
        }


PRODUCTS = ("apart", "joint")
JOINT = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
SHAPES = {
    "tiny": Shape(2, 128, 256, 4, 2, 32, 256),  # to try the command
    "llama_8b": Shape(32, 4096, 14336, 32, 8, 128, 128256),
    "llama_70b": Shape(80, 8192, 28672, 64, 8, 128, 128256),
}
