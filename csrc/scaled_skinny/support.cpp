#include "scaled_skinny/family.h"

#include <algorithm>
#include <cmath>

#include "core/skinny_rows.h"
#include "mainloop/direct_support.h"
#include "scaled_skinny/config.h"

namespace mixed_gemm {
namespace {

std::string row_name(int row) {
  const ScaledSkinnyConfig& config = kScaledSkinnyConfigs[row];
  return skinny_row_name(scaled_skinny_tokens(config), scaled_skinny_columns(config), config.warps);
}

std::vector<Choice> choices() {
  std::vector<Choice> all;
  for (int row = 0; row < kNumScaledSkinnyConfigs; ++row) all.push_back({0, row});
  return all;
}

std::string config(const Choice& c) { return row_name(c.row) + split_name(c); }

bool parse(const std::string& name, Choice& c) {
  return parse_row_and_split(name, kNumScaledSkinnyConfigs, row_name, c);
}

std::string why_not(const Choice& c, const ScaledMmProblem& p, const DeviceInfo&) {
  if (c.split != SplitK::kNone) return "shares out K among the warps of a block alone";
  if (p.block_k > 0) return "takes scales of rows and columns, not of blocks";
  if (p.k == 0 || p.k % kScaledSkinnyVector != 0) {
    return "reads 16 elements of K at once: K must be a positive multiple of 16, got " +
           std::to_string(p.k);
  }
  return why_not_skinny_rows(p.m, scaled_skinny_tokens(kScaledSkinnyConfigs[c.row]));
}

// Times in microseconds, fitted to 64 points of an H100 with up to 16 rows (4096 x 4096 to
// 28672 x 4096): within 13 %, and the choice with the other families within 6 % of the best.
constexpr double kLaunchUs = 2.65;    // and the first bytes, the reduction, and storing
constexpr double kDram = 1.02;        // of the bandwidth
constexpr double kBlockRate = 19e3;   // bytes per us that the loads of a block keep in flight
constexpr double kTokenRate = 650e3;  // bytes of activations per us and SM
// The factor where float8 is made float16 for its products, by tiles of 8 tokens.
constexpr double kEmulated[] = {1.015, 1.09};

double predict_us(const Choice& c, const ScaledMmProblem& p, const DeviceInfo& d) {
  const ScaledSkinnyConfig& t = kScaledSkinnyConfigs[c.row];
  const int rows = scaled_skinny_tokens(t);
  const double m_blocks = static_cast<double>(ceil_div(p.m, rows));
  const double blocks = m_blocks * ceil_div(p.n, scaled_skinny_columns(t));
  const double share = std::ceil(blocks / d.sm_count);  // blocks of the busiest SM
  const double at_once = std::min<double>(share, t.resident_warps / t.warps);
  const double rate = std::min(
      at_once * kBlockRate, d.dram_gb_per_s * 1e3 * kDram / std::min<double>(blocks, d.sm_count));
  const double weights = share * scaled_skinny_columns(t) * p.k / rate;
  const double tokens = share * std::min<double>(p.m, rows) * p.k / kTokenRate;
  const bool emulated = p.operand == OperandType::kFloat8E4M3 && has_no_float8_mma(d);
  return kLaunchUs + (weights + tokens) * (emulated ? kEmulated[t.m_tiles - 1] : 1.0);
}

}  // namespace

const Family<ScaledMmProblem> ScaledSkinny::plan = {"skinny", choices, config,
                                                    parse,    why_not, predict_us};

}  // namespace mixed_gemm
