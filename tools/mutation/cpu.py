"""Kernels of the CPU."""

from __future__ import annotations

from .edit import Edit

EDITS = (
    Edit(
        "cpu/awq/awq_cpu.cpp",
        """
      const uint32_t* words = p_.qzeros + group * (p_.n / AwqLayout::kPerWord);
""",
        """
      const int64_t row = MUTATED(AwqZeroRow) && group > 0 ? group - 1 : group;
      const uint32_t* words = p_.qzeros + row * (p_.n / AwqLayout::kPerWord);
""",
    ),
    Edit(
        "cpu/block_gemm/block_gemm_cpu.cpp",
        """
    const auto size = static_cast<float>(block.k);
""",
        """
    if (MUTATED(BlockSum)) std::fill_n(offset, columns, 0.f);
    const auto size = static_cast<float>(block.k);
""",
    ),
    Edit(
        "cpu/block_gemm/block_gemm_cpu.cpp",
        """
      const int32_t* given = p_.b_sums + g * p_.n;
""",
        """
      const int32_t* given = p_.b_sums + (MUTATED(GivenSum) ? 0 : g) * p_.n;
""",
    ),
    Edit(
        "cpu/call_shape.h",
        """
  int64_t units() const { return ceil_div(p.n, kernels.lanes); }
""",
        """
  int64_t units() const { return ceil_div(p.n, kernels.lanes) - (MUTATED(LastUnit) ? (1) : (0)); }
""",
    ),
    Edit(
        "cpu/call_shape.h",
        """
    return {values_.data() + offset, zeros() + offset, stride_, shape_.segments_per_group,
""",
        """
    const int64_t behind = MUTATED(GroupOffByOne) && shape_.groups_pad > 1 ? stride_ : 0;
    return {values_.data() + offset + behind, zeros() + offset, stride_, shape_.segments_per_group,
""",
    ),
    Edit(
        "cpu/grouped/grouped_gemm_cpu.cpp",
        """
  p.b_packed += expert * problem.packed_stride();
""",
        """
  const bool before = MUTATED(ExpertBefore) && expert > 0;
  p.b_packed += (before ? expert - 1 : expert) * problem.packed_stride();
""",
    ),
    Edit(
        "cpu/grouped/grouped_gemm_cpu.cpp",
        """
  const int64_t row_bytes = all.n * cpu::element_bytes(all.element);
""",
        """
  if (MUTATED(RowsOfNone)) return;
  const int64_t row_bytes = all.n * cpu::element_bytes(all.element);
""",
    ),
    Edit(
        "cpu/grouped/grouped_gemm_cpu.cpp",
        """
                                                     (end + behind) / count);
""",
        """
                                                     MUTATED(UnitsOfExperts)
                                                         ? end / count
                                                         : (end + behind) / count);
""",
    ),
    Edit(
        "cpu/conv/conv_int8.cpp",
        """
    if (p.weight_sums != nullptr) return p.weight_sums[channel];
""",
        """
    if (p.weight_sums != nullptr) {
      return p.weight_sums[MUTATED(GivenSum) ? 0 : channel];
    }
""",
    ),
    Edit(
        "cpu/conv/conv_int8.cpp",
        """
      to[j] = static_cast<int8_t>(static_cast<int32_t>((inside + kRounder) - kRounder));
""",
        """
      to[j] = static_cast<int8_t>(static_cast<int32_t>(
          MUTATED(Truncates) ? inside : (inside + kRounder) - kRounder));
""",
    ),
    Edit(
        "cpu/conv/patch_rows.h",
        """
        const int64_t x = left + kx * s_.dilation_w;
        if (y < 0 || y >= s_.in_h || x < 0 || x >= s_.in_w) {
          std::memset(to, outside_, tap_bytes_);
""",
        """
        const bool last = MUTATED(EdgeDilation) && kx == s_.kernel_w - 1;
        const int64_t x = left + kx * (last ? 1 : s_.dilation_w);
        if (y < 0 || y >= s_.in_h || x < 0 || x >= s_.in_w) {
          std::memset(to, MUTATED(PaddingValue) ? 0 : outside_, tap_bytes_);
""",
    ),
    Edit(
        "cpu/epilogue_cpu.h",
        """
      if (p.factor) {
""",
        """
      if (p.factor && !MUTATED(ColumnFactor)) {
""",
    ),
    Edit(
        "mainloop/gemm_config.cuh",
        """
    return p.factor;
""",
        """
    return MUTATED(ColumnFactor) ? nullptr : p.factor;
""",
    ),
    Edit(
        "cpu/epilogue_cpu.h",
        """
      if (p.bias) {
""",
        """
      if (MUTATED(ActivationFirst)) shape_.kernels.activate_row(p.activation, tile, count);
      if (p.bias && !(MUTATED(BiasOfRaggedTile) && count < columns)) {
""",
    ),
    Edit(
        "cpu/epilogue_cpu.h",
        """
      shape_.kernels.activate_row(p.activation, tile, count);
""",
        """
      if (!MUTATED(ActivationFirst)) shape_.kernels.activate_row(p.activation, tile, count);
""",
    ),
    Edit(
        "cpu/float8_avx512.h",
        """
    const __mmask16 small = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1p-6f), _CMP_LT_OQ);
""",
        """
    const __mmask16 small = _mm512_cmp_ps_mask(
        magnitude, _mm512_set1_ps((MUTATED(Float8Steps) ? (0.f) : (0x1p-6f))), _CMP_LT_OQ);
""",
    ),
    Edit(
        "cpu/gemm/activation_panel.cpp",
        """
  const int64_t real_k = std::max<int64_t>(0, std::min(k_end, p.k) - k_begin);
  const int64_t a_bytes = element_bytes(p.element);
  const auto* from = static_cast<const char*>(p.a) + (to.first * p.a_stride + k_begin) * a_bytes;
""",
        """
  const int64_t real_k = std::max<int64_t>(
      0, std::min(k_end, (MUTATED(KRoundedUp) ? (round_up(p.k, 8)) : (p.k))) - k_begin);
  const int64_t a_bytes = element_bytes(p.element);
  const auto* from =
      static_cast<const char*>(p.a) +
      ((MUTATED(PreviousRow) ? (std::max<int64_t>(to.first - p.m % 2, 0)) : (to.first)) *
           (MUTATED(LeadingDimension) ? (p.k) : (p.a_stride)) +
       k_begin) *
          a_bytes;
""",
    ),
    Edit(
        "cpu/gemm/activation_panel.cpp",
        """
    shape_.kernels.to_float({p.element, from, p.a_stride}, to.real, real_k,
                            reinterpret_cast<float*>(rows), kChunk);
  }
  for (int64_t r = 0; r < to.rows; ++r, from += p.a_stride * a_bytes) {
    uint32_t* row = rows + r * kChunk;
    const int64_t filled = r < to.real ? real_k : 0;
    if (depth == 2) std::memcpy(row, from, filled * 2);  // operands_for(): bf16, no pre_scale
    if (pre_scale) {
""",
        """
    shape_.kernels.to_float({p.element, from, (MUTATED(LeadingDimension) ? (p.k) : (p.a_stride))},
                            to.real, real_k, reinterpret_cast<float*>(rows), kChunk);
  }
  for (int64_t r = 0; r < to.rows;
       ++r, from += (MUTATED(LeadingDimension) ? (p.k) : (p.a_stride)) * a_bytes) {
    uint32_t* row = rows + r * kChunk;
    const int64_t filled =
        r < (MUTATED(TailRow) ? (to.real - (1 < to.real && to.real < block_rows_)) : (to.real))
            ? real_k
            : 0;
    if (depth == 2) std::memcpy(row, from, filled * 2);  // operands_for(): bf16, no pre_scale
    if ((MUTATED(PreScaleOfRows) ? (p.a_stride == p.k ? pre_scale : nullptr) : (pre_scale))) {
""",
    ),
    Edit(
        "cpu/gemm/activation_panel.cpp",
        """
    for (int r = 0; r < of.rows; ++r) sums[group * of.rows + r] = static_cast<float>(sum[r]);
""",
        """
    if ((MUTATED(MissingLastZero) ? (group > 0 && end == words_per_row()) : (false))) break;
    for (int r = 0; r < of.rows; ++r) sums[group * of.rows + r] = static_cast<float>(sum[r]);
""",
    ),
    Edit(
        "cpu/gemm/dense.cpp",
        """
  int64_t num_panels() const { return ceil_div(shape_.p.n, panel_columns_); }
""",
        """
  int64_t num_panels() const {
    return ceil_div(shape_.p.n, panel_columns_) - (MUTATED(LastPanel) ? (1) : (0));
  }
""",
    ),
    Edit(
        "cpu/kernels_portable.cpp",
        """
        for (int j = 0; j < kLanes; ++j) sum[r * kLanes + j] += x * weights[j];
      }
""",
        """
        for (int j = 0; j < kLanes; ++j) sum[r * kLanes + j] += x * weights[j];
        for (int j = 0; MUTATED(Float16Sums) && j < kLanes; ++j)
          sum[r * kLanes + j] = static_cast<float>(decode<Half>(encode<Half>(sum[r * kLanes + j])));
      }
""",
    ),
    Edit(
        "cpu/quantize/token_row.h",
        """
  return {scale, static_cast<int32_t>(-128 - std::nearbyint(low * (1 / scale)))};
""",
        """
  const float sign = MUTATED(AzpSign) ? -1 : 1;
  return {scale, static_cast<int32_t>(-128 - sign * std::nearbyint(low * (1 / scale)))};
""",
    ),
    Edit(
        "cpu/quantize/token_row.h",
        """
  if (std::isfinite(chosen.scale)) {
""",
        """
  if (MUTATED(RoundsHalfAway) && std::isfinite(chosen.scale)) {
    for (int64_t i = 0; i < k; ++i) {
      const float rounded =
          std::round(row[i] * (1 / chosen.scale)) + static_cast<float>(chosen.azp);
      q[i] = static_cast<int8_t>(std::clamp(rounded, -128.f, 127.f));
    }
  } else if (std::isfinite(chosen.scale)) {
""",
    ),
    Edit(
        "cpu/scaled_mm/epilogue_cpu.h",
        """
      const int64_t room = kLargestInt32 - kLargestProduct * p_.k;
""",
        """
      const int64_t of_row = MUTATED(AzpOfRow) ? std::max<int64_t>(row - 1, 0) : row;
      const int64_t room = kLargestInt32 - kLargestProduct * p_.k;
""",
    ),
    Edit(
        "cpu/scaled_mm/epilogue_cpu.h",
        """
      if (of_rows.azp) zero.azp = of_rows.azp[row];
      zero.fits = std::abs(zero.azp) <= room / std::max<int64_t>(1, largest_adjustment_);
""",
        """
      if (of_rows.azp) zero.azp = of_rows.azp[of_row];
      zero.fits = MUTATED(AzpWraps) ||
                  std::abs(zero.azp) <= room / std::max<int64_t>(1, largest_adjustment_);
""",
    ),
    Edit(
        "cpu/scaled_mm/epilogue_cpu.h",
        """
    const float scale_a = of_rows.scale[row * of_rows.stride];
""",
        """
    const bool before = MUTATED(ScaleOfRow) && row > 0 && row == p_.m - 1;
    const float scale_a = of_rows.scale[(before ? row - 1 : row) * of_rows.stride];
""",
    ),
    Edit(
        "cpu/scaled_mm/float8.h",
        """
    return p.scale_b + row * p.scale_b_stride;
""",
        """
    return p.scale_b + (MUTATED(Float8Columns) ? 0 : row) * p.scale_b_stride;
""",
    ),
    Edit(
        "cpu/call_shape.h",
        """
    return kernels.decodes(p.scheme.weight) &&
           (fits_bf16(p.scheme.weight) || p.element == ElementType::kBFloat16);
""",
        """
    return kernels.decodes(p.scheme.weight) &&
           (fits_bf16(p.scheme.weight) || MUTATED(BookInPairs) ||
            p.element == ElementType::kBFloat16);
""",
    ),
    Edit(
        "cpu/call_shape.h",
        """
    const uint32_t rest = (1u << (24 - spare)) - 1;
""",
        """
    const uint32_t rest = MUTATED(RoundedPairs) ? 0 : (1u << (24 - spare)) - 1;
""",
    ),
    Edit(
        "cpu/gemm/dense.cpp",
        """
        const auto& fill = scaled_ ? dense_.fill_scaled : dense_.fill;
""",
        """
        const auto& fill =
            scaled_ && !MUTATED(UnscaledSlab) ? dense_.fill_scaled : dense_.fill;
""",
    ),
    Edit(
        "cpu/vector_codes_avx2.h",
        """
    const __m256 more = _mm256_sub_ps(normal, _mm256_set1_ps(0x1p-6f));
""",
        """
    const __m256 more =
        _mm256_sub_ps(normal, _mm256_set1_ps(MUTATED(Avx2SmallFloat8) ? 0x1p-5f : 0x1p-6f));
""",
    ),
    Edit(
        "cpu/vector_codes_avx512.h",
        """
    constexpr __mmask32 kUpper = 0xaaaaaaaa;
""",
        """
    const __mmask32 kUpper = MUTATED(BookPair) ? 0 : 0xaaaaaaaa;
""",
    ),
    Edit(
        "cpu/vector_codes_avx512.h",
        """
    const __m512i magnitude =
        _mm512_mask_permutexvar_epi16(normal, is_small, _mm512_srli_epi16(word, kAt),
""",
        """
    const __m512i magnitude = _mm512_mask_permutexvar_epi16(
        normal, MUTATED(Avx512SmallFloat8) ? 0 : is_small, _mm512_srli_epi16(word, kAt),
""",
    ),
    Edit(
        "cpu/vector_avx2.h",
        """
      const Words rounded =
          _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
""",
        """
      const Words tie = MUTATED(Avx2Ties) ? _mm256_set1_epi32(1) : odd;
      const Words rounded =
          _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), tie);
""",
    ),
)
