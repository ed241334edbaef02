#include "grouped/plan.h"
#include "grouped_plain/config.h"
#include "grouped_plain/family.h"

namespace mixed_gemm {
namespace {

constexpr const char* kName = "grouped_plain";
constexpr double kLast = 1e9;  // us: no time, but a place behind all others

std::vector<Choice> choices() { return {Choice()}; }
std::string config(const Choice&) { return kName; }
bool parse(const std::string& name, Choice&) { return name == kName; }
std::string why_not(const Choice&, const GroupedGemmProblem& p, const DeviceInfo&) {
  return why_not_along_y(p, kPlainRows);
}
double predict_us(const Choice&, const GroupedGemmProblem&, const DeviceInfo&) { return kLast; }
std::string reason(const GroupedGemmProblem&, const DeviceInfo&) {
  return "no kernel of tensor cores multiplies experts of this dtype, weight or size";
}

}  // namespace

const Family<GroupedGemmProblem> GroupedPlain::plan = {kName,      choices, config, parse, why_not,
                                                       predict_us, nullptr, false,  reason};

}  // namespace mixed_gemm
