#include "dense/conv.h"

#include <algorithm>

#include "core/tile.h"
#include "mainloop/image_cost.h"

namespace mixed_gemm {
namespace {

constexpr const char* kName = "dequantize_conv";

// Times in microseconds and shares, fitted with those of conv/cost.cpp.
constexpr double kDenseUs = 4.38;          // dequantizing a small filter, launching the library
constexpr double kDenseTapsUs = 3.06;      // more, of filters with several taps
constexpr double kDenseTileUs = 0.052;     // latency of 64 k, which the library does not split
constexpr double kDenseEfficiency = 0.99;  // of its GEMM's rate
constexpr double kDenseFilter = 0.284;     // of the bandwidth, dequantizing the filter
constexpr double kDenseOverlapLoss = 0.24;
constexpr double kDenseRagged = 2.18;  // times as long where 8 channels do not divide

std::vector<Choice> choices() { return {Choice()}; }
std::string config(const Choice&) { return kName; }
bool parse(const std::string& name, Choice&) { return name == kName; }

// The library rounds to 16 bits before a bias could be added, and before most activations.
std::string why_not(const Choice&, const ConvProblem& p, const DeviceInfo&) {
  if (p.element == ElementType::kFloat32) return "";
  if (p.bias != nullptr) return "would round before it adds the bias";
  const Activation a = p.activation;
  if (a != Activation::kIdentity && a != Activation::kRelu) {
    return std::string("would round before ") + kActivationNames[static_cast<int>(a)];
  }
  return "";
}

double predict_us(const Choice&, const ConvProblem& p, const DeviceInfo& d) {
  const GemmProblem gemm = gemm_of(p);
  const double flops = 2.0 * gemm.m * gemm.n * gemm.k;
  const double multiply = flops / (dense_tflops(d) * kDenseEfficiency * 1e6);
  const double filter =
      (2 + bits_of(p.weight) / 8.) * gemm.n * gemm.k;  // bytes that dequantizing moves
  const double latency = kDenseTileUs * static_cast<double>(ceil_div(gemm.k, kTileK));
  return (kDenseUs + (p.shape.taps() > 1 ? kDenseTapsUs : 0) +
          filter / (d.dram_gb_per_s * kDenseFilter * 1e3) +
          overlapped({multiply, latency, image_us(p, 1, d)}, kDenseOverlapLoss)) *
         (p.shape.in_c % 8 == 0 ? 1 : kDenseRagged);
}

}  // namespace

const Family<ConvProblem> DenseConv::plan = {kName, choices, config, parse, why_not, predict_us};

}  // namespace mixed_gemm
