// The sum over ranks on a GPU.
#include "contract/check.h"
#include "ops/contracts.h"
#include "ops/cuda_call.h"
#include "ops/views.h"
#include "ranks/sum_over_ranks.h"

namespace mixed_gemm::ranks {
namespace {

using namespace contract;

enum : int { kTerm, kInboxes, kWrittenCounter, kRank, kFewBytes };

bool begins_on_16(const void* p) { return reinterpret_cast<uintptr_t>(p) % kPieceBytes == 0; }

std::string strides_text(const Tensor& t) {
  return "strides " + sizes_text(t.strides().data(), t.dim());
}

void set_term(SumOverRanksArgs& args, const Call& call) {
  const Tensor term = call.tensor(kTerm);
  args.element = call.element(kTerm);
  if (!term.is_contiguous()) {
    wrong_value(call.op(), {"term", "be contiguous", strides_text(term), "", "term.contiguous()"});
  }
  const int64_t bytes = term.numel() * static_cast<int64_t>(term.element_size());
  if (bytes % kPieceBytes != 0) {
    wrong_value(call.op(), {"term", "have a multiple of 16 bytes", joined(bytes, " bytes"), "",
                            "torch.distributed.all_reduce"});
  }
  if (bytes > 0 && !begins_on_16(term.const_data_ptr())) {
    wrong_value(call.op(), {"term", "begin at a multiple of 16 bytes", "", "", "term.clone()"});
  }
  constexpr int64_t kMostFew = kFewPieces * kPieceBytes;
  const int64_t few_bytes = call.number(kFewBytes);
  if (few_bytes < 0 || few_bytes > kMostFew) {
    wrong_value(call.op(),
                {"few_bytes", joined("be from 0 to ", kMostFew), std::to_string(few_bytes)});
  }
  args.term = term.const_data_ptr();
  args.pieces = bytes / kPieceBytes;
  args.few = bytes <= few_bytes;
}

// An inbox beside the term: the rules of a list stand here, once for each of its tensors.
constexpr Argument kInboxArguments[] = {tensor("term"), tensor("inboxes")};
constexpr auto kInboxRules = placed(kInboxArguments, {dtype("inboxes", Dtype::kUint8)});
constexpr Contract kInbox = {"_sum_over_ranks", kInboxArguments, kInboxRules, {}};

void* checked_inbox(const Call& call, const Tensor& inbox, int64_t bytes) {
  Given given;
  given.views[0] = call.view(kTerm);
  look_at(inbox.get(), given.views[1]);
  if (const auto refusal = check(kInbox, given)) {
    refuse(refusal->kind, call.op(), refusal->text);
  }
  if (inbox.dim() != 1 || inbox.size(0) != bytes) {
    wrong_value(call.op(), {"inboxes", joined("be (bytes of the first one,) = (", bytes, ",)"),
                            sizes_text(inbox.sizes().data(), inbox.dim())});
  }
  void* first = inbox.mutable_data_ptr();
  if (!inbox.is_contiguous() || !begins_on_16(first)) {
    wrong_value(call.op(), {"inboxes", "be contiguous and begin at a multiple of 16 bytes",
                            strides_text(inbox)});
  }
  return first;
}

void set_inboxes(SumOverRanksArgs& args, const Call& call) {
  const std::vector<Tensor>& inboxes = call.tensors(kInboxes);
  const auto ranks = static_cast<int64_t>(inboxes.size());
  const int64_t rank = call.number(kRank);
  if (ranks < 2 || ranks > kMostRanks) {
    wrong_value(call.op(),
                {"inboxes", joined("be of 2 to ", kMostRanks, " ranks"), std::to_string(ranks)});
  }
  if (rank < 0 || rank >= ranks) {
    wrong_value(call.op(), {"rank", joined("be from 0 to ", ranks - 1), std::to_string(rank)});
  }
  const int64_t bytes = inboxes[0].numel();
  for (const Tensor& inbox : inboxes) {
    args.inboxes[args.ranks++] = checked_inbox(call, inbox, bytes);
  }
  args.rank = static_cast<int>(rank);
  args.layout = InboxLayout::of_bytes(bytes, args.ranks);
  const int64_t most = args.layout.most_bytes();
  if (args.pieces * kPieceBytes > most) {
    wrong_value(call.op(), {"term", joined("have at most ", most, " bytes, as the inboxes hold"),
                            joined(args.pieces * kPieceBytes, " bytes"), "", "larger inboxes"});
  }
}

void sum_cuda(Call& call) {
  SumOverRanksArgs args;
  args.ranks = 0;
  set_term(args, call);
  set_inboxes(args, call);
  args.out = call.make(0);
  if (args.pieces == 0) return;  // on all ranks: nobody counts it
  const CudaCall cuda(call);
  args.counter = static_cast<uint64_t*>(call.mutable_data(kWrittenCounter));
  args.uses_pdl = cuda.info().has_pdl();
  args.stream = cuda.stream();
  cuda.require(cuda_status(launch_sum_over_ranks(args), "summing over ranks"));
}

}  // namespace
}  // namespace mixed_gemm::ranks

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("_sum_over_ranks", &boxed<contract::kSumOverRanks, ranks::sum_cuda>);
}
