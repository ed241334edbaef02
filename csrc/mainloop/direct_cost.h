// The predicted time of tiles of the direct mainloop (8-bit operands,
// mainloop/direct_mainloop.cuh). One model serves scaled_mm, block_quant_gemm and
// qconv2d_int8.
#pragma once
#include "core/choice.h"
#include "core/device.h"

namespace mixed_gemm {

struct DirectWork {
  TileConfig tile;
  int smem_bytes = 0;  // of a block
  int64_t m = 0, n = 0, k = 0;
  int64_t parts = 0;         // of K that can be shared out ...
  int64_t part_lines = 1;    // ... each of so many lines of kScaledTileK
  double more_products = 0;  // that the tensor cores could have multiplied as well, over m * n * k
};

double predict_direct_us(const Choice& choice, const DirectWork& work, const DeviceInfo& device);

}  // namespace mixed_gemm
