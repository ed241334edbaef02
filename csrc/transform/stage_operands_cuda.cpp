#include "transform/stage_operands.h"

#include "grid/device_query.h"
#include "mainloop/scale_mode.h"
#include "transform/launchers.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kVectorBytes = 16;  // cp.async moves 16 bytes
constexpr int64_t kVector = 8;        // of 16-bit elements

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kVectorBytes == 0; }
int64_t element_bytes(ElementType element) { return element == ElementType::kFloat32 ? 4 : 2; }

}  // namespace

Status stage_activations(GemmProblem& p, int64_t least_stride, const RunContext& context) {
  const bool rows_fit = p.m == 1 || (p.a_stride % kVector == 0 && p.a_stride >= least_stride);
  const bool in_form = aligned(p.a) && rows_fit && p.k % kVector == 0;
  if (in_form && p.pre_scale == nullptr) return Status();
  CopyPaddedArgs copy;
  copy.element = p.element;
  copy.src = p.a;
  copy.src_stride = p.a_stride;
  copy.rows = p.m;
  copy.columns = p.k;
  copy.dst_columns = round_up(p.k, kVector);
  copy.pre_scale = p.pre_scale;
  copy.dst = context.allocate(copy.rows * copy.dst_columns * element_bytes(p.element));
  copy.stream = context.stream;
  p.a = copy.dst;
  p.a_stride = copy.dst_columns;
  p.pre_scale = nullptr;
  return cuda_status(launch_copy_padded(copy), "copying activations");
}

Status stage_scales(ElementType element, int64_t groups, int64_t n, const void*& scales,
                    const void*& zeros, int64_t& stride, const RunContext& context) {
  const bool rows_fit = groups == 1 || stride >= n;  // TMA takes none that overlap
  if (aligned(scales) && aligned(zeros) && stride % kVector == 0 && rows_fit) return Status();
  const int64_t new_stride = round_up(n, kVector);
  for (const void** rows : {&scales, &zeros}) {
    if (*rows == nullptr) continue;
    CopyPaddedArgs copy;
    copy.element = element;
    copy.src = *rows;
    copy.src_stride = stride;
    copy.rows = groups;
    copy.columns = n;
    copy.dst_columns = new_stride;
    copy.dst = context.allocate(groups * new_stride * element_bytes(element));
    copy.stream = context.stream;
    *rows = copy.dst;
    const Status status = cuda_status(launch_copy_padded(copy), "copying scales");
    if (!status.ok()) return status;
  }
  stride = new_stride;
  return Status();
}

Status stage_rows(const void*& rows, int64_t& stride, int64_t count, int64_t k, bool apart,
                  const RunContext& context) {
  const bool fits = stride % kVectorBytes == 0 && (!apart || stride >= k);
  if (aligned(rows) && (fits || count == 1)) {
    if (count == 1) stride = 0;
    return Status();
  }
  CopyRowsArgs copy;
  copy.src = rows;
  copy.src_stride = stride;
  copy.rows = count;
  copy.k = k;
  copy.dst_stride = round_up(k, kVectorBytes);
  copy.dst = context.allocate(count * copy.dst_stride);
  copy.stream = context.stream;
  rows = copy.dst;
  stride = copy.dst_stride;
  return cuda_status(launch_copy_rows(copy), "copying rows");
}

Status stage_taps(ConvInt8Problem& p, int64_t tap_channels, const RunContext& context) {
  const ConvShape& s = p.shape;
  if (tap_channels == s.in_c && aligned(p.weight)) return Status();
  CopyRowsArgs copy;
  copy.src = p.weight;
  copy.src_stride = s.in_c;
  copy.rows = s.out_c * s.taps();
  copy.k = s.in_c;
  copy.dst_stride = tap_channels;
  copy.dst = context.allocate(copy.rows * tap_channels);
  copy.stream = context.stream;
  p.weight = static_cast<const int8_t*>(copy.dst);
  return cuda_status(launch_copy_rows(copy), "copying the filter");
}

Status stage_gemm(GemmProblem& p, int64_t least_stride, const RunContext& context) {
  const Status status = stage_activations(p, least_stride, context);
  // An epilogue reads scales element by element.
  if (!status.ok() || !is_scaled(scale_mode(p.scheme, p.k))) return status;
  return stage_scales(p.element, num_groups(p), p.n, p.scales, p.zeros, p.scale_stride, context);
}

}  // namespace mixed_gemm
