// A rule that a call must keep. The order of rules is the order of refusals.
#pragma once
#include <initializer_list>
#include <optional>

#include "contract/given.h"
#include "contract/refusal.h"

namespace mixed_gemm::contract {

// A rule that is a function: a refusal, or none. It may bind symbols.
using Require = std::optional<Refusal> (*)(Given&);

struct Rule {
  enum Kind : uint8_t {
    kFloats,
    kDtype,
    kSameDtype,
    kRows,
    kRank,
    kWords,
    kBind,
    kShape,
    kColumnMajor,
    kAlong,
    kOne,
    kChoice,
    kRange,
    kPositive,
    kPair,
    kWhole,
    kRequire,
  };
  static constexpr int kMostDims = 3;

  Kind kind = kRequire;
  const char* argument = "";
  const char* like = "";  // another argument that it is compared with
  const char* text = "";  // words of the refusal that cannot be made from the rest
  const char* hint = "";
  const char* only = "";  // an optional argument: the rule holds where it is given, or is not
  bool only_given = false;
  Dtype dtype = Dtype::kOther;
  Symbol symbol = Symbol::kM;
  int dim = 0, dims = 0, times = 1;
  Size sizes[kMostDims]{};
  Symbol because[3]{};
  int because_count = 0;
  bool transposable = false, one = false;
  const char* const* names = nullptr;
  const int* values = nullptr;  // one for each name: what `symbol` is where that is chosen
  int first = 0, count = 0;
  int64_t least = 0, most = 0;
  Require refusal = nullptr;
  int8_t at = -1, like_at = -1, only_at = -1;  // places of the arguments, see placed()

  constexpr Rule with_hint(const char* words) const {
    Rule copy = *this;
    copy.hint = words;
    return copy;
  }
  constexpr Rule where_given(const char* name) const {
    Rule copy = *this;
    copy.only = name;
    copy.only_given = true;
    return copy;
  }
  constexpr Rule without(const char* name) const {
    Rule copy = *this;
    copy.only = name;
    return copy;
  }
  // A choice binds a symbol to the value that stands beside the name.
  template <size_t kCount>
  constexpr Rule binds(Symbol bound, const int (&of_names)[kCount]) const {
    Rule copy = *this;
    copy.symbol = bound;
    copy.values = of_names;
    return copy;
  }
  // Accepts a tensor of one element as well.
  constexpr Rule or_one() const {
    Rule copy = *this;
    copy.one = true;
    return copy;
  }
  // Adds a hint where the two sizes are exchanged.
  constexpr Rule may_be_transposed() const {
    Rule copy = *this;
    copy.transposable = true;
    return copy;
  }
  // The shape of as many of these, with their number in front.
  constexpr Rule of_each(const Size& count) const {
    Rule copy = *this;
    for (int i = copy.dims++; i > 0; --i) copy.sizes[i] = sizes[i - 1];
    copy.sizes[0] = count;
    copy.transposable = false;
    return copy;
  }
  // Adds the values of these symbols to the refusal.
  constexpr Rule because_of(std::initializer_list<Symbol> symbols) const {
    Rule copy = *this;
    for (const Symbol s : symbols) copy.because[copy.because_count++] = s;
    return copy;
  }
};

constexpr Rule rule_of(Rule::Kind kind, const char* argument) {
  Rule rule;
  rule.kind = kind;
  rule.argument = argument;
  return rule;
}
// The dtype is float16, bfloat16 or float32.
constexpr Rule floats(const char* name) { return rule_of(Rule::kFloats, name); }
// why: behind the dtype, such as " (signed values)".
constexpr Rule dtype(const char* name, Dtype type, const char* why = "") {
  Rule rule = rule_of(Rule::kDtype, name);
  rule.dtype = type;
  rule.text = why;
  return rule;
}
constexpr Rule same_dtype(const char* name, const char* like) {
  Rule rule = rule_of(Rule::kSameDtype, name);
  rule.like = like;
  return rule;
}
// The tensor is [..., K]: binds M and K.
constexpr Rule rows(const char* name) { return rule_of(Rule::kRows, name); }
// rule: the shape in words; that of the argument's shape() where none is given.
constexpr Rule rank(const char* name, int dims, const char* words = "") {
  Rule rule = rule_of(Rule::kRank, name);
  rule.dims = dims;
  rule.text = words;
  return rule;
}
// The tensor holds packed codes of a checkpoint: int32, 2-d.
constexpr Rule words(const char* name, const char* shape) {
  Rule rule = rule_of(Rule::kWords, name);
  rule.text = shape;
  return rule;
}
// Binds symbol = times * a size of the argument.
constexpr Rule bind(Symbol symbol, const char* name, int dim, int times = 1) {
  Rule rule = rule_of(Rule::kBind, name);
  rule.symbol = symbol;
  rule.dim = dim;
  rule.times = times;
  return rule;
}
constexpr Rule shape(const char* name, std::initializer_list<Size> sizes) {
  Rule rule = rule_of(Rule::kShape, name);
  for (const Size& s : sizes) rule.sizes[rule.dims++] = s;
  return rule;
}
// The tensor is [K, N] with the K of `like`, its columns contiguous: binds N.
constexpr Rule column_major(const char* name, const char* like) {
  Rule rule = rule_of(Rule::kColumnMajor, name);
  rule.like = like;
  return rule;
}
// The tensor has an element for each row of `like`.
constexpr Rule along_rows(const char* name, const char* like) {
  Rule rule = rule_of(Rule::kAlong, name);
  rule.like = like;
  return rule;
}
// The tensor has an element for each of N columns.
constexpr Rule along_columns(const char* name) { return rule_of(Rule::kAlong, name); }
// The tensor has one element, in any number of dimensions.
constexpr Rule one_element(const char* name) { return rule_of(Rule::kOne, name); }
// The text is one of the names from `first` on.
template <size_t kCount>
constexpr Rule choice(const char* name, const char* const (&names)[kCount], int first = 0) {
  Rule rule = rule_of(Rule::kChoice, name);
  rule.names = names;
  rule.first = first;
  rule.count = static_cast<int>(kCount);
  return rule;
}
constexpr Rule range(const char* name, int64_t least, int64_t most) {
  Rule rule = rule_of(Rule::kRange, name);
  rule.least = least;
  rule.most = most;
  return rule;
}
constexpr Rule positive(const char* name) { return rule_of(Rule::kPositive, name); }
constexpr Rule two(const char* name) { return rule_of(Rule::kPair, name); }  // height and width
// From here on a symbol of -1 is all of `extent`, at least 1.
constexpr Rule whole(Symbol symbol, Symbol extent) {
  Rule rule;
  rule.kind = Rule::kWhole;
  rule.symbol = symbol;
  rule.sizes[0] = extent;
  return rule;
}
constexpr Rule require(Require refusal) {
  Rule rule;
  rule.refusal = refusal;
  return rule;
}

}  // namespace mixed_gemm::contract
