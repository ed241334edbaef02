#include "dispatch/tuned_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <tuple>

#include "core/printable.h"
#include "dispatch/select.h"
#include "dispatch/tuned_line.h"

namespace mixed_gemm {
namespace {

// sm, sms, element, weight, scales, group (0: per channel), zeros, n, k
using Key =
    std::tuple<int, int, ElementType, WeightType, ScaleType, int64_t, bool, int64_t, int64_t>;
using Table = std::map<Key, std::vector<TunedPoint>>;

std::mutex table_mutex;
std::shared_ptr<const Table> current_table = std::make_shared<Table>();
std::atomic<int> generation{0};

// Adds the point of a line to the table; returns why the line is refused, or "".
std::string add_line(const std::string& text, Table& table) {
  TunedLine line;
  const std::string reason = read_tuned_line(text, line);
  if (!reason.empty()) return reason;
  const std::optional<Choice> choice = parse_config<GemmProblem>(line.config);
  if (!choice) return "has the unknown config " + printable(line.config);
  const TunedPoint point = {line.m, *choice, line.us};
  const int64_t group = line.group == -1 || line.group >= line.k ? 0 : line.group;
  std::vector<TunedPoint>& points = table[{line.sm, line.sms, line.element, line.weight,
                                           line.scales, group, line.zeros, line.n, line.k}];
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
