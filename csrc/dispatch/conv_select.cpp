#include "dispatch/conv_select.h"

#include <algorithm>
#include <numeric>

#include "conv/config.h"
#include "conv_int8/config.h"
#include "dispatch/conv_cost.h"
#include "dispatch/cost_model.h"
#include "dispatch/direct_cost.h"
#include "dispatch/remembered.h"
#include "dispatch/scaled_select.h"
#include "dispatch/select.h"
#include "dispatch/support.h"
#include "layout/conv_layout.h"

namespace mixed_gemm {
namespace {

constexpr const char* kFamily = "implicit";
constexpr const char* kInt8Family = "int8";
constexpr const char* kPointwise = "pointwise";
constexpr const char* kDense = "dequantize_conv";

std::string why_not_smem(int needed, const DeviceInfo& device) {
  if (needed <= device.smem_bytes) return "";
  return "needs " + std::to_string(needed) + " bytes of shared memory, the device has " +
         std::to_string(device.smem_bytes);
}

// The library rounds to 16 bits before a bias could be added, and before most activations.
std::string why_not_dense(const ConvProblem& p) {
  if (p.element == ElementType::kFloat32) return "";
  if (p.bias != nullptr) return "would round before it adds the bias";
  const Activation a = p.activation;
  if (a != Activation::kIdentity && a != Activation::kRelu) {
    return std::string("would round before ") + kActivationNames[static_cast<int>(a)];
  }
  return "";
}

ScaledMmProblem gemm_of(const ConvShape& s) {
  ScaledMmProblem p;
  p.m = s.rows();
  p.n = s.out_c;
  p.k = s.taps() * round_up(s.in_c, 16);
  return p;
}

std::vector<ConvCandidate> sorted(std::vector<ConvCandidate> candidates) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const ConvCandidate& a, const ConvCandidate& b) {
                     return a.predicted_us < b.predicted_us;
                   });
  return candidates;
}

std::optional<ConvCandidate> first_of(const std::vector<ConvCandidate>& ranked) {
  return ranked.empty() ? std::nullopt : std::optional(ranked.front());
}

}  // namespace

std::string config_name(const ConvCandidate& c) {
  if (c.kind == ConvKind::kDense) return kDense;
  if (c.kind == ConvKind::kPointwise) return kPointwise;
  return c.kind == ConvKind::kInt8 ? tile_choice_name(kInt8Family, kConvInt8TileConfigs, c)
                                   : tile_choice_name(kFamily, kConvTileConfigs, c);
}

std::optional<ConvCandidate> parse_conv_config(const std::string& name) {
  ConvCandidate c;
  if (name == kDense || name == kPointwise) {
    c.kind = name == kDense ? ConvKind::kDense : ConvKind::kPointwise;
    return c;
  }
  if (parse_tile_choice(name, kFamily, kConvTileConfigs, kNumConvTileConfigs, c)) return c;
  return std::nullopt;
}

std::optional<ConvCandidate> parse_conv_int8_config(const std::string& name) {
  ConvCandidate c;
  c.kind = ConvKind::kInt8;
  if (parse_tile_choice(name, kInt8Family, kConvInt8TileConfigs, kNumConvInt8TileConfigs, c))
    return c;
  return std::nullopt;
}

GemmProblem gemm_of(const ConvProblem& p) {
  GemmProblem gemm;
  gemm.m = p.shape.rows();
  gemm.n = p.shape.out_c;
  gemm.k = conv_k(p.shape.in_c, p.shape.taps());
  gemm.element = p.element;
  gemm.scheme = {p.bits, ConvGroups(p.shape.in_c, p.shape.taps(), p.block_size).size,
                 p.offsets == nullptr ? ZeroMode::kNone : ZeroMode::kAdd};
  gemm.activation = p.activation;
  return gemm;
}

GemmProblem pointwise_gemm_of(const ConvProblem& p) {
  GemmProblem gemm = gemm_of(p);
  gemm.k = p.shape.in_c;
  gemm.scheme.group_size = p.block_size;
  return gemm;
}

std::string why_not_conv_candidate(const ConvCandidate& c, const ConvProblem& p,
                                   const DeviceInfo& device) {
  if (c.kind == ConvKind::kDense) return why_not_dense(p);
  if (p.element == ElementType::kFloat32) return "has 16-bit activations, got float32";
  if (c.kind == ConvKind::kPointwise) {
    return p.shape.is_pointwise() ? "" : "needs a 1 x 1 filter, stride 1 and no padding";
  }
  const TileConfig& tile = kConvTileConfigs[c.row];
  const GemmProblem gemm = gemm_of(p);
  const ScaleMode mode = conv_scale_mode(gemm.scheme.zero_mode, p.block_size, p.shape.in_c,
                                         channels_per_tap(p.shape.in_c));
  return why_not_tile(c, tile, conv_smem_bytes(tile, p.bits, mode), gemm, device);
}

std::string why_not_conv_int8_candidate(const ConvCandidate& c, const ConvShape& shape,
                                        const DeviceInfo& device) {
  if (c.split == SplitK::kParallel) return "has no second kernel that adds slices of int8 outputs";
  const TileConfig& tile = kConvInt8TileConfigs[c.row];
  const std::string reason =
      why_not_direct(c, tile, scaled_smem_bytes(tile), gemm_of(shape), device);
  return reason.empty() ? why_not_smem(conv_int8_smem_bytes(tile), device) : reason;
}

std::vector<ConvCandidate> ranked_conv(const ConvProblem& p, const DeviceInfo& device) {
  const GemmProblem gemm = gemm_of(p);
  std::vector<ConvCandidate> legal;
  const auto consider = [&](ConvCandidate c, const auto& predict) {
    if (!why_not_conv_candidate(c, p, device).empty()) return;
    c.predicted_us = predict(c);
    legal.push_back(c);
  };
  std::vector<int> rows(kNumConvTileConfigs);
  std::iota(rows.begin(), rows.end(), 0);
  for (const TileChoice& choice : tile_choices(kConvTileConfigs, rows)) {
    consider({choice, ConvKind::kImplicit, 0},
             [&](const ConvCandidate& c) { return predict_implicit_us(c, p, gemm, device); });
  }
  consider({TileChoice(), ConvKind::kPointwise, 0}, [&](const ConvCandidate&) {
    const GemmProblem pointwise = pointwise_gemm_of(p);
    const auto ranked = ranked_candidates(pointwise, device);
    return predict_pointwise_us(select(pointwise, device, ranked).candidate.predicted_us, p,
                                device);
  });
  consider({TileChoice(), ConvKind::kDense, 0},
           [&](const ConvCandidate&) { return predict_dense_conv_us(p, gemm, device); });
  return sorted(std::move(legal));
}

std::vector<ConvCandidate> ranked_conv_int8(const ConvShape& shape, const DeviceInfo& device) {
  const ScaledMmProblem gemm = gemm_of(shape);
  std::vector<ConvCandidate> legal;
  std::vector<int> rows(kNumConvInt8TileConfigs);
  std::iota(rows.begin(), rows.end(), 0);
  for (const TileChoice& choice : tile_choices(kConvInt8TileConfigs, rows)) {
    ConvCandidate c{choice, ConvKind::kInt8, 0};
    if (!why_not_conv_int8_candidate(c, shape, device).empty()) continue;
    const TileConfig& tile = kConvInt8TileConfigs[c.row];
    c.predicted_us = predict_direct_us(choice,
                                       {tile, scaled_smem_bytes(tile), gemm.m, gemm.n, gemm.k,
                                        ceil_div(gemm.k, kScaledTileK), 1, 0},
                                       device);
    legal.push_back(c);
  }
  return sorted(std::move(legal));
}

std::optional<ConvCandidate> select_conv(const ConvProblem& problem, const DeviceInfo& device) {
  return remembered<std::optional<ConvCandidate>>(
      problem, device,
      [](const ConvProblem& p, const DeviceInfo& d) { return first_of(ranked_conv(p, d)); });
}

std::optional<ConvCandidate> select_conv_int8(const ConvShape& shape, const DeviceInfo& device) {
  return remembered<std::optional<ConvCandidate>>(
      shape, device,
      [](const ConvShape& s, const DeviceInfo& d) { return first_of(ranked_conv_int8(s, d)); });
}

}  // namespace mixed_gemm
