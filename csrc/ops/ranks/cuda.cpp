// The sum over ranks on a GPU.
#include "ops/cuda_call.h"
#include "ops/tensor_checks.h"
#include "ranks/sum_over_ranks.h"

namespace mixed_gemm {
namespace {

constexpr const char* kOp = "_sum_over_ranks";

bool begins_on_16(const void* p) { return reinterpret_cast<uintptr_t>(p) % kPieceBytes == 0; }

void set_term(SumOverRanksArgs& args, const Tensor& term, int64_t few_bytes) {
  const ScalarType type = dtype_of(term);
  if (type == ScalarType::Half) {
    args.element = ElementType::kFloat16;
  } else if (type == ScalarType::BFloat16) {
    args.element = ElementType::kBFloat16;
  } else if (type == ScalarType::Float) {
    args.element = ElementType::kFloat32;
  } else {
    wrong_type(kOp, {"term", "be float16, bfloat16 or float32", dtype_name(type)});
  }
  if (!term.is_contiguous()) {
    wrong_value(
        kOp, {"term", "be contiguous", "strides " + strides_text(term), "", "term.contiguous()"});
  }
  const int64_t bytes = term.numel() * static_cast<int64_t>(term.element_size());
  if (bytes % kPieceBytes != 0) {
    wrong_value(kOp, {"term", "have a multiple of 16 bytes", joined(bytes, " bytes"), "",
                      "torch.distributed.all_reduce"});
  }
  if (bytes > 0 && !begins_on_16(term.const_data_ptr())) {
    wrong_value(kOp, {"term", "begin at a multiple of 16 bytes", "", "", "term.clone()"});
  }
  constexpr int64_t kMostFew = kFewPieces * kPieceBytes;
  if (few_bytes < 0 || few_bytes > kMostFew) {
    wrong_value(kOp, {"few_bytes", joined("be from 0 to ", kMostFew), std::to_string(few_bytes)});
  }
  args.term = term.const_data_ptr();
  args.pieces = bytes / kPieceBytes;
  args.few = bytes <= few_bytes;
}

void set_inboxes(SumOverRanksArgs& args, const Tensor& term, const std::vector<Tensor>& inboxes,
                 int64_t rank) {
  const auto ranks = static_cast<int64_t>(inboxes.size());
  if (ranks < 2 || ranks > kMostRanks) {
    wrong_value(kOp,
                {"inboxes", joined("be of 2 to ", kMostRanks, " ranks"), std::to_string(ranks)});
  }
  if (rank < 0 || rank >= ranks) {
    wrong_value(kOp, {"rank", joined("be from 0 to ", ranks - 1), std::to_string(rank)});
  }
  const int64_t bytes = inboxes[0].numel();
  for (const Tensor& inbox : inboxes) {
    check_tensors(kOp, {{"term", term}, {"inboxes", inbox}});
    check_dtype(kOp, "inboxes", inbox, ScalarType::Byte);
    check_vector(kOp, "inboxes", inbox, "bytes of the first one", bytes);
    void* first = inbox.mutable_data_ptr();
    if (!inbox.is_contiguous() || !begins_on_16(first)) {
      wrong_value(kOp, {"inboxes", "be contiguous and begin at a multiple of 16 bytes",
                        "strides " + strides_text(inbox)});
    }
    args.inboxes[args.ranks++] = first;
  }
  args.rank = static_cast<int>(rank);
  args.layout = InboxLayout::of_bytes(bytes, args.ranks);
  const int64_t most = args.layout.most_bytes();
  if (args.pieces * kPieceBytes > most) {
    wrong_value(kOp, {"term", joined("have at most ", most, " bytes, as the inboxes hold"),
                      joined(args.pieces * kPieceBytes, " bytes"), "", "larger inboxes"});
  }
}

Tensor sum_over_ranks_cuda(const Tensor& term, const std::vector<Tensor>& inboxes,
                           const Tensor& counter, int64_t rank, int64_t few_bytes) {
  check_tensors(kOp, {{"term", term}, {"counter", counter}});
  check_dtype(kOp, "counter", counter, ScalarType::Long);
  check_vector(kOp, "counter", counter, "sums, blocks", 2);
  SumOverRanksArgs args;
  args.ranks = 0;
  set_term(args, term, few_bytes);
  set_inboxes(args, term, inboxes, rank);
  Tensor out = empty_on(term, sizes_of(term));
  if (args.pieces == 0) return out;  // on all ranks: nobody counts it
  const CudaCall call(kOp, term);
  args.out = out.mutable_data_ptr();
  args.counter = static_cast<uint64_t*>(counter.mutable_data_ptr());
  args.starts_early = call.info().has_early_start();
  args.stream = call.stream();
  call.require(cuda_status(launch_sum_over_ranks(args), "summing over ranks"));
  return out;
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  m.impl("_sum_over_ranks", TORCH_BOX(&mixed_gemm::sum_over_ranks_cuda));
}
