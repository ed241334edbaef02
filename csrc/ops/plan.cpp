// _plan and _env say what the library would do and why, as JSON for
// mixed_gemm/selection/planning.py and environment.py.
#include <algorithm>

#include "block_gemm/family.h"
#include "core/build.h"
#include "core/device.h"
#include "core/printable.h"
#include "cpu/gemm/gemm_cpu.h"
#include "dense/scaled.h"
#include "dispatch/device_text.h"
#include "dispatch/select.h"
#include "dispatch/tuned_table.h"
#include "grid/device_query.h"
#include "layout/weight_layout.h"
#include "ops/errors.h"
#include "ops/json_text.h"
#include "ops/torch_stable.h"
#include "problem/block_gemm.h"
#include "problem/conv.h"
#include "problem/extents.h"
#include "problem/gemm.h"
#include "problem/grouped_gemm.h"
#include "problem/integer_bits.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {
namespace {

template <size_t kCount>
std::optional<int> find(const char* const (&names)[kCount], const std::string& name) {
  const auto* at = std::find(std::begin(names), std::end(names), name);
  if (at == std::end(names)) return std::nullopt;
  return static_cast<int>(at - std::begin(names));
}

std::string refused(const std::vector<std::string>& reasons, const std::string& nearest) {
  return "{\"ok\": false, \"reasons\": " + json_list(reasons, json_string) + ", \"nearest\": {" +
         nearest + "}}";
}

// The device that the ops called `op` are asked about; nothing for "cpu".
std::optional<DeviceInfo> device_of(const char* op, const std::string& text) {
  std::optional<DeviceInfo> device;
  const std::string reason = parse_device_text(text, device);
  MIXED_GEMM_CHECK(kValue, reason.empty(), op, reason);
  if (device) device = with_default_rates(*device);
  return device;
}

// The text of a GPU of this machine, with all that its ops choose by.
std::string device(int64_t index) {
#if defined(MIXED_GEMM_WITH_CUDA)
  int count = 0;
  const Status status = cuda_device_count(count);
  MIXED_GEMM_CHECK(kUnsupported, status.ok(), "_device", "index must be of a CUDA device, got ",
                   index, "; ", status.reason());
  MIXED_GEMM_CHECK(kValue, index >= 0 && index < count, "_device", "index must be of one of the ",
                   count, " CUDA devices, got ", index);
  return device_text(cuda_device_info(static_cast<int>(index)));
#else
  refuse(ErrorKind::kUnsupported, "_device",
         joined("index must be of a CUDA device, got ", index, "; this build has no CUDA code"));
#endif
}

// The choice for a problem on a GPU, and all others.
template <typename Problem>
std::string planned(const Problem& problem, const DeviceInfo& device) {
  const std::vector<Choice> all = ranked(problem, device);
  if (all.empty()) return refused({why_none(problem, device)}, "");
  const auto [choice, reason] = select(problem, device, all);
  return "{\"ok\": true, \"selected\": " + json_string(config_name<Problem>(choice)) +
         ", \"family\": " + json_string(family_of<Problem>(choice).name) +
         ", \"reason\": " + json_string(reason) + ", \"candidates\": " +
         json_list(all,
                   [](const Choice& c) {
                     const bool has_model = family_of<Problem>(c).reason == nullptr;
                     return "{\"config\": " + json_string(config_name<Problem>(c)) +
                            ", \"predicted_us\": " +
                            (has_model ? json_number(c.predicted_us) : "null") + "}";
                   }) +
         "}";
}

std::string planned_cpu(const std::string& path) {
  const std::string name = "cpu_" + cpu_instruction_set();
  const std::string reason = "the best instruction set of this CPU";
  return "{\"ok\": true, \"selected\": " + json_string(name) +
         ", \"family\": \"cpu\", \"reason\": " +
         json_string(path.empty() ? reason : reason + "; " + path) +
         ", \"candidates\": [{\"config\": " + json_string(name) + ", \"predicted_us\": null}]}";
}

// A question about the product of a packed weight. What is wrong with the weight itself stands in
// `reasons`, and `offers` has what would be accepted in its place.
struct PlannedWeight {
  std::optional<WeightType> type;
  std::optional<ZeroMode> zeros;
  std::vector<std::string> reasons, offers;
};

// experts: how many have such a weight, where rows belong to experts.
std::string plan_of(const char* op, int64_t m, int64_t n, int64_t k, const std::string& dtype,
                    const PlannedWeight& weight, int64_t group_size, const std::string& device,
                    std::optional<int64_t> experts = {}) {
  std::vector<std::string> reasons = why_not_problem(m, n, k, group_size);
  if (experts && *experts < 1) {
    reasons.push_back("experts must be at least 1, got " + std::to_string(*experts));
  }
  const auto element = find(kElementTypeNames, dtype);
  if (!weight.type) reasons.insert(reasons.begin(), weight.reasons.front());
  if (!element)
    reasons.push_back("dtype must be float16, bfloat16 or float32, got " + printable(dtype));
  if (!weight.zeros) reasons.push_back(weight.reasons.back());
  const auto info = device_of(op, device);
  if (info && !why_not_device(*info).empty()) reasons.push_back(why_not_device(*info));
  if (!reasons.empty()) {
    std::string nearest;
    const auto offer = [&](const char* name, const std::string& value) {
      nearest += (nearest.empty() ? "" : ", ") + json_string(name) + ": " + value;
    };
    const int64_t group = nearest_group_size(k, group_size);
    if (group != group_size) offer("group_size", std::to_string(group));
    for (const std::string& x : weight.offers) nearest += (nearest.empty() ? "" : ", ") + x;
    if (experts && *experts < 1) offer("experts", "1");
    if (!element) offer("dtype", json_string(kElementTypeNames[0]));
    return refused(reasons, nearest);
  }
  GemmProblem problem;  // an empty product launches nothing; plan it as if it had one row
  problem.m = std::max<int64_t>(m, 1);
  problem.n = std::max<int64_t>(n, 1);
  // Rows of experts that have no K are biases alone, which tensor cores do not make.
  problem.k = experts ? k : std::max<int64_t>(k, 1);
  problem.element = static_cast<ElementType>(*element);
  problem.scheme = {*weight.type,
                    {ScaleType::kActivations,
                     group_size == -1 ? std::max<int64_t>(k, 1) : group_size, *weight.zeros}};
  if (!info) return planned_cpu(cpu_path(problem));
  if (!experts) return planned(problem, *info);
  return planned(GroupedGemmProblem{problem, *experts, nullptr}, *info);
}

std::string plan(int64_t m, int64_t n, int64_t k, std::string dtype, int64_t bits,
                 int64_t group_size, std::string zero_mode, std::string device) {
  PlannedWeight weight;
  weight.type = why_not_bits(bits).empty() ? integer_weight(bits) : std::nullopt;
  if (!weight.type) {
    weight.reasons.push_back(why_not_bits(bits));
    weight.offers.push_back(json_string("bits") + ": " + std::to_string(nearest_bits(bits)));
  }
  if (const auto mode = find(kZeroModeNames, zero_mode)) {
    weight.zeros = static_cast<ZeroMode>(*mode);
  } else {
    weight.reasons.push_back("zero_mode must be none, sub or add, got " + printable(zero_mode));
  }
  return plan_of("_plan", m, n, k, dtype, weight, group_size, device);
}

std::string weight_names_from(int first) {
  std::string names;
  for (int i = first; i < kNumWeights; ++i) {
    names += (names.empty() ? "" : ", ") + std::string(kWeightNames.items[i]);
  }
  return names;
}

// The same for the product of packed floats, fpA_fpB_gemm.
std::string plan_codes(int64_t m, int64_t n, int64_t k, std::string dtype, std::string name,
                       int64_t group_size, std::string device) {
  PlannedWeight weight;
  weight.zeros = ZeroMode::kNone;
  const auto found = find(kWeightNames.items, name);
  if (found && *found >= kFirstFloat) {
    weight.type = static_cast<WeightType>(*found);
  } else {
    weight.reasons.push_back("weight must be one of " + weight_names_from(kFirstFloat) + ", got " +
                             printable(name));
    weight.offers.push_back(json_string("weight") + ": " +
                            json_string(kWeightNames.items[kFirstFloat]));
  }
  return plan_of("_plan_codes", m, n, k, dtype, weight, group_size, device);
}

// The same for products whose rows belong to experts, of weights of any type.
std::string plan_grouped(int64_t m, int64_t experts, int64_t n, int64_t k, std::string dtype,
                         std::string name, int64_t group_size, std::string zero_mode,
                         std::string device) {
  PlannedWeight weight;
  if (const auto found = find(kWeightNames.items, name)) {
    weight.type = static_cast<WeightType>(*found);
  } else {
    weight.reasons.push_back("weight must be one of " + weight_names_from(0) + ", got " +
                             printable(name));
    weight.offers.push_back(json_string("weight") + ": " + json_string(kWeightNames.items[0]));
  }
  if (const auto mode = find(kZeroModeNames, zero_mode)) {
    weight.zeros = static_cast<ZeroMode>(*mode);
  } else {
    weight.reasons.push_back("zero_mode must be none, sub or add, got " + printable(zero_mode));
  }
  return plan_of("_plan_grouped", m, n, k, dtype, weight, group_size, device, experts);
}

std::string plan_scaled_mm(int64_t m, int64_t n, int64_t k, std::string dtype,
                           std::string out_dtype, std::string device,
                           std::optional<std::vector<int64_t>> block_size) {
  std::vector<std::string> reasons;
  const auto operand = find(kOperandTypeNames, dtype);
  if (operand) {
    reasons = why_not_scaled_mm(m, n, k, static_cast<OperandType>(*operand));
  } else {
    reasons.push_back("dtype must be int8 or float8_e4m3fn, got " + printable(dtype));
  }
  const auto out = find(kElementTypeNames, out_dtype);
  if (!out)
    reasons.push_back("out_dtype must be float16, bfloat16 or float32, got " +
                      printable(out_dtype));
  const auto info = device_of("_plan_scaled_mm", device);
  if (info && !why_not_device(*info).empty()) reasons.push_back(why_not_device(*info));
  const bool blocks = block_size.has_value();
  const bool has_blocks =
      blocks && block_size->size() == 2 && block_size->at(0) >= 1 && block_size->at(1) >= 1;
  ScaledMmProblem problem;  // planned with at least one row and column, as in plan()
  problem.m = std::max<int64_t>(m, 1);
  problem.n = std::max<int64_t>(n, 1);
  problem.k = k;
  if (operand) problem.operand = static_cast<OperandType>(*operand);
  if (out) problem.out = static_cast<ElementType>(*out);
  if (has_blocks) {
    problem.block_n = block_size->at(0);
    problem.block_k = block_size->at(1);
  }
  if (info && operand && !prefers_torch(problem, *info)) {
    const std::string reason = why_not_operand(problem.operand, *info);
    if (!reason.empty()) reasons.push_back(reason);
  }
  if (blocks && !has_blocks) reasons.push_back("block_size must be two positive numbers");
  if (reasons.empty()) return info ? planned(problem, *info) : planned_cpu("");
  std::string nearest;
  if (!operand) nearest = "\"dtype\": " + json_string(kOperandTypeNames[0]);
  if (!out) {
    nearest +=
        (nearest.empty() ? "" : ", ") + ("\"out_dtype\": " + json_string(kElementTypeNames[0]));
  }
  return refused(reasons, nearest);
}

// sm: the compute capability of a GPU, 90 for 9.0, or 0 for a CPU, whose kernels take everything.
std::string why_not_scaled(std::string dtype, int64_t sm,
                           std::optional<std::vector<int64_t>> block_size) {
  const auto operand = find(kOperandTypeNames, dtype);
  MIXED_GEMM_CHECK(kValue, operand, "_why_not_scaled", "dtype must be int8 or float8_e4m3fn, got ",
                   printable(dtype));
  ScaledMmProblem problem;
  problem.operand = static_cast<OperandType>(*operand);
  if (block_size) {
    const std::string reason = why_not_blocks(problem.operand, *block_size);
    MIXED_GEMM_CHECK(kValue, reason.empty(), "_why_not_scaled", reason);
    problem.block_n = block_size->at(0);
    problem.block_k = block_size->at(1);
  }
  DeviceInfo device;
  device.sm = static_cast<int>(sm);
  return sm == 0 ? "" : why_no_kernel(problem, device);
}

std::string plan_block_quant_gemm(int64_t m, int64_t n, int64_t k, int64_t block_size,
                                  std::string device) {
  BlockGemmProblem problem;
  problem.m = std::max<int64_t>(m, 1);
  problem.n = std::max<int64_t>(n, 1);
  problem.k = k;
  problem.block_size = block_size == -1 ? std::max<int64_t>(k, 1) : block_size;
  std::string reason = why_not_block_gemm(m, n, k, block_size);
  const auto info = device_of("_plan_block_quant_gemm", device);
  if (reason.empty() && info) reason = why_not_device(*info);
  if (reason.empty() && info) reason = why_not_block_counts(problem);
  if (!reason.empty()) return refused({reason}, "");
  if (!info) return planned_cpu("");
  return planned(problem, *info);
}

std::string set_tuned(std::string text) { return json_list(set_tuned_table(text), json_string); }

std::string env() {
#if defined(MIXED_GEMM_WITH_CUDA)
  const char* cuda = "true";
#else
  const char* cuda = "false";
#endif
  return "{\"version\": " + json_string(MIXED_GEMM_VERSION) +
         ", \"cpu_instruction_set\": " + json_string(cpu_instruction_set()) +
         ", \"cuda\": " + cuda + ", \"cuda_archs\": " + json_string(this_build().archs) +
         ", \"layout_version\": " + std::to_string(kLayoutVersion) + "}";
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CompositeExplicitAutograd, m) {
  m.impl("_plan", TORCH_BOX(&mixed_gemm::plan));
  m.impl("_plan_codes", TORCH_BOX(&mixed_gemm::plan_codes));
  m.impl("_plan_grouped", TORCH_BOX(&mixed_gemm::plan_grouped));
  m.impl("_plan_scaled_mm", TORCH_BOX(&mixed_gemm::plan_scaled_mm));
  m.impl("_plan_block_quant_gemm", TORCH_BOX(&mixed_gemm::plan_block_quant_gemm));
  m.impl("_why_not_scaled", TORCH_BOX(&mixed_gemm::why_not_scaled));
  m.impl("_set_tuned_table", TORCH_BOX(&mixed_gemm::set_tuned));
  m.impl("_device", TORCH_BOX(&mixed_gemm::device));
  m.impl("_env", TORCH_BOX(&mixed_gemm::env));
}
