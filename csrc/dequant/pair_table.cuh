// Packed codes of a book -> fp16 or bf16 pairs by a table in shared memory: each byte of a word is
// a pair of codes, and the table has all 256 pairs of values. It lies there 32 times, so that lane
// i reads bank i and a load of a warp takes one cycle whatever the codes are. A word of 8 weights
// takes 12 instructions, in three pipes, where dequant/book_converter.h takes 22 in one; and 8
// where the table is wide: its entries are 256 bytes apart, so that a byte of a word is the second
// byte of an address as it is.
#pragma once
#include <cstdint>

#include "dequant/book_converter.h"

namespace mixed_gemm {

template <bool kWide>
struct PairTableStorage {
  static constexpr int kPairs = 256, kLanes = 32;
  alignas(128) uint32_t pairs[kPairs][kWide ? 2 * kLanes : kLanes];
};

template <typename Format, bool kWide>
class PairTable {
 public:
  using Storage = PairTableStorage<kWide>;
  static_assert(sizeof(Storage) == pair_table_bytes(kWide), "what tables of tiles count with");

  static constexpr float kPairScale = 1.f;
  static constexpr int kRatio = 1, kBias = 0, kResultScale = 1;
  static constexpr uint32_t kPairScaleX2 = 0;  // no zero points

  // Fills the table: by all of `threads` threads, which meet before one of them reads it.
  static __device__ void fill(Storage& storage, const Book& book, int thread, int threads) {
    const BookConverter<Format> converter(book);
    constexpr int kParts = Storage::kLanes / 4;  // of a pair: a thread writes 16 bytes
    for (int i = thread; i < Storage::kPairs * kParts; i += threads) {
      uint32_t pairs[2];  // the first one is of the lowest byte
      converter.convert_step(i / kParts, 0, pairs);
      const uint4 part = {pairs[0], pairs[0], pairs[0], pairs[0]};
      reinterpret_cast<uint4*>(storage.pairs[i / kParts])[i % kParts] = part;
    }
  }

  // Made once all threads have met, and not before: its loads are no volatile ones, so that they
  // can be scheduled, and it is the opaque offset that keeps them behind.
  explicit __device__ PairTable(const Storage& storage)
      : table_(static_cast<uint32_t>(__cvta_generic_to_shared(&storage))),
        lane_(threadIdx.x % Storage::kLanes * 4) {
    asm volatile("" : "+r"(lane_));
  }

  __device__ void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) const {
    pairs[0] = step == 0 ? load<0>(word) : load<2>(word);
    pairs[1] = step == 0 ? load<1>(word) : load<3>(word);
  }

 private:
  template <int kByte>
  __device__ uint32_t load(uint32_t word) const {
    constexpr uint32_t kEntryBytes = sizeof(Storage) / Storage::kPairs;
    uint32_t offset, pair;
    if constexpr (kWide) {
      static_assert(kEntryBytes == 256, "a byte further up");
      offset = prmt<0x7604 + 0x10 * kByte>(word, lane_);
    } else {
      // As a product, which is no work for the pipe of prmt.
      const uint32_t byte = prmt<0x4440 + kByte>(word, 0u);
      asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(offset) : "r"(byte), "n"(kEntryBytes), "r"(lane_));
    }
    asm("ld.shared.b32 %0, [%1];" : "=r"(pair) : "r"(table_ + offset));
    return pair;
  }

  uint32_t table_, lane_;  // where it begins, and this lane's bank
};

}  // namespace mixed_gemm
