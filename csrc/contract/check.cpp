#include "contract/check.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mixed_gemm::contract {
namespace {

using Answer = std::optional<Refusal>;

std::string sizes_of(const View& v) { return sizes_text(v.sizes, v.dims); }

// ---- what comes before the rules ----------------------------------------------------------------

bool on_one_device(const View& a, const View& b) {
  return a.device == b.device && (a.device != kCudaDevice || a.index == b.index);
}

std::string device_text(const View& v) {
  return v.device == kCpuDevice    ? "cpu"
         : v.device == kCudaDevice ? "cuda:" + std::to_string(v.index)
         : v.device == kMetaDevice ? "meta"
                                   : "another device";
}

// A view keeps its sizes when its storage is freed or shrunk under it, and its data may be null
// then or, behind a storage offset, point to nothing.
Answer check_storage(const char* name, const View& v) {
  if (v.storage < 0) return {};
  // Asked before any product, since the strides of a tensor without elements may be any numbers.
  if (std::find(v.sizes, v.sizes + v.dims, 0) != v.sizes + v.dims) return {};
  int64_t last = v.offset;
  for (int64_t i = 0; i < v.dims; ++i) last += (v.sizes[i] - 1) * v.strides[i];
  const int64_t needed = (last + 1) * v.item;
  if (needed <= v.storage) return {};
  return value_fault({name, joined("have a storage of ", needed, " bytes or more"),
                      joined(v.storage, " bytes"), "its shape is " + sizes_of(v),
                      "the storage was freed or resized, as FSDP does between steps: gather the "
                      "parameters first"});
}

Answer check_places(const Contract& contract, const Given& given) {
  const View* first = nullptr;
  const char* first_name = "";
  for (int i = 0; i < contract.arguments.count; ++i) {
    const Argument& argument = contract.arguments[i];
    if (!argument.is_tensor()) continue;
    const View& v = given.views[i];
    if (v.state == View::kNone) continue;
    if (v.state == View::kUndefined) return type_fault({argument.name, "be a tensor", "None"});
    if (first == nullptr) {
      first = &v;
      first_name = argument.name;
    } else if (!on_one_device(v, *first)) {
      return value_fault({"all tensors", "be on one device",
                          joined(first_name, " on ", device_text(*first), " and ", argument.name,
                                 " on ", device_text(v)),
                          "", "move them with .to(device)"});
    }
  }
  for (int i = 0; i < contract.arguments.count; ++i) {
    const Argument& argument = contract.arguments[i];
    if (!argument.is_tensor() || !given.views[i].is_given()) continue;
    if (Answer refusal = check_storage(argument.name, given.views[i])) return refusal;
  }
  return {};
}

// ---- rules --------------------------------------------------------------------------------------

Answer wrong_dtype(const Rule& r, const View& v, const std::string& expected) {
  return type_fault({r.argument, "be " + expected, v.dtype_name(), "", r.hint});
}

Answer check_rank(const Contract& contract, const Rule& r, const View& v) {
  if (v.dims == r.dims) return {};
  std::string expected = r.text;
  for (const Rule& other : contract.rules) {
    if (expected.empty() && other.kind == Rule::kShape && other.at == r.at) {
      expected = accepted(other);
    }
  }
  return value_fault({r.argument, joined("be ", r.dims, "-d ", expected), sizes_of(v)});
}

Answer check_words(const Contract& contract, const Rule& r, const View& v) {
  if (v.dtype != Dtype::kInt32) {
    return wrong_dtype(r, v, "int32 (packed codes, as the checkpoint holds them)");
  }
  Rule matrix = r;
  matrix.dims = 2;
  if (Answer refusal = check_rank(contract, matrix, v)) return refusal;
  // Asked before the numbers are multiplied by the codes of a word.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (std::max(v.sizes[0], v.sizes[1]) <= kMost) return {};
  return value_fault(
      {r.argument, joined("have at most ", kMost, " rows and columns"), sizes_of(v)});
}

Answer check_shape(const Rule& r, const View& v, const Given& given) {
  bool fits = v.dims == r.dims;
  int64_t expected[Rule::kMostDims];
  for (int i = 0; i < r.dims; ++i) {
    expected[i] = r.sizes[i].value(given.symbols);
    fits = fits && v.sizes[i] == expected[i];
  }
  if (fits || (r.one && v.dims <= 1 && v.elements() == 1)) return {};
  std::string because;
  for (int i = 0; i < r.because_count; ++i) {
    const int symbol = static_cast<int>(r.because[i]);
    because += joined(i > 0 ? ", " : "", kSymbolNames[symbol], "=", given.symbols[symbol]);
  }
  const bool turned = r.transposable && r.dims == 2 && v.dims == 2 && v.sizes[0] == expected[1] &&
                      v.sizes[1] == expected[0];
  return value_fault({r.argument, "be " + accepted(r) + " = " + sizes_text(expected, r.dims),
                      sizes_of(v), because,
                      turned ? "it looks transposed, pass .t().contiguous()" : r.hint});
}

Answer check_column_major(const Rule& r, const View& b, const View& a) {
  if (b.dims != 2) return value_fault({r.argument, "be 2-d (K, N)", sizes_of(b)});
  const int64_t k = a.last_size();
  if (b.sizes[0] != k) {
    const bool turned = b.sizes[1] == k;
    return value_fault({r.argument, joined("be (K, N) with K=", k, " of ", r.like), sizes_of(b), "",
                        turned ? "it looks transposed, pass weight.t() of an [N, K] weight" : ""});
  }
  if (k <= 1 || b.strides[0] == 1) return {};
  return value_fault(
      {r.argument,
       "be column-major, stride(0) == 1 as weight.t() of a contiguous [N, K] weight has it",
       "strides " + sizes_text(b.strides, b.dims), "", "b.t().contiguous().t(), once"});
}

// Whether t is (M,), (M, 1), or has the leading sizes of a, with or without a last 1.
bool is_per_row(const View& t, const View& a, int64_t m) {
  const auto fits = [&](int64_t dims) {
    if (dims == 1 && t.sizes[0] == m) return true;
    return dims == a.dims - 1 && std::equal(t.sizes, t.sizes + dims, a.sizes);
  };
  return fits(t.dims) || (t.dims > 0 && t.last_size() == 1 && fits(t.dims - 1));
}

bool is_per_column(const View& t, int64_t n) {
  return (t.dims == 1 && t.sizes[0] == n) || (t.dims == 2 && t.sizes[0] == 1 && t.sizes[1] == n);
}

Answer check_along(const Rule& r, const View& v, const Given& given) {
  if (r.one && v.elements() == 1) return {};
  const int64_t m = given[M], n = given[N];
  const bool by_row = r.like_at >= 0;
  if (by_row ? is_per_row(v, given.views[r.like_at], m) : is_per_column(v, n)) return {};
  return value_fault({r.argument,
                      (r.one ? "have one element or be " : "be ") + accepted(r) +
                          (by_row ? joined(", M=", m) : joined(", N=", n)),
                      sizes_of(v), "", r.hint});
}

Answer check_choice(const Rule& r, Given& given) {
  const std::string_view value = given.texts[r.at];
  for (int i = r.first; i < r.count; ++i) {
    if (value == r.names[i]) {
      given.numbers[r.at] = i;
      if (r.values != nullptr) given[r.symbol] = r.values[i];
      return {};
    }
  }
  return value_fault({r.argument, "be one of " + accepted(r), "'" + std::string(value) + "'"});
}

Answer check_number(const Rule& r, const Given& given) {
  if (r.kind == Rule::kRange) {
    const int64_t value = given.numbers[r.at];
    if (value >= r.least && value <= r.most) return {};
    return value_fault({r.argument, "be in " + accepted(r), std::to_string(value)});
  }
  if (r.kind == Rule::kPositive) {
    const double value = given.reals[r.at];
    if (value > 0 && std::isfinite(value)) return {};
    return value_fault(
        {r.argument, "be " + accepted(r), std::isnan(value) ? "nan" : joined(value)});
  }
  if (given.list_sizes[r.at] == 2) return {};
  return value_fault(
      {r.argument, "be " + accepted(r), sizes_text(given.lists[r.at], given.list_sizes[r.at])});
}

// Checks a rule about one tensor, or one dtype.
Answer check_view(const Contract& contract, const Rule& r, const View& v, Given& given) {
  switch (r.kind) {
    case Rule::kFloats:
      if (is_element(v.dtype)) return {};
      return wrong_dtype(r, v, accepted(r));
    case Rule::kDtype:
      if (v.dtype == r.dtype) return {};
      return wrong_dtype(r, v, accepted(r));
    case Rule::kSameDtype: {
      const View& like = given.views[r.like_at];
      if (v.has_dtype_of(like)) return {};
      const bool is_dtype = contract.arguments[r.like_at].kind == Kind::kDtype;
      return wrong_dtype(
          r, v, joined(like.dtype_name(), " (", is_dtype ? "" : "the dtype of ", r.like, ")"));
    }
    case Rule::kRows:
      if (v.dims < 1) return value_fault({r.argument, "be " + accepted(r), "a 0-d tensor"});
      given[M] = v.rows();
      given[K] = v.last_size();
      return {};
    case Rule::kRank:
      return check_rank(contract, r, v);
    case Rule::kWords:
      return check_words(contract, r, v);
    case Rule::kBind:
      given[r.symbol] = r.times * v.sizes[r.dim];
      return {};
    case Rule::kShape:
      return check_shape(r, v, given);
    case Rule::kColumnMajor: {
      Answer refusal = check_column_major(r, v, given.views[r.like_at]);
      if (!refusal) given[N] = v.sizes[1];
      return refusal;
    }
    case Rule::kAlong:
      return check_along(r, v, given);
    default:  // kOne
      if (v.elements() == 1) return {};
      return value_fault({r.argument, "have " + accepted(r) + " (per tensor)", sizes_of(v)});
  }
}

bool is_given(const Contract& contract, int at, const Given& given) {
  const Argument& argument = contract.arguments[at];
  if (argument.is_tensor()) return given.views[at].is_given();
  if (argument.kind == Kind::kOptionalFloat) return given.list_sizes[at] != 0;
  return given.lists[at] != nullptr;
}

Answer check_rule(const Contract& contract, const Rule& r, Given& given) {
  switch (r.kind) {
    case Rule::kRequire:
      return r.refusal(given);
    case Rule::kWhole:
      if (given[r.symbol] == -1) {
        given[r.symbol] = std::max<int64_t>(r.sizes[0].value(given.symbols), 1);
      }
      return {};
    case Rule::kChoice:
      return check_choice(r, given);
    case Rule::kPositive:
      if (contract.arguments[r.at].kind == Kind::kOptionalFloat &&
          !is_given(contract, r.at, given)) {
        return {};
      }
      return check_number(r, given);
    case Rule::kRange:
    case Rule::kPair:
      return check_number(r, given);
    default:
      if (given.views[r.at].state == View::kNone) return {};
      return check_view(contract, r, given.views[r.at], given);
  }
}

}  // namespace

Answer check(const Contract& contract, Given& given) {
  for (int i = 0; i < contract.arguments.count; ++i) {
    const int symbol = contract.arguments[i].symbol;
    if (symbol >= 0) given.symbols[symbol] = given.numbers[i];
  }
  if (Answer refusal = check_places(contract, given)) return refusal;
  for (const Rule& r : contract.rules) {
    if (r.only_at >= 0 && is_given(contract, r.only_at, given) != r.only_given) continue;
    if (Answer refusal = check_rule(contract, r, given)) return refusal;
  }
  return {};
}

}  // namespace mixed_gemm::contract
