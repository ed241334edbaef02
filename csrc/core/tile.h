// A threadblock tile as a row of a family's table, and what every family derives from it.
#pragma once
#include <cstdint>

namespace mixed_gemm {

constexpr int kTileK =
    64;  // one 128-byte line of the packed weight, and 128 bytes of a 16-bit activation row

struct TileConfig {
  int m, n;             // threadblock tile; its K is kTileK
  int warp_m, warp_n;   // warp tile; warps that share columns convert the same weights again
  int stages;           // cp.async pipeline depth
  int min_blocks;       // resident on an SM: caps the registers
  int k_slices = 1;     // above 1: so many warps, each with stages and a part of K of its own, for
                        // the whole tile (warp_m, warp_n: the tile's)
  int int8_stages = 0;  // of int8 weights, where not `stages`: these have nearly twice the bytes
  int k_tiles = 1;      // of a stage, and of a part of K that is shared out (wgmma)
};

// What blocks share out of K, at least.
constexpr int64_t unit_k(const TileConfig& t) { return int64_t{t.k_tiles} * kTileK; }

constexpr int num_stages(const TileConfig& t, int bits) {
  return bits == 8 && t.int8_stages > 0 ? t.int8_stages : t.stages;
}

constexpr int num_threads(const TileConfig& t) {
  return t.m / t.warp_m * (t.n / t.warp_n) * t.k_slices * 32;
}

constexpr int kMaxWarps = 32;  // of a block; each keeps count of its work in shared memory
constexpr int kMmaK = 16;      // of mma.m16n8k16

}  // namespace mixed_gemm
