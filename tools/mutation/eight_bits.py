"""8-bit activations, convolutions and sums over ranks."""

from __future__ import annotations

from .edit import Edit

EDITS = (
    Edit(
        "block_gemm/prepare.cuh",
        """
      const int sum = p.b_sums[index];
""",
        """
      const int sum = p.b_sums[MUTATED(GivenSum) ? column : index];
""",
    ),
    Edit(
        "block_gemm/sums.cuh",
        """
        const float sum_a = rows[8 * i].sum;
""",
        """
        const float sum_a = MUTATED(BlockSum) ? 0.f : rows[8 * i].sum;
""",
    ),
    Edit(
        "ops/scaled_mm/in_torch.cpp",
        """
  return torch::stable::view(starts_aligned(flat) ? flat : torch::stable::clone(flat), sizes);
""",
        """
  const bool stays = starts_aligned(flat) || MUTATED(UnalignedForCublas);
  return torch::stable::view(stays ? flat : torch::stable::clone(flat), sizes);
""",
    ),
    Edit(
        "ops/scaled_mm/in_torch.cpp",
        """
    const Tensor scales = call_aten("aten::mul", "Tensor", part(scale_a, 1, g, 1),
""",
        """
    const int64_t of_rows = MUTATED(ScalesOfFirstBlock) ? 0 : g;
    const Tensor scales = call_aten("aten::mul", "Tensor", part(scale_a, 1, of_rows, 1),
""",
    ),
    Edit(
        "conv/kernel.cuh",
        """
    return in_tap(rest);
""",
        """
    return in_tap(MUTATED(TapGroups) ? part : rest);
""",
    ),
    Edit(
        "conv_int8/kernel.cuh",
        """
  const int sum = p.weight_sums == nullptr ? sum_of_channel(p, channel) : p.weight_sums[channel];
""",
        """
  const int sum = p.weight_sums == nullptr
                      ? sum_of_channel(p, channel)
                      : p.weight_sums[MUTATED(GivenSum) ? 0 : channel];
""",
    ),
    Edit(
        "conv_int8/requantized_output.cuh",
        """
    return static_cast<uint8_t>(
""",
        """
    if (MUTATED(Truncates))
      return static_cast<uint8_t>(static_cast<int8_t>(fminf(fmaxf(y, clamp_min), clamp_max)));
    return static_cast<uint8_t>(
""",
    ),
    Edit(
        "epilogue/scaled_epilogue.cuh",
        """
  __device__ Row row(int m) const { return azp[m]; }
""",
        """
  __device__ Row row(int m) const { return azp[MUTATED(AzpOfRow) ? max(m - 1, 0) : m]; }
""",
    ),
    Edit(
        "epilogue/scaled_epilogue.cuh",
        """
    if (args.kind == EpilogueKind::kAzp) {
""",
        """
    if (MUTATED(AzpWraps)) narrow = true;
    if (args.kind == EpilogueKind::kAzp) {
""",
    ),
    Edit(
        "epilogue/scaled_output.cuh",
        """
    rows[i] = tree.row(min(row + 8 * i, last_row));
""",
        """
    const bool before = MUTATED(ScaleOfRow) && row + 8 * i == last_row;
    rows[i] = tree.row(before ? max(last_row - 1, 0) : min(row + 8 * i, last_row));
""",
    ),
    Edit(
        "epilogue/scaled_visitors.cuh",
        """
      const int row = min(row0 + 8 * i, p.last);
""",
        """
      const bool before = MUTATED(ScaleOfRow) && row0 + 8 * i == p.last;
      const int row = before ? max(p.last - 1, 0) : min(row0 + 8 * i, p.last);
""",
    ),
    Edit(
        "scaled_skinny/kernel.cuh",
        """
        vectors_[i][c] = uint4{};
""",
        """
        if (!MUTATED(SkinnyTail)) vectors_[i][c] = uint4{};
""",
    ),
    Edit(
        "scaled_skinny/kernel.cuh",
        """
      for (int warp = 0; warp < kWarps; ++warp) total += storage_.sums[warp][row][column];
""",
        """
      for (int warp = 0; warp < kWarps; ++warp)
        if (!MUTATED(SkinnyWarp) || warp < kWarps - 1) total += storage_.sums[warp][row][column];
""",
    ),
    Edit(
        "mainloop/pixel_operand.cuh",
        """
        const auto* padding = reinterpret_cast<const uint4*>(kPaddingChunks.bytes[params_.padding]);
""",
        """
        const auto* padding = reinterpret_cast<const uint4*>(
            kPaddingChunks.bytes[MUTATED(PaddingValue) ? 0 : params_.padding]);
""",
    ),
    Edit(
        "mainloop/pixel_operand.cuh",
        """
    tap_chunk_ = (tap_y * params_.w + tap_x_) * params_.chunks + chunk;
""",
        """
    if (MUTATED(EdgeDilation) && tap_x == params_.by_kernel_w.divisor - 1)
      tap_x_ = tap_x;
    tap_chunk_ = (tap_y * params_.w + tap_x_) * params_.chunks + chunk;
""",
    ),
    Edit(
        "ranks/inbox.h",
        """
  return ((unit.words[0] ^ flag) >> 32) == 0 && ((unit.words[1] ^ flag) >> 32) == 0;
""",
        """
  const bool first = ((unit.words[0] ^ flag) >> 32) == 0 || MUTATED(HalfUnit);
  return first && ((unit.words[1] ^ flag) >> 32) == 0;
""",
    ),
    Edit(
        "ranks/inbox.h",
        """
  return epoch % kPeriod >= kPeriod - 2;
""",
        """
  return epoch % kPeriod >= kPeriod - (MUTATED(OldUnits) ? 1 : 2);
""",
    ),
    Edit(
        "ranks/inbox.h",
        """
    return static_cast<int64_t>(epoch % 2) * peers + entry;
""",
        """
    const uint64_t slot = MUTATED(OneSlot) ? 0 : epoch % 2;
    return static_cast<int64_t>(slot) * peers + entry;
""",
    ),
    Edit(
        "scaled_wgmma/block_scales.cuh",
        """
    for (int part = 0; part < kParts; ++part) of_columns_[part] = load(columns_[part]++);
  }
""",
        """
    for (int part = 0; part < kParts; ++part) of_columns_[part] = load(columns_[part]++);
    if (MUTATED(ScaleOfLine)) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2; ++i) --rows_[i];
    }
  }
""",
    ),
    Edit(
        "scaled_wgmma/mainloop.cuh",
        """
          sum = scales.add(sum, products[i], i / 2 % 2, part);
""",
        """
          sum = scales.add(sum, products[i], MUTATED(ScaleOfHalf) ? 0 : i / 2 % 2, part);
""",
    ),
    Edit(
        "transform/divide_for_float8.h",
        """
    if (!near) return;
""",
        """
    if (MUTATED(Float8ByInverse) || !near) return;
""",
    ),
    Edit(
        "transform/quantize.cuh",
        """
  __device__ int32_t operator()(float a) const { return __float2int_rn(a * inverse) + azp; }
""",
        """
  __device__ int32_t operator()(float a) const {
    if (MUTATED(RoundsHalfAway)) return static_cast<int32_t>(roundf(a * inverse)) + azp;
    return __float2int_rn(a * inverse) + azp;
  }
""",
    ),
    Edit(
        "transform/quantize.cuh",
        """
    const float low = rintf(range.low * inverse);
""",
        """
    const float low = rintf(range.low * inverse) * (MUTATED(AzpSign) ? -1.f : 1.f);
""",
    ),
)
