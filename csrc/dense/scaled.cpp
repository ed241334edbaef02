#include "dense/scaled.h"

#include "mainloop/direct_support.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kAlignment = 16;  // of N and K, for cuBLAS
constexpr int kLastOfOurs = 90;     // instructions of newer compute capabilities are in no kernel

std::vector<Choice> choices() { return {Choice()}; }

// Whether tensor cores of the device multiply float8, whatever this build has kernels for.
bool multiplies_float8(const DeviceInfo& device) {
  Build with_all;
  with_all.fp8 = true;
  return why_not_operand(OperandType::kFloat8E4M3, device, with_all).empty();
}

// ---- scales of rows and columns -----------------------------------------------------------------

constexpr const char* kScaled = "torch._scaled_mm";

std::string scaled_config(const Choice&) { return kScaled; }
bool parse_scaled(const std::string& name, Choice&) { return name == kScaled; }

std::string why_not_whole(const Choice&, const ScaledMmProblem& p, const DeviceInfo& device) {
  if (p.operand != OperandType::kFloat8E4M3) return "multiplies float8 only";
  if (p.block_k > 0) return "takes scales of rows and columns, not of blocks";
  if (!multiplies_float8(device)) return "needs compute capability 8.9 or newer";
  if (p.n == 0 || p.k == 0 || p.n % kAlignment != 0 || p.k % kAlignment != 0) {
    return "takes N and K in positive multiples of 16, got N=" + std::to_string(p.n) +
           ", K=" + std::to_string(p.k);
  }
  return "";
}

double place_of_scaled(const Choice&, const ScaledMmProblem&, const DeviceInfo& device) {
  return device.sm > kLastOfOurs ? 0 : kNeverChosen;
}

std::string reason_for_scaled(const ScaledMmProblem&, const DeviceInfo&) {
  return "mma.sync with fp8 operands is slow on GPUs behind compute capability 9.0, whose "
         "instructions no kernel of ours uses: torch._scaled_mm (cuBLAS) runs it";
}

// ---- scales of blocks ---------------------------------------------------------------------------

constexpr const char* kBlocks = "torch.mm";

std::string blocks_config(const Choice&) { return kBlocks; }
bool parse_blocks(const std::string& name, Choice&) { return name == kBlocks; }

std::string why_not_by_blocks(const Choice&, const ScaledMmProblem& p, const DeviceInfo&) {
  if (p.operand != OperandType::kFloat8E4M3) return "multiplies float8 only";
  return p.block_k > 0 ? "" : "takes scales of blocks, not of rows and columns";
}

double place_of_blocks(const Choice&, const ScaledMmProblem& p, const DeviceInfo& device) {
  return has_scales_of_blocks(device, p.block_n, p.block_k) ? kNeverChosen : 0;
}

std::string no_kernel_of_blocks(const ScaledMmProblem& p) {
  return "no kernel for this GPU multiplies float8 with scales of blocks of " +
         std::to_string(p.block_n) + " x " + std::to_string(p.block_k);
}

std::string reason_for_blocks(const ScaledMmProblem& p, const DeviceInfo&) {
  return no_kernel_of_blocks(p) + ": torch adds up the blocks one by one, in fp32";
}

}  // namespace

const Family<ScaledMmProblem> TorchScaled::plan = {"torch",      choices,       scaled_config,
                                                   parse_scaled, why_not_whole, place_of_scaled,
                                                   nullptr,      false,         reason_for_scaled};

const Family<ScaledMmProblem> TorchBlocks::plan = {
    "torch",         choices, blocks_config, parse_blocks,     why_not_by_blocks,
    place_of_blocks, nullptr, false,         reason_for_blocks};

// Asked in every call: a text is made only where torch is first.
bool prefers_torch(const ScaledMmProblem& p, const DeviceInfo& device) {
  if (p.operand != OperandType::kFloat8E4M3) return false;
  const auto& family = p.block_k > 0 ? TorchBlocks::plan : TorchScaled::plan;
  return family.predict_us(Choice(), p, device) < kNeverChosen &&
         family.why_not(Choice(), p, device).empty();
}

std::string why_no_kernel(const ScaledMmProblem& p, const DeviceInfo& device) {
  if (p.operand != OperandType::kFloat8E4M3) return "";
  if (p.block_k > 0) {
    return has_scales_of_blocks(device, p.block_n, p.block_k) ? "" : no_kernel_of_blocks(p);
  }
  return multiplies_float8(device) ? "" : "no GPU before compute capability 8.9 multiplies float8";
}

}  // namespace mixed_gemm
