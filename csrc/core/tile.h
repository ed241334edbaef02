// A threadblock tile as a row of a family's table, and the numbers that every family derives.
#pragma once
#include <cstdint>

#include "core/weight_type.h"

namespace mixed_gemm {

// One 128-byte line of the packed weight, and 128 bytes of a 16-bit activation row.
constexpr int kTileK = 64;

// When a wgmma kernel runs the loop that takes zero points of groups of whole k-tiles to be whole
// numbers: never; where the first group of a run has whole ones; or always, and fractions are added
// behind it.
enum class ZeroLoop : int { kNone, kAsked, kAlways };

// Which scale modes leave room for one wgmma block on an SM.
enum class Alone : int { kNever, kWithZeros, kWithScales };

// The scale modes that a property of a tile holds for: per channel, groups, and either with zero
// points (the scaled family has one mode, for which it is all or none).
enum class ForModes : int { kNone = 0, kChannels = 1, kGroups = 2, kZeros = 4, kAll = 7 };
constexpr ForModes operator|(ForModes a, ForModes b) {
  return static_cast<ForModes>(static_cast<int>(a) | static_cast<int>(b));
}
constexpr bool includes(ForModes modes, ForModes one) {
  return (static_cast<int>(modes) & static_cast<int>(one)) != 0;
}

struct TileConfig {
  int m = 0, n = 0;            // threadblock tile; its K is kTileK
  int warp_m = 0, warp_n = 0;  // warp tile (wgmma: of a warpgroup); warps that share columns
                               // convert the same weights again
  int stages = 0;              // cp.async pipeline depth
  int int8_stages = 0;         // of weights of 8 bits, which have nearly twice the bytes
  int min_blocks = 1;          // resident on an SM: caps the registers
  int k_warps = 1;           // above 1: so many warps, each with stages and a part of K of its own,
                             // for the whole tile (warp_m, warp_n: the tile's)
  int k_tiles = 1;           // of a stage, and of a part of K that is shared out (wgmma)
  bool scales_sums = false;  // scales of whole k-tiles meet fp32 sums, not weights
  bool halves = false;       // has kernels for a scale for each half of a k-tile
  ForModes plain = ForModes::kNone;  // CUTLASS's own kernel runs where K is not split: see
                                     // plain_kernel.cuh (multistage, scaled)
  ForModes stream_k_apart =
      ForModes::kNone;                   // the other splits have a kernel without it (multistage)
  int scale_rows = 4;                    // the most in a k-tile (wgmma)
  ZeroLoop zero_loop = ZeroLoop::kNone;  // (wgmma)
  Alone alone = Alone::kNever;           // (wgmma)
};

// A row of a table in words: Tile(16, 128).warp(16, 32).stages(6).blocks(4).
class Tile {
 public:
  constexpr Tile(int m, int n) {
    config_.m = m;
    config_.n = n;
  }
  constexpr Tile warp(int m, int n) const {
    return with(&TileConfig::warp_m, m).with(&TileConfig::warp_n, n);
  }
  constexpr Tile stages(int count) const {
    return with(&TileConfig::stages, count).with(&TileConfig::int8_stages, count);
  }
  constexpr Tile int8_stages(int count) const { return with(&TileConfig::int8_stages, count); }
  constexpr Tile blocks(int of_an_sm) const { return with(&TileConfig::min_blocks, of_an_sm); }
  constexpr Tile k_warps(int count) const { return with(&TileConfig::k_warps, count); }
  constexpr Tile k_tiles(int of_a_stage) const { return with(&TileConfig::k_tiles, of_a_stage); }
  constexpr Tile scales_sums() const { return with(&TileConfig::scales_sums, true); }
  constexpr Tile halves() const { return with(&TileConfig::halves, true); }
  constexpr Tile plain(ForModes modes) const { return with(&TileConfig::plain, modes); }
  constexpr Tile stream_k_apart(ForModes modes) const {
    return with(&TileConfig::stream_k_apart, modes);
  }
  constexpr Tile scale_rows(int most) const { return with(&TileConfig::scale_rows, most); }
  constexpr Tile zero_loop(ZeroLoop how) const { return with(&TileConfig::zero_loop, how); }
  constexpr Tile alone(Alone when) const { return with(&TileConfig::alone, when); }

  constexpr operator TileConfig() const { return config_; }

 private:
  template <typename Value>
  constexpr Tile with(Value TileConfig::*field, Value value) const {
    Tile changed = *this;
    changed.config_.*field = value;
    return changed;
  }

  TileConfig config_;
};

// The K of a work step, the least that blocks share out (grid/work_split.h).
constexpr int64_t work_step_k(const TileConfig& t) { return int64_t{t.k_tiles} * kTileK; }

constexpr int num_stages(const TileConfig& t, WeightType weight) {
  return bits_of(weight) > 4 ? t.int8_stages : t.stages;
}

constexpr int num_threads(const TileConfig& t) {
  return t.m / t.warp_m * (t.n / t.warp_n) * t.k_warps * 32;
}

constexpr int kMaxWarps = 32;  // of a block; each keeps count of its work in shared memory
constexpr int kMmaK = 16;      // of mma.m16n8k16

}  // namespace mixed_gemm
