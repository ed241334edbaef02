// First calls of everything by many host threads at once: the choice of the instruction set, tables
// that are built once, caches of a thread, the tuned table while it is replaced. ctest gives every
// test a process of its own, so the calls here are the first; under ThreadSanitizer a race is an
// error even where it changes no result.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "cpu/awq/awq_cpu.h"
#include "cpu/block_gemm/block_gemm_cpu.h"
#include "cpu/conv/conv_cpu.h"
#include "cpu/gemm/gemm_cpu.h"
#include "cpu/scaled_mm/scaled_mm_cpu.h"
#include "cpu_case.h"
#include "dispatch/select.h"
#include "dispatch/tuned_table.h"
#include "layout/conv_layout.h"
#include "layout/repack.h"

namespace mixed_gemm::test {
namespace {

constexpr int kCallers = 8;

// A range for each of three threads, whatever the grain: more sharing than torch's pool has.
void three_workers(int64_t begin, int64_t end, int64_t /*grain*/, const LoopBody& body) {
  std::vector<std::thread> workers;
  const int64_t share = std::max<int64_t>(1, ceil_div(end - begin, 3));
  for (int64_t first = begin; first < end; first += share) {
    workers.emplace_back(
        [&body, first, last = std::min(first + share, end)] { body(first, last); });
  }
  for (auto& worker : workers) worker.join();
}

// Runs `call(caller)` in kCallers threads that set off together.
template <typename Call>
void all_at_once(const Call& call) {
  std::atomic<int> waiting{kCallers};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&waiting, &call, caller] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      call(caller);
    });
  }
  for (auto& caller : callers) caller.join();
}

using Bytes = std::vector<uint8_t>;

template <typename Out>
Bytes bytes_of_values(const std::vector<Out>& values) {
  const auto* first = reinterpret_cast<const uint8_t*>(values.data());
  return {first, first + values.size() * sizeof(Out)};
}

template <typename T>
std::vector<T> pattern(int64_t count, int low, int high) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(low + static_cast<int>(i * 7919 % static_cast<size_t>(high - low)));
  }
  return values;
}

// Operands that all callers read, and a call on each that returns its output.
struct SharedOperands {
  const Operands gemv{{1, 70, 200, WeightType::kInt4, 64, ZeroMode::kSub, ElementType::kBFloat16},
                      1};
  const Operands gemm{{40, 70, 200, WeightType::kInt8, 200, ZeroMode::kNone, ElementType::kFloat16},
                      2};
  const std::vector<int8_t> a = pattern<int8_t>(40 * 200, -128, 128);
  const std::vector<int8_t> b = pattern<int8_t>(70 * 200, -127, 127);
  const std::vector<uint8_t> a8 = pattern<uint8_t>(40 * 200, 0, 0x7f);  // fp8 without NaN
  const std::vector<float> floats = pattern<float>(40 * 200, -50, 50);
  const std::vector<uint32_t> words = pattern<uint32_t>(128 * 16, 0, 1 << 30);
  const std::vector<float> ones = std::vector<float>(40 * 200, 1.f);

  Bytes run_gemm(const Operands& operands, const ParallelFor& parallel_for) const {
    Matrix d(operands.shape.element, operands.shape.m, operands.shape.n, 0, 0);
    GemmProblem p = operands.problem();
    p.d = d.data();
    gemm_cpu(p, parallel_for);
    return d.bytes();
  }

  Bytes run_dequantize(const ParallelFor& parallel_for) const {
    std::vector<float> w(70 * 200);
    GemmProblem p = gemm.problem();
    p.d = w.data();
    dequantize_cpu(p, ElementType::kFloat32, parallel_for);
    return bytes_of_values(w);
  }

  Bytes run_scaled(OperandType operand, const void* from, const ParallelFor& parallel_for) const {
    std::vector<float> d(40 * 40);
    ScaledMmProblem p;
    p.m = 40, p.n = 40, p.k = 200;
    p.operand = operand, p.out = ElementType::kFloat32;
    p.a = from, p.lda = 200;
    p.b = from, p.ldb = 200;
    p.scale_a = ones.data(), p.scale_b = ones.data();
    p.d = d.data();
    scaled_mm_cpu(p, parallel_for);
    return bytes_of_values(d);
  }

  Bytes run_quantize(const ParallelFor& parallel_for) const {
    std::vector<int8_t> q(40 * 200);
    std::vector<float> scale(40);
    std::vector<int32_t> azp(40);
    QuantizePerTokenProblem p;
    p.m = 40, p.k = 200, p.a_stride = 200;
    p.element = ElementType::kFloat32;
    p.a = floats.data(), p.q = q.data(), p.scale = scale.data(), p.azp = azp.data();
    quantize_per_token_cpu(p, parallel_for);
    return bytes_of_values(q);
  }

  Bytes run_dynamic(const ParallelFor& parallel_for) const {
    std::vector<float> d(40 * 40);
    ScaledMmDynamicProblem p;
    p.rows.m = 40, p.rows.k = 200, p.rows.a_stride = 200;
    p.rows.element = ElementType::kFloat32;
    p.rows.a = floats.data();
    p.product.m = 40, p.product.n = 40, p.product.k = 200;
    p.product.out = ElementType::kFloat32;
    p.product.b = b.data(), p.product.ldb = 200;
    p.product.scale_b = ones.data();
    p.product.d = d.data();
    scaled_mm_dynamic_cpu(p, parallel_for);
    return bytes_of_values(d);
  }

  Bytes run_block_gemm(const ParallelFor& parallel_for) const {
    std::vector<float> d(40 * 70);
    BlockGemmProblem p;
    p.m = 40, p.n = 70, p.k = 200;
    p.element = ElementType::kFloat32;
    p.block_size = 64;
    p.a = floats.data(), p.lda = 200;
    p.b = b.data(), p.ldb = 200;
    p.scale_b = ones.data(), p.offset_b = ones.data(), p.scale_stride = 70;
    p.d = d.data();
    block_gemm_cpu(p, parallel_for);
    return bytes_of_values(d);
  }

  static ConvShape shape() {
    ConvShape s;
    s.images = 2, s.in_c = 20, s.in_h = 5, s.in_w = 7, s.out_c = 21;
    s.kernel_h = s.kernel_w = 3;
    s.padding_h = s.padding_w = 1;
    s.out_h = 5, s.out_w = 7;
    return s;
  }

  Bytes run_conv(const ParallelFor& parallel_for) const {
    const ConvShape s = shape();
    const int64_t k = conv_k(s.in_c, s.taps());
    std::vector<uint8_t> packed(static_cast<size_t>(WeightLayout<Int4>::packed_bytes(s.out_c, k)));
    const std::vector<int8_t> q = pattern<int8_t>(s.out_c * k, -8, 8);
    pack_weight(WeightType::kInt4, q.data(), k, s.out_c, k, packed.data(), parallel_for);
    std::vector<float> d(static_cast<size_t>(s.rows() * s.out_c));
    ConvProblem p;
    p.shape = s;
    p.element = ElementType::kFloat32;
    p.block_size = 16;
    p.input = floats.data();
    p.input_strides = {700, 35, 7, 1};
    p.weight_packed = packed.data();
    p.scales = ones.data();
    p.scale_stride = s.out_c;
    p.d = d.data();
    p.d_strides = {735, 35, 7, 1};
    conv_cpu(p, parallel_for);
    return bytes_of_values(d);
  }

  Bytes run_conv_int8(const ParallelFor& parallel_for) const {
    const ConvShape s = shape();
    std::vector<int8_t> d(static_cast<size_t>(s.rows() * s.out_c));
    ConvInt8Problem p;
    p.shape = s;
    p.output_scale = 100;
    p.input = a.data();
    p.input_strides = {700, 35, 7, 1};
    p.weight = b.data();
    p.weight_scale = ones.data();
    p.d = d.data();
    p.d_strides = {735, 35, 7, 1};
    conv_int8_cpu(p, parallel_for);
    return bytes_of_values(d);
  }

  Bytes run_awq(const ParallelFor& parallel_for) const {
    std::vector<float> d(40 * 128);
    AwqProblem p;
    p.m = 40, p.n = p.k = 128;
    p.group_size = 64;
    p.element = ElementType::kFloat32;
    p.a = floats.data(), p.a_stride = 200;
    p.qweight = words.data(), p.qzeros = words.data();
    p.scales = ones.data();
    p.d = d.data();
    gemm_awq_cpu(p, parallel_for);
    return bytes_of_values(d);
  }
};

std::vector<std::function<Bytes(const ParallelFor&)>> cpu_calls(const SharedOperands& o) {
  return {
      [&](const ParallelFor& f) { return o.run_gemm(o.gemv, f); },
      [&](const ParallelFor& f) { return o.run_gemm(o.gemm, f); },
      [&](const ParallelFor& f) { return o.run_dequantize(f); },
      [&](const ParallelFor& f) { return o.run_scaled(OperandType::kInt8, o.a.data(), f); },
      [&](const ParallelFor& f) { return o.run_scaled(OperandType::kFloat8E4M3, o.a8.data(), f); },
      [&](const ParallelFor& f) { return o.run_quantize(f); },
      [&](const ParallelFor& f) { return o.run_dynamic(f); },
      [&](const ParallelFor& f) { return o.run_block_gemm(f); },
      [&](const ParallelFor& f) { return o.run_conv(f); },
      [&](const ParallelFor& f) { return o.run_conv_int8(f); },
      [&](const ParallelFor& f) { return o.run_awq(f); },
  };
}

TEST(FirstCalls, of_every_cpu_kernel_may_meet) {
  const SharedOperands operands;
  const auto calls = cpu_calls(operands);
  std::vector<std::vector<Bytes>> written(kCallers, std::vector<Bytes>(calls.size()));
  all_at_once([&](int caller) {
    for (size_t i = 0; i < calls.size(); ++i) {  // each begins with another one
      const size_t at = (i + static_cast<size_t>(caller)) % calls.size();
      written[caller][at] = calls[at](three_workers);
    }
  });
  for (size_t i = 0; i < calls.size(); ++i) {
    const Bytes alone = calls[i](serial_for);
    for (int caller = 0; caller < kCallers; ++caller) {
      EXPECT_EQ(written[caller][i], alone) << "call " << i << " of caller " << caller;
    }
  }
}

DeviceInfo hopper() {
  DeviceInfo device;
  device.sm = 90, device.sm_count = 132, device.smem_bytes = 232448;
  return with_default_rates(device);
}

GemmProblem llama_layer() {
  GemmProblem p;
  p.m = 16, p.n = 4096, p.k = 4096;
  p.scheme.scales.group = 128;
  p.scale_stride = 4096;
  return p;
}

template <typename Problem>
std::string name_chosen(const Problem& problem, const DeviceInfo& device) {
  const std::optional<Choice> choice = choose(problem, device);
  return choice ? config_name<Problem>(*choice) : "none";
}

TEST(FirstCalls, of_every_selection_may_meet) {
  std::vector<std::vector<std::string>> chosen(kCallers);
  const auto choose_all = [] {
    ScaledMmProblem scaled;
    scaled.m = 16, scaled.n = 4096, scaled.k = 4096;
    BlockGemmProblem block;
    block.m = 16, block.n = 4096, block.k = 4096, block.block_size = 128;
    ConvProblem conv;
    conv.shape = SharedOperands::shape();
    conv.block_size = 20;
    ConvInt8Problem conv_int8;
    conv_int8.shape = conv.shape;
    const DeviceInfo device = hopper();
    return std::vector<std::string>{name_chosen(llama_layer(), device), name_chosen(scaled, device),
                                    name_chosen(block, device),         name_chosen(conv, device),
                                    name_chosen(conv_int8, device),     cpu_instruction_set()};
  };
  all_at_once([&](int caller) { chosen[caller] = choose_all(); });
  for (const auto& names : chosen) EXPECT_EQ(names, choose_all());
}

// Callers go on choosing while the table is replaced: each choice is that of one table or of the
// other, and the first after the last replacement is that of the last.
TEST(FirstCalls, meet_a_tuned_table_that_is_replaced) {
  const GemmProblem p = llama_layer();
  const DeviceInfo device = hopper();
  set_tuned_table("");
  const std::vector<Choice> all = ranked(p, device);
  const std::string predicted = config_name<GemmProblem>(all.front());
  const std::string measured = config_name<GemmProblem>(all.back());
  ASSERT_NE(predicted, measured);
  const std::string table = "gemm 90 132 float16 int4 same 128 0 4096 4096 16 " + measured + " 1.5";
  std::atomic<bool> replaced{false};
  std::vector<std::string> last(kCallers);
  std::atomic<int> strange{0};
  all_at_once([&](int caller) {
    if (caller == 0) {
      for (int i = 0; i < 200; ++i) {
        if (!set_tuned_table(i % 2 == 0 ? "" : table).empty()) ++strange;
      }
      replaced = true;
    }
    while (!replaced) {
      const std::string name = name_chosen(p, device);
      if (name != predicted && name != measured) ++strange;
    }
    last[caller] = name_chosen(p, device);
  });
  set_tuned_table("");
  EXPECT_EQ(strange, 0);
  for (const std::string& name : last) EXPECT_EQ(name, measured);
}

}  // namespace
}  // namespace mixed_gemm::test
