// Memory that ends where a page without access begins: one byte read or written behind it is a
// crash, with or without a sanitizer.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace mixed_gemm::test {

class GuardedBytes {
 public:
  explicit GuardedBytes(int64_t size) {
    const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size + page - 1) / page * page + page;
    void* memory = mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    memory_ = static_cast<uint8_t*>(memory);
    if (mprotect(memory_ + mapped_ - page, static_cast<size_t>(page), PROT_NONE) != 0) {
      throw std::runtime_error("mprotect");
    }
    data_ = memory_ + mapped_ - page - size;
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { munmap(memory_, static_cast<size_t>(mapped_)); }

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  uint8_t *memory_, *data_;
  int64_t mapped_;
};

}  // namespace mixed_gemm::test
