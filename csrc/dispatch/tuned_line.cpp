#include "dispatch/tuned_line.h"

#include <cmath>
#include <iterator>
#include <locale>
#include <optional>
#include <sstream>

#include "core/printable.h"
#include "layout/weight_layout.h"
#include "problem/gemm.h"

namespace mixed_gemm {
namespace {

// The only op that is measured so far: GEMMs with quantized weights.
constexpr const char* kGemm = "gemm";

// The place of a name in a list.
template <typename Type, typename NameOf>
std::optional<Type> named(const std::string& name, int count, const NameOf& name_of) {
  for (int i = 0; i < count; ++i) {
    if (name == name_of(i)) return static_cast<Type>(i);
  }
  return std::nullopt;
}
std::optional<ElementType> element_named(const std::string& name) {
  return named<ElementType>(name, std::size(kElementTypeNames),
                            [](int i) { return kElementTypeNames[i]; });
}
std::optional<ScaleType> scales_named(const std::string& name) {
  return named<ScaleType>(name, std::size(kScaleTypeNames),
                          [](int i) { return kScaleTypeNames[i]; });
}
std::optional<WeightType> weight_named(const std::string& name) {
  return named<WeightType>(name, kNumWeights,
                           [](int i) { return weight_info(static_cast<WeightType>(i)).name; });
}

// The words of a line whose values are looked up once it is read.
struct Names {
  std::string op = kGemm, dtype, weight;
  std::string scales = kScaleTypeNames[static_cast<int>(ScaleType::kActivations)];
};

std::string read_fields(const std::string& text, bool with_op, TunedLine& line, Names& names) {
  std::istringstream fields(text);
  fields.imbue(std::locale::classic());
  if (with_op) {
    fields >> names.op >> line.sm >> line.sms >> names.dtype >> names.weight >> names.scales;
  } else {
    fields >> line.sm >> line.sms >> names.dtype >> names.weight;
    names.weight = "int" + names.weight;
  }
  int zeros = 0;
  std::string rest;
  fields >> line.group >> zeros >> line.n >> line.k >> line.m >> line.config >> line.us;
  if (!fields || (fields >> rest)) {
    return with_op ? "is not: op sm sms dtype weight scales group_size zeros n k m config us"
                   : "is not: sm sms dtype bits group_size zeros n k m config us";
  }
  line.zeros = zeros == 1;
  return zeros == 0 || zeros == 1 ? "" : "has a number out of range";
}

bool in_range(const TunedLine& line) {
  return line.sm >= 80 && line.sms > 0 && (line.group == -1 || line.group > 0) && line.n > 0 &&
         line.k > 0 && line.m > 0 && std::isfinite(line.us) && line.us > 0;
}

}  // namespace

std::string read_tuned_line(const std::string& text, TunedLine& line) {
  // Lines of format 1 begin with a number. They were measured with this layout and go with it.
  static_assert(kLayoutVersion == 1, "what was measured with another layout is no measurement");
  const bool with_op = text.find_first_of("0123456789-") != text.find_first_not_of(" \t");
  Names names;
  const std::string no_line = read_fields(text, with_op, line, names);
  if (!no_line.empty()) return no_line;
  if (names.op != kGemm) return "has the unknown op " + printable(names.op);
  const std::optional<ElementType> element = element_named(names.dtype);
  if (!element) return "has the unknown dtype " + printable(names.dtype);
  const std::optional<WeightType> weight = weight_named(names.weight);
  if (!weight && with_op) return "has the unknown weight " + printable(names.weight);
  const std::optional<ScaleType> scales = scales_named(names.scales);
  if (!scales) return "has the unknown scales " + printable(names.scales);
  if (!weight || !in_range(line)) return "has a number out of range";
  line.element = *element;
  line.weight = *weight;
  line.scales = *scales;
  const ZeroMode zeros = line.zeros ? ZeroMode::kSub : ZeroMode::kNone;
  const char* const no_scheme = why_not_scheme(weight_info(*weight), {*scales, line.group, zeros});
  return no_scheme == nullptr ? "" : std::string("is of no scheme: ") + no_scheme;
}

}  // namespace mixed_gemm
