// The rows of experts cut into blocks of a tile's height, by a kernel: offsets lie on the device,
// and the host never waits for them.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/device.h"
#include "core/quant_scheme.h"

namespace mixed_gemm {

// Rows row0 to row_end - 1 of an expert, at most as many as a tile has.
struct alignas(16) RowBlock {
  int expert, row0, row_end;
};

// Rows of experts as kernels find them by themselves (grouped/find_rows.cuh).
struct GroupedRows {
  const int32_t* offs = nullptr;  // [experts]: where the rows of each end, any numbers
  int experts = 0, rows = 0;
};

// A list of row blocks as kernels read it.
struct RowBlocks {
  const RowBlock* first = nullptr;
  const int* count = nullptr;
};

// The most blocks of `tile` rows that any offsets make: each expert with rows may have one block
// that is not full.
inline int64_t most_row_blocks(int64_t rows, int64_t experts, int64_t tile) {
  return rows / tile + std::min(rows, experts);
}

struct RowBlocksArgs : GroupedRows {
  int tile = 0;
  RowBlock* blocks = nullptr;  // [most_row_blocks()]
  int* count = nullptr;
  void* d = nullptr;  // [rows, row_bytes]: rows of no expert become 0
  int64_t row_bytes = 0;
  Pdl pdl;
  void* stream = nullptr;
};

int launch_row_blocks(const RowBlocksArgs& args);  // returns a cudaError_t

}  // namespace mixed_gemm
