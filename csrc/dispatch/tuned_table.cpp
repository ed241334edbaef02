#include "dispatch/tuned_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <tuple>

#include "core/printable.h"
#include "dispatch/select.h"

namespace mixed_gemm {
namespace {

// sm, sms, element, bits, group (0: per channel), zeros, n, k
using Key = std::tuple<int, int, int, int, int64_t, int, int64_t, int64_t>;
using Table = std::map<Key, std::vector<TunedPoint>>;

std::mutex table_mutex;
std::shared_ptr<const Table> current_table = std::make_shared<Table>();
std::atomic<int> generation{0};

std::optional<int> element_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(std::size(kElementTypeNames)); ++i) {
    if (name == kElementTypeNames[i]) return i;
  }
  return std::nullopt;
}

// Why the line is refused, or "" and its point is in the table.
std::string add_line(const std::string& line, Table& table) {
  std::istringstream fields(line);
  fields.imbue(std::locale::classic());
  int sm = 0, sms = 0, bits = 0, zeros = 0;
  int64_t group = 0, n = 0, k = 0;
  std::string dtype, config, rest;
  TunedPoint point;
  fields >> sm >> sms >> dtype >> bits >> group >> zeros >> n >> k >> point.m >> config >> point.us;
  if (!fields || (fields >> rest))
    return "is not: sm sms dtype bits group_size zeros n k m config us";
  const std::optional<int> element = element_named(dtype);
  if (!element) return "has the unknown dtype " + printable(dtype);
  const bool sane = sm >= 80 && sms > 0 && (bits == 4 || bits == 8) && (group == -1 || group > 0) &&
                    (zeros == 0 || zeros == 1) && n > 0 && k > 0 && point.m > 0 &&
                    std::isfinite(point.us) && point.us > 0;
  if (!sane) return "has a number out of range";
  const std::optional<Choice> choice = parse_config<GemmProblem>(config);
  if (!choice) return "has the unknown config " + printable(config);
  point.choice = *choice;
  std::vector<TunedPoint>& points =
      table[{sm, sms, *element, bits, group == -1 || group >= k ? 0 : group, zeros, n, k}];
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
  const int64_t group = p.scheme.group_size >= p.k ? 0 : p.scheme.group_size;
  const auto found =
      table->find({device.sm, device.sm_count, static_cast<int>(p.element), p.scheme.bits, group,
                   p.scheme.zero_mode != ZeroMode::kNone, p.n, p.k});
  if (found == table->end()) return std::nullopt;
  for (const TunedPoint& point : found->second) {
    if (point.m >= p.m) return point;
  }
  const TunedPoint& last = found->second.back();
  if (family_of<GemmProblem>(last.choice).holds_for_larger_m) return last;
  return std::nullopt;
}

}  // namespace mixed_gemm
