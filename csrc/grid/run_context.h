// The context in which a family runs a problem: device, stream, memory, torch's operators.
#pragma once
#include <cstdint>
#include <functional>

#include "core/device.h"
#include "core/status.h"

namespace mixed_gemm {

// Device memory that lives at least until the launched work is done (ops/ passes torch's caching
// allocator).
using Allocate = std::function<void*(int64_t bytes)>;

struct RunContext {
  const DeviceInfo& device;  // the current one
  void* stream;              // cudaStream_t
  Allocate allocate;
  // Torch's own operators, which ops/ calls: the product or the convolution of dequantized
  // weights, or the product of float8 operands as they are; a pointwise convolution, whose pixels
  // become the rows of a GEMM; and the product of float8 operands block by block.
  std::function<Status()> dense, pointwise, dense_blocks;
};

}  // namespace mixed_gemm
