// Launchers of the transformations: run-time types become template arguments here.
#include <algorithm>

#include "dequant/with_element.cuh"
#include "transform/awq_dequantize.cuh"
#include "transform/copy_padded.cuh"
#include "transform/dequantize.cuh"
#include "transform/launchers.h"
#include "transform/pack.cuh"
#include "transform/repack.cuh"

namespace mixed_gemm {
namespace {

constexpr int kThreads = 256;
unsigned blocks_for(int64_t threads) { return static_cast<unsigned>(ceil_div(threads, kThreads)); }
cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

template <typename Weight>
int64_t packed_words(int64_t n, int64_t k) {
  return WeightLayout<Weight>::packed_bytes(n, k) / 4;
}

}  // namespace

int launch_pack(const PackArgs& a) {
  const int64_t k_pad = round_up(a.k, kPadK);
  auto* packed = reinterpret_cast<uint32_t*>(a.packed);
  return with_weight(a.weight, [&](auto weight) {
    using Weight = decltype(weight);
    const int64_t words = packed_words<Weight>(a.n, a.k);
    pack_kernel<Weight><<<blocks_for(words), kThreads, 0, stream_of(a.stream)>>>(
        a.q, a.n, a.k, k_pad, words, packed);
    return static_cast<int>(cudaGetLastError());
  });
}

int launch_unpack(const PackArgs& a) {
  const int64_t k_pad = round_up(a.k, kPadK);
  const auto* packed = reinterpret_cast<const uint32_t*>(a.packed);
  return with_weight(a.weight, [&](auto weight) {
    using Weight = decltype(weight);
    const int64_t words = packed_words<Weight>(a.n, a.k);
    unpack_kernel<Weight><<<blocks_for(words), kThreads, 0, stream_of(a.stream)>>>(
        packed, a.n, a.k, k_pad, words, a.q);
    return static_cast<int>(cudaGetLastError());
  });
}

template <typename Source>
int repack(const Source& weight, const RepackArgs& a) {
  const int64_t words = packed_words<typename Source::Stored>(a.n, a.k);
  repack_kernel<<<blocks_for(words), kThreads, 0, stream_of(a.stream)>>>(
      weight, round_up(a.k, kPadK), words, reinterpret_cast<uint32_t*>(a.packed));
  return cudaGetLastError();
}

int launch_repack_awq(const RepackArgs& a) { return repack(AwqWeight{a.qweight, a.n, a.k}, a); }

int launch_repack_gptq(const RepackArgs& a) {
  return a.bits == 8 ? repack(GptqWeight<Int8>{a.qweight, a.perm, a.bits, a.n, a.k}, a)
                     : repack(GptqWeight<Int4>{a.qweight, a.perm, a.bits, a.n, a.k}, a);
}

int launch_dequantize_awq(const AwqProblem& p, void* stream) {
  return with_element(p.element, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    const AwqDequantizeParams<Element> params{p.qweight,
                                              p.qzeros,
                                              static_cast<const Element*>(p.scales),
                                              static_cast<int>(p.n / AwqLayout::kPerWord),
                                              static_cast<int>(p.k),
                                              cutlass::FastDivmod(static_cast<int>(p.group_size)),
                                              static_cast<Element*>(p.d)};
    const dim3 threads(kAwqDequantizeWords, kAwqDequantizeRows);
    const dim3 grid(
        static_cast<unsigned>(ceil_div(params.row_words, kAwqDequantizeWords)),
        static_cast<unsigned>(std::min<int64_t>(ceil_div(p.k, kAwqDequantizeRows), 65535)));
    awq_dequantize_kernel<<<grid, threads, 0, stream_of(stream)>>>(params);
    return static_cast<int>(cudaGetLastError());
  });
}

template <typename Out, typename Scale, typename Weight>
int dequantize(const DequantizeArgs& a) {
  using Layout = WeightLayout<Weight>;
  const int vectors = static_cast<int>(round_up(a.k, kPadK)) * Layout::kInterleave / 8;
  const int blocks = static_cast<int>(ceil_div(vectors, kDequantizeThreads * kDequantizeUnroll));
  const int64_t period = a.k_period == 0 ? a.k : a.k_period;
  const DequantizeParams<Out, Scale> params{
      reinterpret_cast<const uint4*>(a.b_packed),
      static_cast<const Scale*>(a.scales),
      static_cast<const Scale*>(a.zeros),
      a.scale_stride,
      static_cast<int>(a.n),
      static_cast<int>(a.k),
      vectors,
      blocks,
      cutlass::FastDivmod(static_cast<int>(period)),
      cutlass::FastDivmod(static_cast<int>(a.scheme.scales.group)),
      static_cast<int>(a.groups),
      a.scheme.scales.zeros,
      static_cast<Out*>(a.out),
      a.factor};
  const auto grid = static_cast<unsigned>(ceil_div(a.n, Layout::kInterleave) * blocks);
  dequantize_kernel<Out, Scale, Weight>
      <<<grid, kDequantizeThreads, 0, stream_of(a.stream)>>>(params);
  return cudaGetLastError();
}

int launch_dequantize(const DequantizeArgs& a) {
  return with_element(a.out_type, [&](auto out_tag) {
    return with_element(a.scale_type, [&](auto scale_tag) {
      using Out = typename decltype(out_tag)::Type;
      using Scale = typename decltype(scale_tag)::Type;
      return with_weight(a.scheme.weight,
                         [&](auto weight) { return dequantize<Out, Scale, decltype(weight)>(a); });
    });
  });
}

int launch_copy_padded(const CopyPaddedArgs& a) {
  return with_element(a.element, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    const auto blocks = std::min<int64_t>(blocks_for(a.rows * a.dst_columns), 65535);
    copy_padded_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(a.stream)>>>(
        static_cast<const Element*>(a.src), a.src_stride, a.rows, a.columns, a.dst_columns,
        static_cast<const Element*>(a.pre_scale), static_cast<Element*>(a.dst));
    return static_cast<int>(cudaGetLastError());
  });
}

int launch_copy_rows(const CopyRowsArgs& a) {
  const dim3 grid(blocks_for(a.dst_stride),
                  static_cast<unsigned>(std::min<int64_t>(a.rows, 65535)));
  copy_rows_kernel<<<grid, kThreads, 0, stream_of(a.stream)>>>(a);
  return cudaGetLastError();
}

}  // namespace mixed_gemm
