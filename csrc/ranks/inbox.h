// Where the terms that ranks send each other lie, and the epochs that say that they have come: as
// functions that the kernels and a test with threads share (tests/cpp/test_inbox.cpp).
//
// Every rank owns an inbox, into which the others write their terms and which it alone reads. Sums
// are counted by epochs, from 1 on, and the terms of an epoch lie in slot epoch % 2. Two slots are
// enough: who writes epoch e + 2 has finished e + 1, so it has received e + 1 of all, which each of
// them sent after it had finished e and read all of that slot. For this all ranks make the same
// calls in the same order, each on one stream.
//
// Messages of few bytes travel in units of 16 bytes, two words of 8 of which each holds 4 bytes of
// data and the low half of the epoch: a word arrives whole, so it says itself that it has come.
// Messages of many bytes travel as they are, in chunks, each with an epoch behind it.
#pragma once
#include <cstdint>

#include "core/macros.h"

namespace mixed_gemm {

constexpr int kMostRanks = 8;
constexpr int kPieceBytes = 16;          // what a thread takes of a term at once
constexpr int64_t kFewPieces = 1 << 15;  // of the longest message of few bytes: 512 KiB
constexpr int64_t kChunkPieces = 1024;   // 16 KiB

// The others of a group, in order: the entries of an inbox, and whom a rank writes to.
constexpr MIXED_GEMM_HOST_DEVICE int entry_of(int source, int owner) {
  return source - (source > owner ? 1 : 0);
}
constexpr MIXED_GEMM_HOST_DEVICE int source_of(int entry, int owner) {
  return entry + (entry >= owner ? 1 : 0);
}

struct Unit {
  uint64_t words[2];
};
struct Piece {  // of a term, as it is in memory
  uint32_t data[4];
};

// A unit with half 0 or 1 of a piece.
constexpr MIXED_GEMM_HOST_DEVICE Unit packed_unit(const Piece& piece, int half, uint64_t epoch) {
  const uint64_t flag = epoch << 32;
  return {{flag | piece.data[2 * half], flag | piece.data[2 * half + 1]}};
}
MIXED_GEMM_HOST_DEVICE bool has_come(const Unit& unit, uint64_t epoch) {
  const uint64_t flag = epoch << 32;
  return ((unit.words[0] ^ flag) >> 32) == 0 && ((unit.words[1] ^ flag) >> 32) == 0;
}
constexpr MIXED_GEMM_HOST_DEVICE Piece unpacked(const Unit& first, const Unit& second) {
  return {{static_cast<uint32_t>(first.words[0]), static_cast<uint32_t>(first.words[1]),
           static_cast<uint32_t>(second.words[0]), static_cast<uint32_t>(second.words[1])}};
}

// Half an epoch comes again after 2^32 sums, which takes hours. In two epochs of every 2^31, one
// for each slot, a rank writes all of its units, so that none holds a half so old.
MIXED_GEMM_HOST_DEVICE bool writes_all_units(uint64_t epoch) {
  constexpr uint64_t kPeriod = uint64_t{1} << 31;
  return epoch % kPeriod >= kPeriod - 2;
}

// Offsets in bytes, all of them multiples of 16. Units are first, by [slot][entry], then epochs of
// chunks, then chunks. Epochs and data share no place: data may look like any epoch.
struct InboxLayout {
  int peers = 0;       // ranks - 1
  int64_t chunks = 0;  // of the longest message of many bytes

  static constexpr int64_t kUnitsBytes = kFewPieces * 2 * static_cast<int64_t>(sizeof(Unit));
  static constexpr int64_t kChunkBytes = kChunkPieces * kPieceBytes;
  static constexpr int64_t kChunkWithEpoch = kChunkBytes + static_cast<int64_t>(sizeof(uint64_t));

  // The layout of the longest message for so many bytes of inbox; no chunks if there are too few.
  static constexpr InboxLayout of_bytes(int64_t bytes, int ranks) {
    const int64_t left = bytes / (2 * (ranks - 1)) - kUnitsBytes;
    return {ranks - 1, left > 0 ? left / kChunkWithEpoch : 0};
  }
  constexpr int64_t bytes() const { return 2 * peers * (kUnitsBytes + chunks * kChunkWithEpoch); }
  constexpr int64_t most_bytes() const { return chunks * kChunkBytes; }

  MIXED_GEMM_HOST_DEVICE int64_t place(uint64_t epoch, int entry) const {
    return static_cast<int64_t>(epoch % 2) * peers + entry;
  }
  // Neighbouring pieces lie beside each other, so that a warp writes whole lines.
  MIXED_GEMM_HOST_DEVICE int64_t unit(uint64_t epoch, int entry, int64_t piece, int half) const {
    return place(epoch, entry) * kUnitsBytes +
           (half * kFewPieces + piece) * static_cast<int64_t>(sizeof(Unit));
  }
  MIXED_GEMM_HOST_DEVICE int64_t epoch_of_chunk(uint64_t epoch, int entry, int64_t chunk) const {
    return 2 * peers * kUnitsBytes +
           (place(epoch, entry) * chunks + chunk) * static_cast<int64_t>(sizeof(uint64_t));
  }
  MIXED_GEMM_HOST_DEVICE int64_t piece(uint64_t epoch, int entry, int64_t piece) const {
    return 2 * peers * (kUnitsBytes + chunks * static_cast<int64_t>(sizeof(uint64_t))) +
           place(epoch, entry) * chunks * kChunkBytes + piece * kPieceBytes;
  }
};

}  // namespace mixed_gemm
