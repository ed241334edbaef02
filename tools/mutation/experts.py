"""Mistakes in what stands around the products of experts."""

from __future__ import annotations

from .edit import Edit

EDITS = (
    Edit(
        "cpu/moe/permute_cpu.cpp",
        """
    p.positions[i] = is_expert(ids[i]) ? next[static_cast<size_t>(ids[i])]++ : -1;
""",
        """
    const int64_t at = MUTATED(LastChoiceFirst) ? p.count() - 1 - i : i;
    p.positions[at] = is_expert(ids[at]) ? next[static_cast<size_t>(ids[at])]++ : -1;
""",
    ),
    Edit(
        "transform/sort_choices.cuh",
        """
        p.positions[index] = row + __popc(peers & ((1u << lane) - 1u));
""",
        """
        const int before = __popc(peers & ((1u << lane) - 1u));
        const int rank = MUTATED(LastChoiceFirst) ? __popc(peers) - 1 - before : before;
        p.positions[index] = row + rank;
""",
    ),
    Edit(
        "cpu/moe/combine_cpu.cpp",
        """
        kernels.add_multiple(row.data(), p.k, weights.data()[j], sum.data());
""",
        """
        const float weight = weights.data()[MUTATED(WeightOfFirst) ? 0 : j];
        kernels.add_multiple(row.data(), p.k, weight, sum.data());
""",
    ),
    Edit(
        "transform/combine_rows.cuh",
        """
        weight[j] = static_cast<float>(weights[at]);
""",
        """
        const int64_t of = MUTATED(WeightOfFirst) ? token * p.choices : at;
        weight[j] = static_cast<float>(weights[of]);
""",
    ),
    Edit(
        "cpu/vector_gate.h",
        """
  up = up < -most ? -most : up;
""",
        """
  if (!MUTATED(LowestUp)) up = up < -most ? -most : up;
""",
    ),
    Edit(
        "cpu/vector_activation.h",
        """
    return x * (x < 0.f ? below : 1.f - below);
""",
        """
    return x * (MUTATED(AreaBelow) ? below : x < 0.f ? below : 1.f - below);
""",
    ),
    Edit(
        "cpu/vector_gate.h",
        """
    const int64_t rest = count - i;
""",
        """
    const int64_t rest = count - i;
    if (MUTATED(LastGates) && rest < kLanes) return;
""",
    ),
)
