// Uninitialised scratch floats on a cache line, freed with the scope.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace mixed_gemm::cpu {

class AlignedBuffer {
 public:
  explicit AlignedBuffer(int64_t count)
      : data_(static_cast<float*>(::operator new[](static_cast<size_t>(count) * sizeof(float),
                                                   std::align_val_t{kAlignment}))) {}
  float* data() const { return data_.get(); }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<float[], Free> data_;
};

}  // namespace mixed_gemm::cpu
