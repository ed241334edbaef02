// A loop that shows what turns on the threads.
#pragma once
#include <algorithm>
#include <thread>
#include <vector>

#include "core/parallel.h"

namespace mixed_gemm::test {

// One thread for every few iterations, last range first.
inline void scattered_for(int64_t begin, int64_t end, int64_t /*grain*/, const LoopBody& body) {
  std::vector<std::thread> threads;
  for (int64_t stop = end; stop > begin; stop -= 3) {
    threads.emplace_back([&body, begin, stop] { body(std::max(begin, stop - 3), stop); });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace mixed_gemm::test
