#include "dispatch/select.h"

#include <algorithm>
#include <cstdio>

#include "dispatch/families.h"
#include "dispatch/no_tile.h"
#include "dispatch/problems.h"
#include "dispatch/remembered.h"
#include "dispatch/tuned_table.h"

namespace mixed_gemm {
namespace {

template <typename Problem, typename... Members>
const std::vector<const Family<Problem>*>& members(FamilyList<Members...>) {
  static const std::vector<const Family<Problem>*> kAll = {&Members::plan...};
  return kAll;
}

template <typename Problem>
const std::vector<const Family<Problem>*>& families() {
  return members<Problem>(typename FamiliesOf<Problem>::List());
}

constexpr const char* kPredicted = "least time predicted by the cost model";

std::string tuned_reason(const TunedPoint& point) {
  char text[96];
  std::snprintf(text, sizeof(text), "tuned: the fastest measured at M = %lld, %.2f us",
                static_cast<long long>(point.m), point.us);
  return text;
}

// The choice that was measured for the problem: only GEMMs with quantized weights have one.
template <typename Problem>
std::optional<TunedPoint> find_point(const Problem& problem, const DeviceInfo& device) {
  if constexpr (std::is_same_v<Problem, GemmProblem>) return find_tuned(problem, device);
  return std::nullopt;
}

}  // namespace

template <typename Problem>
const Family<Problem>& family_of(const Choice& c) {
  return *families<Problem>()[static_cast<size_t>(c.family)];
}

template <typename Problem>
std::string config_name(const Choice& c) {
  return family_of<Problem>(c).config(c);
}

template <typename Problem>
std::optional<Choice> parse_config(const std::string& name) {
  for (size_t i = 0; i < families<Problem>().size(); ++i) {
    Choice c;
    if (!families<Problem>()[i]->parse(name, c)) continue;
    c.family = static_cast<int>(i);
    return c;
  }
  return std::nullopt;
}

template <typename Problem>
std::string why_not(const Choice& c, const Problem& problem, const DeviceInfo& device) {
  return family_of<Problem>(c).why_not(c, problem, device);
}

template <typename Problem>
double predict_us(const Choice& c, const Problem& problem, const DeviceInfo& device) {
  return family_of<Problem>(c).predict_us(c, problem, device);
}

template <typename Problem>
std::vector<Choice> ranked(const Problem& problem, const DeviceInfo& device) {
  std::vector<Choice> legal;
  for (size_t i = 0; i < families<Problem>().size(); ++i) {
    for (Choice c : families<Problem>()[i]->choices()) {
      c.family = static_cast<int>(i);
      if (!why_not(c, problem, device).empty()) continue;
      c.predicted_us = predict_us(c, problem, device);
      legal.push_back(c);
    }
  }
  std::stable_sort(legal.begin(), legal.end(), [](const Choice& a, const Choice& b) {
    return a.predicted_us < b.predicted_us;
  });
  if (!legal.empty() && legal.front().predicted_us == kNeverChosen) legal.clear();
  return legal;
}

template <typename Problem>
std::string why_none(const Problem& problem, const DeviceInfo& device) {
  // The first one that works by tiles runs on the oldest GPUs. Scales of blocks are taken by the
  // last one that does alone.
  const auto& all = families<Problem>();
  const auto has_tiles = [](const auto* f) { return f->tile != nullptr; };
  const Family<Problem>* told = *std::find_if(all.begin(), all.end(), has_tiles);
  if constexpr (std::is_same_v<Problem, ScaledMmProblem>) {
    if (problem.block_k > 0) told = *std::find_if(all.rbegin(), all.rend(), has_tiles);
  }
  const Family<Problem>& family = *told;
  std::vector<RefusedTile> tiles;
  for (const Choice& c : family.choices()) {
    if (c.split != SplitK::kNone) continue;
    const TileUse use = family.tile(c, problem);
    tiles.push_back(
        {family.config(c), use.tile, use.smem_bytes, family.why_not(c, problem, device)});
  }
  return why_no_tile(tiles, device);
}

template <typename Problem>
std::string reason_of_rank(const Choice& first, const Problem& problem, const DeviceInfo& device) {
  const auto reason = family_of<Problem>(first).reason;
  return reason == nullptr ? kPredicted : reason(problem, device);
}

template <typename Problem>
Selection select(const Problem& problem, const DeviceInfo& device,
                 const std::vector<Choice>& ranked) {
  const std::optional<TunedPoint> tuned = find_point(problem, device);
  if (!tuned) return {ranked.front(), reason_of_rank(ranked.front(), problem, device)};
  const std::string reason = why_not(tuned->choice, problem, device);
  if (!reason.empty()) {
    return {ranked.front(), std::string(kPredicted) + "; tuned " +
                                config_name<Problem>(tuned->choice) + " " + reason};
  }
  // The time was measured with the table's M, which may be another one: who compares it with other
  // ways to do the same needs the time that the model predicts for this problem.
  Choice chosen = tuned->choice;
  chosen.predicted_us = predict_us(chosen, problem, device);
  return {chosen, tuned_reason(*tuned)};
}

template <typename Problem>
std::optional<Choice> choose(const Problem& problem, const DeviceInfo& device) {
  return remembered<std::optional<Choice>>(
      problem, device, [](const Problem& p, const DeviceInfo& d) -> std::optional<Choice> {
        const std::vector<Choice> all = ranked(p, d);
        if (all.empty()) return std::nullopt;
        return select(p, d, all).choice;
      });
}

#define MIXED_GEMM_SELECTION_OF(Problem)                                                    \
  template const Family<Problem>& family_of<Problem>(const Choice&);                        \
  template std::string config_name<Problem>(const Choice&);                                 \
  template std::optional<Choice> parse_config<Problem>(const std::string&);                 \
  template std::string why_not(const Choice&, const Problem&, const DeviceInfo&);           \
  template double predict_us(const Choice&, const Problem&, const DeviceInfo&);             \
  template std::vector<Choice> ranked(const Problem&, const DeviceInfo&);                   \
  template std::string why_none(const Problem&, const DeviceInfo&);                         \
  template Selection select(const Problem&, const DeviceInfo&, const std::vector<Choice>&); \
  template std::optional<Choice> choose(const Problem&, const DeviceInfo&);

MIXED_GEMM_PROBLEMS(MIXED_GEMM_SELECTION_OF)

}  // namespace mixed_gemm
