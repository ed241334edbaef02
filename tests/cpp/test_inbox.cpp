// also: nvcc
// Sums over ranks that are threads, by the places and flags of ranks/inbox.h: blocks of a rank run
// in any order, messages change in size from epoch to epoch, and epochs begin where half of one
// comes again. Chunks are written without atomics here, so a thread sanitizer sees whether their
// epochs order them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "ranks/inbox.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kPiecesOfBlock = 256;  // of few bytes; of many a block has whole chunks

struct Message {
  int64_t pieces;
  bool few;
  int64_t of_block() const { return few ? kPiecesOfBlock : kChunkPieces; }
  int64_t blocks() const { return (pieces + of_block() - 1) / of_block(); }
};

// The state that all ranks share: their inboxes, and which epoch each of them has finished.
struct Group {
  Group(int ranks, int64_t chunks, uint64_t before)
      : ranks(ranks), layout{ranks - 1, chunks}, done(static_cast<size_t>(ranks)) {
    for (auto& epoch : done) epoch = before;
    const auto words = static_cast<size_t>(layout.bytes()) / sizeof(uint64_t);
    for (int i = 0; i < ranks; ++i) inboxes.emplace_back(new uint64_t[words]());
  }
  std::atomic<uint64_t>* atomic(int rank, int64_t offset) {
    static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
    return reinterpret_cast<std::atomic<uint64_t>*>(plain(rank, offset));
  }
  uint64_t* plain(int rank, int64_t offset) {
    return inboxes[static_cast<size_t>(rank)].get() + offset / 8;
  }
  int ranks;
  InboxLayout layout;
  std::vector<std::unique_ptr<uint64_t[]>> inboxes;
  std::vector<std::atomic<uint64_t>> done;
  std::atomic<int> wrong{0}, overwritten{0};
};

// Any number may be data, also one that looks like an epoch.
Piece term_of(int rank, uint64_t epoch, int64_t piece) {
  Piece term;
  for (int i = 0; i < 4; ++i) {
    const uint64_t mixed = (epoch * 1000003 + static_cast<uint64_t>(piece)) * 31 +
                           static_cast<uint64_t>(rank * 4 + i) * 2654435761u;
    term.data[i] = static_cast<uint32_t>(piece % 3 == 0 ? epoch : mixed ^ (mixed >> 17));
  }
  return term;
}

// The sum of one rank in one epoch, as sum_over_ranks.cuh computes it.
class Sum {
 public:
  Sum(Group& group, int rank, uint64_t epoch, Message message, std::mt19937& random)
      : group_(group), rank_(rank), epoch_(epoch), message_(message), random_(random) {}

  void run() {
    const auto blocks = static_cast<size_t>(message_.blocks());
    std::vector<size_t> left(blocks);
    std::vector<bool> sent(blocks, false);
    for (size_t i = 0; i < blocks; ++i) left[i] = i;
    if (writes_all_units(epoch_)) write_units_behind(message_.few ? message_.pieces : 0);
    // Blocks run in any order, and each sends before it waits. A fault may leave one waiting.
    while (!left.empty() && group_.overwritten == 0) {
      const size_t at = random_() % left.size(), block = left[at];
      if (!sent[block]) {
        send(static_cast<int64_t>(block));
        sent[block] = true;
      } else if (received(static_cast<int64_t>(block))) {
        left[at] = left.back();
        left.pop_back();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  struct Span {
    int64_t first, last;
  };
  Span span(int64_t block) const {
    const int64_t first = block * message_.of_block();
    return {first, std::min(first + message_.of_block(), message_.pieces)};
  }

  // The words of a unit may arrive in any order, with time between them.
  void send_unit(int peer, int64_t piece, int half, const Piece& term) {
    const Unit unit = packed_unit(term, half, epoch_);
    auto* to = group_.atomic(peer, group_.layout.unit(epoch_, entry_of(rank_, peer), piece, half));
    const unsigned drawn = random_();
    for (int i = 0; i < 2; ++i) {
      const int word = i ^ static_cast<int>(drawn % 2);
      const uint64_t old = to[word].load(std::memory_order_relaxed) >> 32;
      for (const uint64_t epoch : {epoch_ - 1, epoch_ - 2}) {
        if (old == static_cast<uint32_t>(epoch)) check_read(peer, epoch);
      }
      to[word].store(unit.words[word], std::memory_order_relaxed);
      if (drawn % 64 < 2) std::this_thread::yield();
    }
  }

  // Checks that the reader is done with what is about to be overwritten.
  void check_read(int peer, uint64_t epoch) {
    if (group_.done[static_cast<size_t>(peer)] < epoch) ++group_.overwritten;
  }

  void write_units_behind(int64_t first) {
    for (int entry = 0; entry < group_.layout.peers; ++entry) {
      for (int64_t i = first; i < kFewPieces; ++i) {
        for (int half = 0; half < 2; ++half) send_unit(source_of(entry, rank_), i, half, {});
      }
    }
  }

  void send(int64_t block) {
    for (int entry = 0; entry < group_.layout.peers; ++entry) {
      const int peer = source_of(entry, rank_), mine = entry_of(rank_, peer);
      auto* sent = group_.atomic(peer, group_.layout.epoch_of_chunk(epoch_, mine, block));
      if (!message_.few) check_read(peer, sent->load(std::memory_order_relaxed));
      for (int64_t i = span(block).first; i < span(block).last; ++i) {
        const Piece term = term_of(rank_, epoch_, i);
        if (message_.few) {
          for (int half = 0; half < 2; ++half) send_unit(peer, i, half, term);
        } else {
          std::memcpy(group_.plain(peer, group_.layout.piece(epoch_, mine, i)), &term, sizeof term);
        }
      }
      if (!message_.few) sent->store(epoch_, std::memory_order_release);
    }
  }

  bool received(int64_t block) {
    for (int entry = 0; entry < group_.layout.peers; ++entry) {
      if (message_.few) continue;
      const auto* came = group_.atomic(rank_, group_.layout.epoch_of_chunk(epoch_, entry, block));
      if (came->load(std::memory_order_acquire) != epoch_) return false;
    }
    for (int64_t i = span(block).first; i < span(block).last; ++i) {
      for (int entry = 0; entry < group_.layout.peers; ++entry) {
        Piece got;
        if (message_.few) {
          Unit units[2];
          for (int half = 0; half < 2; ++half) {
            auto* from = group_.atomic(rank_, group_.layout.unit(epoch_, entry, i, half));
            for (int w = 0; w < 2; ++w)
              units[half].words[w] = from[w].load(std::memory_order_relaxed);
            if (!has_come(units[half], epoch_)) return false;
          }
          got = unpacked(units[0], units[1]);
        } else {
          std::memcpy(&got, group_.plain(rank_, group_.layout.piece(epoch_, entry, i)), sizeof got);
        }
        const Piece want = term_of(source_of(entry, rank_), epoch_, i);
        if (std::memcmp(&got, &want, sizeof got) != 0) ++group_.wrong;
      }
    }
    return true;
  }

  Group& group_;
  int rank_;
  uint64_t epoch_;
  Message message_;
  std::mt19937& random_;
};

constexpr int64_t kChunks = 3;

// pauses: the most times that a rank gives way before a sum.
void sum_all(int ranks, uint64_t before, const std::vector<Message>& messages, unsigned seed,
             unsigned pauses) {
  Group group(ranks, kChunks, before);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::mt19937 random(seed + 17 * static_cast<unsigned>(rank) + 1);
      uint64_t epoch = before;
      for (const Message& message : messages) {
        for (unsigned pause = random() % pauses; pause > 0; --pause) std::this_thread::yield();
        Sum(group, rank, ++epoch, message, random).run();
        group.done[static_cast<size_t>(rank)] = epoch;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(group.wrong, 0) << ranks << " ranks after " << before << ", seed " << seed;
  EXPECT_EQ(group.overwritten, 0) << ranks << " ranks after " << before << ", seed " << seed;
}

TEST(Inbox, EveryRankReceivesWhatTheOthersSentInThatEpoch) {
  for (const int ranks : {2, 3, 4}) {
    for (unsigned seed = 0; seed < 3; ++seed) {
      std::mt19937 random(seed);
      std::vector<Message> messages;
      for (int i = 0; i < 60; ++i) {
        const int64_t most = random() % 2 ? 40 : kChunks * kChunkPieces;
        const int64_t pieces = 1 + static_cast<int64_t>(random() % most);
        messages.push_back({pieces, random() % 3 != 0});
      }
      sum_all(ranks, 0, messages, seed, seed == 0 ? 1 : 50);
    }
  }
}

// Inboxes are zero at first, which is what half an epoch of 2^32 looks like; the message of that
// epoch is longer than those before.
TEST(Inbox, HalfAnEpochThatComesAgainIsNotTakenForAnOldOne) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const std::vector<Message> messages = {{1, true},    {2000, false}, {1, false}, {1, true},
                                           {2000, true}, {2500, true},  {3, false}, {2500, true}};
    sum_all(2, (uint64_t{1} << 32) - 5, messages, seed, 50);
  }
}

TEST(Inbox, TwoEpochsOfAPeriodWriteAllUnitsOneOfEachSlot) {
  std::set<uint64_t> slots;
  constexpr uint64_t kPeriod = uint64_t{1} << 31;
  for (uint64_t epoch = kPeriod - 5; epoch < kPeriod + 5; ++epoch) {
    if (writes_all_units(epoch)) slots.insert(epoch % 2);
  }
  EXPECT_EQ(slots.size(), 2u);
}

// No two things of an inbox share a byte, and all of them lie within it.
TEST(Inbox, PlacesAreApart) {
  for (const int ranks : {2, 3, 8}) {
    const InboxLayout layout{ranks - 1, 2};
    EXPECT_EQ(InboxLayout::of_bytes(layout.bytes(), ranks).chunks, layout.chunks);
    std::vector<bool> taken(static_cast<size_t>(layout.bytes() / 8), false);
    const auto take = [&](int64_t offset, int64_t bytes) {
      EXPECT_EQ(offset % 8, 0);
      for (int64_t i = offset / 8; i < (offset + bytes) / 8; ++i) {
        ASSERT_LT(i, static_cast<int64_t>(taken.size()));
        ASSERT_FALSE(taken[static_cast<size_t>(i)]);
        taken[static_cast<size_t>(i)] = true;
      }
    };
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      for (int entry = 0; entry < layout.peers; ++entry) {
        for (int64_t i = 0; i < kFewPieces; ++i) {
          for (int half = 0; half < 2; ++half) take(layout.unit(epoch, entry, i, half), 16);
        }
        for (int64_t i = 0; i < layout.chunks; ++i) take(layout.epoch_of_chunk(epoch, entry, i), 8);
        for (int64_t i = 0; i < layout.chunks * kChunkPieces; ++i)
          take(layout.piece(epoch, entry, i), 16);
      }
    }
    EXPECT_EQ(layout.piece(0, 0, 0) % 16, 0);
    EXPECT_TRUE(std::all_of(taken.begin(), taken.end(), [](bool x) { return x; }));
  }
}

TEST(Inbox, EntriesAreTheOthersInOrder) {
  for (int owner = 0; owner < kMostRanks; ++owner) {
    for (int entry = 0; entry < kMostRanks - 1; ++entry) {
      EXPECT_NE(source_of(entry, owner), owner);
      EXPECT_EQ(entry_of(source_of(entry, owner), owner), entry);
    }
  }
}

}  // namespace
}  // namespace mixed_gemm
