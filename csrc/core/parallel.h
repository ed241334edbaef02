// A loop on torch's threads for code that knows no torch: ops/ passes torch's parallel_for, tests
// pass a plain loop.
#pragma once
#include <cstdint>
#include <functional>

namespace mixed_gemm {

// Calls body(b, e) on disjoint ranges that cover [begin, end), each of at least `grain` iterations
// but the last.
using LoopBody = std::function<void(int64_t begin, int64_t end)>;
using ParallelFor =
    std::function<void(int64_t begin, int64_t end, int64_t grain, const LoopBody& body)>;

inline void serial_for(int64_t begin, int64_t end, int64_t /*grain*/, const LoopBody& body) {
  if (begin < end) body(begin, end);
}

}  // namespace mixed_gemm
