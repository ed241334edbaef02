// A size in symbols, such as round_up(K, 64) * bits / 8: evaluated where a call is checked, printed
// in the text of its refusal, and read by Python to make a result.
#pragma once
#include <cstdint>
#include <string>

namespace mixed_gemm::contract {

enum class Symbol : uint8_t {
  kM,
  kN,
  kK,
  kBits,
  kGroupSize,
  kBlockSize,
  kInChannels,
  kOutChannels,
  kWords,
  kExperts,
  kChoices,
};
constexpr const char* kSymbolNames[] = {"M",  "N",  "K",     "bits", "group_size", "block_size",
                                        "Ci", "Co", "words", "E",    "top_k"};
constexpr int kSymbols = 11;

class Size {
 public:
  enum Op : uint8_t { kNumber, kSymbol, kGroups, kBlocks, kRoundUp, kTimes, kOver };
  struct Token {
    Op op = kNumber;
    int16_t value = 0;
  };
  constexpr Size() = default;
  constexpr Size(int number) : tokens_{{kNumber, static_cast<int16_t>(number)}}, count_(1) {}
  constexpr Size(Symbol symbol) : tokens_{{kSymbol, static_cast<int16_t>(symbol)}}, count_(1) {}
  constexpr Size(const Size& a, const Size& b, Op op) {
    for (int i = 0; i < a.count_; ++i) tokens_[count_++] = a.tokens_[i];
    for (int i = 0; i < b.count_; ++i) tokens_[count_++] = b.tokens_[i];
    tokens_[count_++] = {op, 0};
  }

  int64_t value(const int64_t* symbols) const;
  std::string text() const;
  std::string json() const;     // its tokens in postfix order
  void mark(bool* used) const;  // its symbols

 private:
  static constexpr int kMostTokens = 14;
  Token tokens_[kMostTokens]{};
  int count_ = 0;
};

// ceil(k / group), where a group of -1 is all of k. K = 0 has no groups, but one block where the
// size of blocks is -1.
constexpr Size groups(const Size& k, const Size& group) { return {k, group, Size::kGroups}; }
constexpr Size blocks(const Size& k, const Size& block) { return {k, block, Size::kBlocks}; }
constexpr Size rounded_up(const Size& a, const Size& b) { return {a, b, Size::kRoundUp}; }
constexpr Size operator*(const Size& a, const Size& b) { return {a, b, Size::kTimes}; }
constexpr Size operator/(const Size& a, const Size& b) { return {a, b, Size::kOver}; }

// The tables of ops are written with these.
constexpr Symbol M = Symbol::kM, N = Symbol::kN, K = Symbol::kK, Bits = Symbol::kBits,
                 GroupSize = Symbol::kGroupSize, BlockSize = Symbol::kBlockSize,
                 Ci = Symbol::kInChannels, Co = Symbol::kOutChannels, Words = Symbol::kWords,
                 Experts = Symbol::kExperts, Choices = Symbol::kChoices;
constexpr Size operator*(Symbol a, const Size& b) { return Size(a) * b; }
constexpr Size operator/(Symbol a, const Size& b) { return Size(a) / b; }

}  // namespace mixed_gemm::contract
