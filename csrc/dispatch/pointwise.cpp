#include "dispatch/pointwise.h"

#include "dispatch/select.h"
#include "mainloop/image_cost.h"

namespace mixed_gemm {
namespace {

constexpr const char* kName = "pointwise";
constexpr double kPointwiseTraffic = 1.18;  // over the bandwidth; the GEMM's model has no images

std::vector<Choice> choices() { return {Choice()}; }
std::string config(const Choice&) { return kName; }
bool parse(const std::string& name, Choice&) { return name == kName; }

std::string why_not(const Choice&, const ConvProblem& p, const DeviceInfo&) {
  if (p.element == ElementType::kFloat32) return "has 16-bit activations, got float32";
  return p.shape.is_pointwise() ? "" : "needs a 1 x 1 filter, stride 1 and no padding";
}

double predict_us(const Choice&, const ConvProblem& p, const DeviceInfo& device) {
  const GemmProblem gemm = pointwise_gemm_of(p);
  return select(gemm, device, ranked(gemm, device)).choice.predicted_us +
         image_us(p, kPointwiseTraffic, device);
}

}  // namespace

const Family<ConvProblem> Pointwise::plan = {kName, choices, config, parse, why_not, predict_us};

}  // namespace mixed_gemm
