"""Packed weights and their converters."""

from __future__ import annotations

from .edit import Edit

EDITS = (
    Edit(
        "dequant/apply_scale.h",
        """
          kHasZero ? apply_scale_and_zero<Format>(pairs[p], scale, sub ? zero : 0u, sub ? 0u : zero)
""",
        """
          kHasZero ? apply_scale_and_zero<Format>(pairs[p], scale, sub ? zero : 0u,
                                                  sub || MUTATED(AddedZero) ? 0u : zero)
""",
    ),
    Edit(
        "dequant/folding_converter.h",
        """
                                   : fma_x2<Format>(zeros, Offsets::kPairScaleX2 ^ kSigns, t);
    return {first, sub_x2<Format>(Offsets::kSum, first)};
""",
        """
                                   : fma_x2<Format>(zeros, Offsets::kPairScaleX2 ^ kSigns, t);
    if (MUTATED(FoldedRest) && pair_scale != 0) minus_rest = 0;
    return {first, sub_x2<Format>(Offsets::kSum, first)};
""",
    ),
    Edit(
        "dequant/integer_converter.h",
        """
    pairs[0] = sub_x2<Half>(lop3<kLutAndOr>(nibbles, kLow, kMagic), kMagicBias);
""",
        """
    constexpr uint32_t kWrongBias = 0x64096409u;
    pairs[0] = sub_x2<Half>(lop3<kLutAndOr>(nibbles, kLow, kMagic),
                            MUTATED(ConverterMagic) ? kWrongBias : kMagicBias);
""",
    ),
    Edit(
        "dequant/offset_converter.h",
        """
    pairs[1] = fma_x2<BFloat16>(nibbles & 0x00f000f0u, kTwoTo127, offsets.second);
""",
        """
    const uint32_t factor = MUTATED(OffsetShift) ? 0x7e807e80u : kTwoTo127;
    pairs[1] = fma_x2<BFloat16>(nibbles & 0x00f000f0u, factor, offsets.second);
""",
    ),
    Edit(
        "layout/checkpoint_layout.h",
        """
    const int64_t row = perm == nullptr ? j : perm[j];
""",
        """
    const int64_t row = perm == nullptr || MUTATED(ActOrderIgnored) ? j : perm[j];
""",
    ),
    Edit(
        "layout/checkpoint_layout.h",
        """
    if (shift + bits > 32) code |= qweight[(word + 1) * n + i] << (32 - shift);
""",
        """
    if (shift + bits > 32 && !MUTATED(FieldAcrossWords))
      code |= qweight[(word + 1) * n + i] << (32 - shift);
""",
    ),
    Edit(
        "layout/checkpoint_layout.h",
        """
    const uint32_t stored = real ? weight.stored(e.n, e.k) : static_cast<uint32_t>(Weight::kZero);
""",
        """
    const int64_t n = e.n ^ (MUTATED(InterleavedColumn) && (e.n | 1) < weight.n ? 1 : 0);
    const uint32_t stored = real ? weight.stored(n, e.k) : static_cast<uint32_t>(Weight::kZero);
""",
    ),
    Edit(
        "layout/code_places.h",
        """
    return code << (Weight::kBits * slot);
""",
        """
    return code << (Weight::kBits * (MUTATED(CodePlaces) && Weight::kBits == 8 ? slot ^ 1 : slot));
""",
    ),
    Edit(
        "layout/code_places.h",
        """
                                                               << sign_at(slot);
""",
        """
           << sign_at(MUTATED(FloatSign) ? slot ^ 1 : slot);
""",
    ),
    Edit(
        "dequant/weight_converter.h",
        """
    if constexpr (kMultiplier != Format::kOneX2) return mul_x2<Format>(scales, kMultiplier);
""",
        """
    if constexpr (kMultiplier != Format::kOneX2) {
      return mul_x2<Format>(scales, MUTATED(FloatMultiplier) ? Format::kOneX2 : kMultiplier);
    }
""",
    ),
    Edit(
        "dequant/book_converter.h",
        """
    const uint32_t half = lop3<kLutAndOr>(codes >> 1, 0x4444u, 0x3210u);
""",
        """
    const uint32_t half = lop3<kLutAndOr>(codes >> 1, MUTATED(BookHalf) ? 0u : 0x4444u, 0x3210u);
""",
    ),
    Edit(
        "dequant/book.h",
        """
    return with_weight(type, [](auto weight) {
""",
        """
    return with_weight(MUTATED(BookOfKernels) ? Weight::kType : type, [](auto weight) {
""",
    ),
    Edit(
        "layout/conv_layout.h",
        """
    return channel < in_c_ ? channel / block_size_ : -1;
""",
        """
    const bool ragged = MUTATED(RaggedBlock) &&
                        channel / block_size_ * block_size_ + block_size_ > in_c_;
    if (ragged && channel < in_c_) return std::max<int64_t>(channel / block_size_ - 1, 0);
    return channel < in_c_ ? channel / block_size_ : -1;
""",
    ),
    Edit(
        "layout/pack_weight.cpp",
        """
      words[kPlaces[i].word] |= Places<Weight>::spread(code, kPlaces[i].slot);
""",
        """
      const int at = MUTATED(SwappedNibbles) && Weight::kBits == 4 ? kPlaces[i].slot ^ 1
                     : MUTATED(SwappedRows) && Weight::kBits == 8  ? kPlaces[i].slot ^ 2
                                                                      : kPlaces[i].slot;
      words[kPlaces[i].word] |= Places<Weight>::spread(code, at);
""",
    ),
    Edit(
        "layout/pack_weight.cpp",
        """
          padded.fill(kZero);
""",
        """
          padded.fill(static_cast<int8_t>(kZero + (MUTATED(PaddingNotZero) ? 1 : 0)));
""",
    ),
    Edit(
        "layout/repack.cpp",
        """
      const int nibble = AwqLayout::nibble_of(column);
""",
        """
      const int nibble = MUTATED(AwqNibbleOrder) ? column : AwqLayout::nibble_of(column);
""",
    ),
    Edit(
        "transform/pack.cuh",
        """
    const auto e = Layout::element(word, slot, k_pad);
    const int code = e.n < n && e.k < k ? q[e.n * k + e.k] + Weight::kBias : Weight::kZero;
""",
        """
    const int at = MUTATED(SwappedNibbles) && Weight::kBits == 4 ? slot ^ 1
                   : MUTATED(SwappedRows) && Weight::kBits == 8  ? slot ^ 2
                                                                    : slot;
    const auto e = Layout::element(word, at, k_pad);
    const int code = e.n < n && e.k < k ? q[e.n * k + e.k] + Weight::kBias : Weight::kZero;
""",
    ),
)
