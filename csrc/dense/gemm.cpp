#include "dense/gemm.h"

#include <algorithm>

#include "mainloop/weight_cost.h"

namespace mixed_gemm {
namespace {

constexpr const char* kName = "dequantize_dense";

std::vector<Choice> choices() { return {Choice()}; }
std::string config(const Choice&) { return kName; }
bool parse(const std::string& name, Choice&) { return name == kName; }
std::string why_not(const Choice&, const GemmProblem&, const DeviceInfo&) { return ""; }

double predict_us(const Choice&, const GemmProblem& p, const DeviceInfo& d) {
  const double element = p.element == ElementType::kFloat32 ? 4 : 2;
  const double dense_bytes = static_cast<double>(p.n) * p.k * element;
  const double dequantize =
      (weight_bytes(p) + dense_bytes) / (d.dram_gb_per_s * kGemmDramShare * 1e3);
  const double flops = 2.0 * p.m * p.n * p.k;
  const double rate = dense_tflops(d) * (element == 4 ? 0.07 : 1.0) * 1e6;
  const double gemm =
      std::max(flops / rate, dense_bytes / (d.dram_gb_per_s * kGemmDramShare * 1e3));
  return 2 * kGemmLaunchUs + dequantize + gemm;
}

}  // namespace

const Family<GemmProblem> DenseGemm::plan = {kName,   choices,    config,  parse,
                                             why_not, predict_us, nullptr, true};

}  // namespace mixed_gemm
