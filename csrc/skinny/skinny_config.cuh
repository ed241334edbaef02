// One compiled skinny kernel as a type.
#pragma once
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool kBeforeSm90 = true;
#else
constexpr bool kBeforeSm90 = false;
#endif

template <typename Element_, int kBits_, ScaleMode kMode_, int kRow_>
struct SkinnyGemmConfig {
  using Element = Element_;
  using Format = typename FormatOf<Element>::Type;
  static constexpr int kBits = kBits_;
  static constexpr ScaleMode kMode = kMode_;
  static constexpr SkinnyConfig kRow = kSkinnyConfigs[kRow_];

  static constexpr int kThreads = kRow.warps * 32;
  static constexpr int kMTiles = kRow.m_tiles, kNTiles = kRow.n_tiles;
  static constexpr int kM = 8 * kMTiles, kN = 16 * kNTiles;  // of a block
  static constexpr int kBlockK = 128 / kBits;                // elements in the 16 bytes of a lane
  static constexpr int kIterationK = skinny_iteration_k(kBits);
  static constexpr int kVectors = kBlockK / 8;  // 16-byte activation vectors of a lane
  static constexpr bool kScaled = kMode != ScaleMode::kPerChannel;
  static constexpr bool kFine = kMode == ScaleMode::kFine || kMode == ScaleMode::kFineZero;
  static constexpr bool kCoarse = kScaled && !kFine;
  static constexpr bool kZeros = has_zeros(kMode);

  // Warps of an SM hide each other's latency, so registers are capped for as many as do not spill.
  static constexpr bool kHeavy = kFine || (Format::kMantissaBits == BFloat16::kMantissaBits &&
                                           (kBits == 8 || (kZeros && kBeforeSm90)));
  static constexpr int kTiles = kMTiles * kNTiles;
  static constexpr int kResidentWarps = kTiles == 1   ? (kFine ? 24 : 32)
                                        : kTiles == 4 ? (kHeavy ? 8 : 16)
                                                      : (kHeavy || kMTiles == 2 ? 16 : 24);
  static constexpr int kMinBlocks = kResidentWarps / kRow.warps;
};

}  // namespace mixed_gemm
