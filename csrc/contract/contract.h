// The contract of an op, as data: its arguments, the rules that a call must keep, its results.
// The schema, the checks of the kernels and the fake kernels are made from it.
#pragma once
#include <array>
#include <string>
#include <string_view>

#include "contract/argument.h"
#include "contract/rule.h"

namespace mixed_gemm::contract {

// A result that has the sizes of `like`, those but the last and then sizes[0], or all of `sizes`.
struct Result {
  enum Form : uint8_t { kLike, kLeading, kSizes, kMade, kText };
  Form form = kLike;
  const char* like = "";  // also whose device and, where none is said, dtype it has
  Size sizes[3]{};
  int dims = 0;
  Dtype dtype = Dtype::kOther;
  const char* dtype_of = "";  // an argument that says the dtype
  const char* name = "";      // in the schema, where there are several
  const char* unless = "";    // a bool: there is no result where it is true
  const char* words = "";     // for docs/ops.md, where its sizes are no formula
  int8_t like_at = -1, dtype_at = -1, unless_at = -1;

  constexpr Result of_dtype(Dtype type) const {
    Result copy = *this;
    copy.dtype = type;
    return copy;
  }
  constexpr Result in_dtype_of(const char* argument) const {
    Result copy = *this;
    copy.dtype_of = argument;
    return copy;
  }
  constexpr Result named(const char* words) const {
    Result copy = *this;
    copy.name = words;
    return copy;
  }
  constexpr Result none_where(const char* argument) const {
    Result copy = *this;
    copy.unless = argument;
    return copy;
  }
};
constexpr Result result_of(Result::Form form, const char* like) {
  Result result;
  result.form = form;
  result.like = like;
  return result;
}
constexpr Result whole_of(const char* like) { return result_of(Result::kLike, like); }
constexpr Result leading(const char* like, const Size& last) {
  Result result = result_of(Result::kLeading, like);
  result.sizes[result.dims++] = last;
  return result;
}
constexpr Result vector(const char* on, const Size& size) {
  Result result = result_of(Result::kSizes, on);
  result.sizes[result.dims++] = size;
  return result;
}
constexpr Result matrix(const char* on, const Size& rows, const Size& columns) {
  Result result = vector(on, rows);
  result.sizes[result.dims++] = columns;
  return result;
}
// Made by the kernel, and by the fake of its record: its sizes are no formula. words: its shape and
// dtype.
constexpr Result made(const char* words) {
  Result result = result_of(Result::kMade, "");
  result.words = words;
  return result;
}
constexpr Result printed() { return result_of(Result::kText, ""); }

template <typename Item>
struct List {
  const Item* first = nullptr;
  int count = 0;

  constexpr List() = default;
  template <size_t kCount>
  constexpr List(const std::array<Item, kCount>& items)
      : first(items.data()), count(static_cast<int>(kCount)) {}
  template <size_t kCount>
  constexpr List(const Item (&items)[kCount]) : first(items), count(static_cast<int>(kCount)) {}
  constexpr const Item* begin() const { return first; }
  constexpr const Item* end() const { return first + count; }
  constexpr const Item& operator[](int i) const { return first[i]; }
};

struct Contract {
  const char* name;
  List<Argument> arguments;
  List<Rule> rules;
  List<Result> results;
  const char* called = nullptr;  // in texts; the name where there is none
  bool is_gated = false;         // its Autograd key is the C++ one (ops/autograd/gate.cpp)

  constexpr const char* words() const { return called == nullptr ? name : called; }
};

template <size_t kCount>
constexpr int8_t place_of(const char* name, const Argument (&arguments)[kCount]) {
  if (*name == 0) return -1;
  for (size_t i = 0; i < kCount; ++i) {
    if (std::string_view(arguments[i].name) == name) return static_cast<int8_t>(i);
  }
  throw "a name that is no argument";  // at compile time
}

// Rules, or results, with the places of the arguments that they name.
template <size_t kCount, size_t kRules>
constexpr std::array<Rule, kRules> placed(const Argument (&arguments)[kCount],
                                          const Rule (&rules)[kRules]) {
  std::array<Rule, kRules> copies{};
  for (size_t i = 0; i < kRules; ++i) {
    copies[i] = rules[i];
    copies[i].at = place_of(rules[i].argument, arguments);
    copies[i].like_at = place_of(rules[i].like, arguments);
    copies[i].only_at = place_of(rules[i].only, arguments);
  }
  return copies;
}
template <size_t kCount, size_t kResults>
constexpr std::array<Result, kResults> given_by(const Argument (&arguments)[kCount],
                                                const Result (&results)[kResults]) {
  std::array<Result, kResults> copies{};
  for (size_t i = 0; i < kResults; ++i) {
    copies[i] = results[i];
    copies[i].like_at = place_of(results[i].like, arguments);
    copies[i].dtype_at = place_of(results[i].dtype_of, arguments);
    copies[i].unless_at = place_of(results[i].unless, arguments);
  }
  return copies;
}

// The arguments of an op and one more at the end: the same rules hold for both.
template <size_t kCount>
struct Arguments {
  Argument items[kCount];
};
template <size_t kCount>
constexpr Arguments<kCount + 1> with_config(const Argument (&arguments)[kCount]) {
  Arguments<kCount + 1> more{};
  for (size_t i = 0; i < kCount; ++i) more.items[i] = arguments[i];
  more.items[kCount] = text("config").keyword();
  return more;
}

// Rules that several ops share, one list behind the other.
template <size_t kCount>
struct RuleList {
  Rule items[kCount];
};
template <size_t... kCounts>
constexpr RuleList<(kCounts + ...)> together(const Rule (&... lists)[kCounts]) {
  RuleList<(kCounts + ...)> all{};
  size_t next = 0;
  const auto add = [&](const Rule* rules, size_t count) {
    for (size_t i = 0; i < count; ++i) all.items[next++] = rules[i];
  };
  (add(lists, kCounts), ...);
  return all;
}

// The rules on one weight for as many of them, which lie behind each other in each tensor.
template <size_t kCount>
constexpr RuleList<kCount> of_each(const Size& count, RuleList<kCount> rules) {
  for (Rule& rule : rules.items) {
    if (rule.kind == Rule::kShape) rule = rule.of_each(count);
  }
  return rules;
}

std::string schema_text(const Contract& contract);
// For Python: arguments, where symbols come from, which are used, results, and the rules, which the
// tests of refusals are made from; and in words what the rules accept and what the results are.
std::string json_text(const Contract& contract);

// The dtype, shape or values that a rule accepts, in the words of refusals and of docs/ops.md.
// Empty for a rule that is a function.
std::string accepted(const Rule& rule);

}  // namespace mixed_gemm::contract
