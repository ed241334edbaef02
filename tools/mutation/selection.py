"""Mistakes in what is remembered of a problem, and in what kernels are told of it."""

from __future__ import annotations

from .edit import Edit

EDITS = (
    Edit(
        "dense/scaled.cpp",
        """
  return device.sm > kLastOfOurs ? 0 : kNeverChosen;
""",
        """
  return device.sm > kLastOfOurs - (MUTATED(TorchOnHopper) ? 1 : 0) ? 0 : kNeverChosen;
""",
    ),
    Edit(
        "dispatch/remembered.h",
        """
  if (generation != current || known.size() >= kMaxRemembered) {
""",
        """
  if ((MUTATED(KeyWithoutTable) ? (false) : (generation != current)) ||
      known.size() >= kMaxRemembered) {
""",
    ),
    Edit(
        "dispatch/tuned_line.cpp",
        """
    names.weight = "int" + names.weight;
""",
        """
    if (MUTATED(TunedWeight)) names.weight = names.weight == "4" ? "8" : "4";
    names.weight = "int" + names.weight;
""",
    ),
    Edit(
        "grid/launcher_table.h",
        """
    if (weight == kWeight) return Kernels::template launchers<kElement, kWeight>(mode);
""",
        """
    if (MUTATED(LauncherBeside) && mode > 0) --mode;
    if (weight == kWeight) return Kernels::template launchers<kElement, kWeight>(mode);
""",
    ),
    Edit(
        "mainloop/scale_mode.h",
        """
                    : group % (kTileK / 2) == 0      ? kTileK / 2
""",
        """
                    : group % (kTileK / 2) == 0 ? (MUTATED(ModeRows) ? kTileK : kTileK / 2)
""",
    ),
    Edit(
        "problem/gemm.h",
        """
  return std::tuple(m, n, k, element, weight, scale_type, group, zero_mode, activation, a_stride,
                    scale_stride, bias != nullptr, pre_scale != nullptr);
""",
        """
  return std::tuple(m, n, k, element, MUTATED(KeyWithoutWeight) ? WeightType::kInt4 : weight,
                    scale_type, (MUTATED(KeyWithoutGroup) ? (0) : (group)), zero_mode, activation,
                    a_stride, scale_stride, bias != nullptr, pre_scale != nullptr);
""",
    ),
    Edit(
        "problem/conv.h",
        """
  return std::tuple(images, in_c, in_h, in_w, out_c, out_h, out_w, kernel_h, kernel_w, stride_h,
                    stride_w, padding_h, padding_w, dilation_h, dilation_w);
""",
        """
  return std::tuple(images, in_c, (MUTATED(KeyWithoutImage) ? (0) : (in_h)),
                    (MUTATED(KeyWithoutImage) ? (0) : (in_w)), out_c, out_h, out_w, kernel_h,
                    kernel_w, (MUTATED(KeyWithoutImage) ? (1) : (stride_h)),
                    (MUTATED(KeyWithoutImage) ? (1) : (stride_w)),
                    (MUTATED(KeyWithoutImage) ? (0) : (padding_h)),
                    (MUTATED(KeyWithoutImage) ? (0) : (padding_w)), dilation_h, dilation_w);
""",
    ),
    Edit(
        "problem/scaled_mm.h",
        """
  return std::tuple(m, n, k, operand, out, lda, ldb, scale_a_stride, scale_b_stride,
                    azp_adj != nullptr, azp != nullptr, bias != nullptr, block_k, block_n);
""",
        """
  return std::tuple(m, n, k, (MUTATED(KeyWithoutOperand) ? (OperandType::kInt8) : (operand)), out,
                    lda, ldb, scale_a_stride, scale_b_stride, azp_adj != nullptr, azp != nullptr,
                    bias != nullptr, block_k, block_n);
""",
    ),
    Edit(
        "problem/gemm.cpp",
        """
  e.a_stride = p.m == 1 ? 0 : p.a_stride;
  e.groups = static_cast<int>(num_groups(p));
  e.group_size = e.groups <= 1 ? e.k : static_cast<int>(p.scheme.scales.group);
""",
        """
  e.a_stride = p.m == 1 ? 0 : MUTATED(LeadingDimension) ? p.k : p.a_stride;
  e.groups = static_cast<int>(num_groups(p));
  e.group_size = e.groups <= 1 && !MUTATED(RowsOfPaddedK)
                     ? e.k
                     : static_cast<int>(p.scheme.scales.group);
""",
    ),
)
