#include "dispatch/tuned_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <iterator>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <tuple>

#include "core/printable.h"
#include "dispatch/select.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {
namespace {

// sm, sms, element, weight, scales, group (0: per channel), zeros, n, k
using Key =
    std::tuple<int, int, ElementType, WeightType, ScaleType, int64_t, bool, int64_t, int64_t>;
using Table = std::map<Key, std::vector<TunedPoint>>;

std::mutex table_mutex;
std::shared_ptr<const Table> current_table = std::make_shared<Table>();
std::atomic<int> generation{0};

// Of the GEMMs with quantized weights, which alone are measured so far.
constexpr const char* kGemm = "gemm";

// The place of a name in a list.
template <typename Type>
std::optional<Type> named(const std::string& name, int count, const char* (*name_of)(int)) {
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

// The fields of a line as they are written.
struct Line {
  int sm = 0, sms = 0, zeros = 0;
  int64_t group = 0, n = 0, k = 0, m = 0;
  double us = 0;
  std::string op = kGemm, dtype, weight, scales = kScaleTypeNames[0], config;

  // Why these are not the fields of a line, or "".
  std::string read(std::istringstream& fields, bool with_op) {
    fields.imbue(std::locale::classic());
    if (with_op) {
      fields >> op >> sm >> sms >> dtype >> weight >> scales;
    } else {
      fields >> sm >> sms >> dtype >> weight;
      weight = "int" + weight;
    }
    std::string rest;
    fields >> group >> zeros >> n >> k >> m >> config >> us;
    if (fields && !(fields >> rest)) return "";
    return with_op ? "is not: op sm sms dtype weight scales group_size zeros n k m config us"
                   : "is not: sm sms dtype bits group_size zeros n k m config us";
  }

  bool in_range() const {
    return sm >= 80 && sms > 0 && (group == -1 || group > 0) && (zeros == 0 || zeros == 1) &&
           n > 0 && k > 0 && m > 0 && std::isfinite(us) && us > 0;
  }
};

// Why the line is refused, or "" and its point is in the table.
std::string add_line(const std::string& text, Table& table) {
  // Lines of format 1 begin with a number. They are of this layout of weights, and go with it.
  static_assert(kLayoutVersion == 1, "what was measured with another layout is no measurement");
  const bool with_op = text.find_first_of("0123456789-") != text.find_first_not_of(" \t");
  std::istringstream fields(text);
  Line line;
  const std::string no_line = line.read(fields, with_op);
  if (!no_line.empty()) return no_line;
  if (line.op != kGemm) return "has the unknown op " + printable(line.op);
  const std::optional<ElementType> element = element_named(line.dtype);
  if (!element) return "has the unknown dtype " + printable(line.dtype);
  const std::optional<WeightType> weight = weight_named(line.weight);
  if (!weight && with_op) return "has the unknown weight " + printable(line.weight);
  const std::optional<ScaleType> scales = scales_named(line.scales);
  if (!scales) return "has the unknown scales " + printable(line.scales);
  if (!weight || !line.in_range()) return "has a number out of range";
  const ZeroMode zeros = line.zeros == 1 ? ZeroMode::kSub : ZeroMode::kNone;
  const char* const no_scheme = why_not_scheme(weight_info(*weight), {*scales, line.group, zeros});
  if (no_scheme != nullptr) return std::string("is of no scheme: ") + no_scheme;
  const std::optional<Choice> choice = parse_config<GemmProblem>(line.config);
  if (!choice) return "has the unknown config " + printable(line.config);
  const TunedPoint point = {line.m, *choice, line.us};
  const int64_t group = line.group == -1 || line.group >= line.k ? 0 : line.group;
  std::vector<TunedPoint>& points = table[{line.sm, line.sms, *element, *weight, *scales, group,
                                           line.zeros == 1, line.n, line.k}];
  const auto at = std::lower_bound(points.begin(), points.end(), point.m,
                                   [](const TunedPoint& p, int64_t m) { return p.m < m; });
  if (at != points.end() && at->m == point.m) {
    *at = point;
  } else {
    points.insert(at, point);
  }
  return "";
}

}  // namespace

std::vector<std::string> set_tuned_table(const std::string& text) {
  auto table = std::make_shared<Table>();
  std::vector<std::string> refused;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    const std::string reason = add_line(line, *table);
    if (!reason.empty()) refused.push_back("line " + std::to_string(number) + " " + reason);
  }
  const std::lock_guard<std::mutex> lock(table_mutex);
  current_table = std::move(table);
  ++generation;
  return refused;
}

int tuned_table_generation() { return generation.load(); }

std::optional<TunedPoint> find_tuned(const GemmProblem& p, const DeviceInfo& device) {
  std::shared_ptr<const Table> table;
  {
    const std::lock_guard<std::mutex> lock(table_mutex);
    table = current_table;
  }
  const int64_t group = p.scheme.scales.group >= p.k ? 0 : p.scheme.scales.group;
  const auto found =
      table->find({device.sm, device.sm_count, p.element, p.scheme.weight, p.scheme.scales.type,
                   group, p.scheme.scales.zeros != ZeroMode::kNone, p.n, p.k});
  if (found == table->end()) return std::nullopt;
  for (const TunedPoint& point : found->second) {
    if (point.m >= p.m) return point;
  }
  const TunedPoint& last = found->second.back();
  if (family_of<GemmProblem>(last.choice).holds_for_larger_m) return last;
  return std::nullopt;
}

}  // namespace mixed_gemm
