#pragma once

namespace mixed_gemm {

constexpr int kPlainRows = 8;   // of a row block, which a warp multiplies by one column of weights
constexpr int kPlainWarps = 8;  // of a thread block, one for each column

}  // namespace mixed_gemm
