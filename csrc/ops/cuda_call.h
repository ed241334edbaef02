// Device, stream and workspace of one call of a CUDA op.
#pragma once
#include <string>
#include <vector>

#include "dispatch/run.h"
#include "dispatch/select.h"
#include "grid/device_query.h"
#include "ops/call.h"

namespace mixed_gemm {

// The workspace lives until the call returns. torch's caching allocator gives memory back in stream
// order, so work that is still queued may go on using it.
class CudaCall {
 public:
  // with_kernels: ours run, so that the build must have code for the GPU.
  explicit CudaCall(const Call& call, bool with_kernels = true)
      : op_(call.op()),
        index_(call.view(0).index),
        guard_(index_),
        stream_(current_cuda_stream(index_)) {
    if (info().sm == 0) {  // nothing could be asked of it
      int count = 0;
      const Status status = cuda_device_count(count);
      MIXED_GEMM_CHECK(kUnsupported, status.ok(), op_, status.reason());
    }
    if (!with_kernels) return;
    const std::string reason = why_not_device(info());
    MIXED_GEMM_CHECK(kUnsupported, reason.empty(), op_, reason);
  }
  const DeviceInfo& info() const { return cuda_device_info(index_); }
  void* stream() const { return stream_; }
  Tensor empty(const std::vector<int64_t>& sizes, ScalarType type) const {
    return empty_on(aoti_torch_device_type_cuda(), index_, sizes, type);
  }
  Allocate allocate() {
    return [this](int64_t bytes) {
      workspace_.push_back(empty({bytes}, ScalarType::Byte));
      return workspace_.back().mutable_data_ptr();
    };
  }
  // The choice that runs the problem: the configuration of this name, or dispatch/'s if it is
  // empty. Throws if there is none.
  template <typename Problem>
  Choice chosen(const Problem& problem, const std::string& config) const {
    if (config.empty()) {
      const std::optional<Choice> choice = choose(problem, info());
      MIXED_GEMM_CHECK(kUnsupported, choice, op_, why_none(problem, info()),
                       ". Hint: move the tensors to the CPU");
      return *choice;
    }
    const std::optional<Choice> choice = parse_config<Problem>(config);
    MIXED_GEMM_CHECK(kValue, choice, op_, "unknown config ", config, unknown_hint(problem));
    const std::string reason = why_not(*choice, problem, info());
    MIXED_GEMM_CHECK(kUnsupported, reason.empty(), op_, config, " ", reason);
    return *choice;
  }
  RunContext context() { return {info(), stream(), allocate(), {}, {}, {}}; }
  static const char* unknown_hint(const GemmProblem&) {
    return ". Hint: mixed_gemm.plan() lists the candidates";
  }
  template <typename Problem>
  static const char* unknown_hint(const Problem&) {
    return "";
  }
  void require(const Status& status) const {
    MIXED_GEMM_CHECK(kRuntime, status.ok(), op_, status.reason());
  }

 private:
  const char* op_;
  int32_t index_;
  torch::stable::accelerator::DeviceGuard guard_;
  void* stream_;
  std::vector<Tensor> workspace_;
};

}  // namespace mixed_gemm
