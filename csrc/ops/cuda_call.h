// Device, stream and workspace of one call of a CUDA op.
#pragma once
#include <string>
#include <vector>

#include "dispatch/cuda_runner.h"
#include "dispatch/support.h"
#include "ops/torch_stable.h"

namespace mixed_gemm {

// `on` is a checked tensor: on a GPU. The workspace lives until the call returns. torch's caching
// allocator gives memory back in stream order, so work that is still queued may go on using it.
class Call {
 public:
  Call(const char* op, const Tensor& on)
      : op_(op),
        like_(on),
        guard_(on.get_device_index()),
        stream_(current_cuda_stream(on.get_device_index())) {
    const std::string reason = why_not_device(info());
    MIXED_GEMM_CHECK(kUnsupported, reason.empty(), op_, reason);
  }
  const DeviceInfo& info() const { return cuda_device_info(like_.get_device_index()); }
  void* stream() const { return stream_; }
  Allocate allocate() {
    return [this](int64_t bytes) {
      workspace_.push_back(torch::stable::new_empty(like_, {bytes}, ScalarType::Byte));
      return workspace_.back().mutable_data_ptr();
    };
  }
  // What was selected, or an exception: no kernel may fit a GPU.
  template <typename Candidate>
  Candidate chosen(const std::optional<Candidate>& candidate) const {
    MIXED_GEMM_CHECK(kUnsupported, candidate, op_,
                     "no kernel fits this GPU, whose blocks have at most ", info().smem_bytes,
                     " bytes of shared memory. Hint: move the tensors to the CPU");
    return *candidate;
  }
  void require(const Status& status) const {
    MIXED_GEMM_CHECK(kRuntime, status.ok(), op_, status.reason());
  }

 private:
  const char* op_;
  const Tensor& like_;
  torch::stable::accelerator::DeviceGuard guard_;
  void* stream_;
  std::vector<Tensor> workspace_;
};

}  // namespace mixed_gemm
