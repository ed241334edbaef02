// The candidates that the library would choose from, as one text: for a few thousand problems and
// every GPU, in their order and with the time predicted for each. candidates.txt beside this file
// holds it as a number for each problem and GPU, so that a change of the code that should change no
// choice is seen to change none:
//
//   list_candidates                  print that text; `> candidates.txt` accepts the changes
//   list_candidates candidates.txt   compare, exit status 1 and the first differences if unequal
//   list_candidates --show LINE      all candidates of the problem of that line, with their times
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "awq/config.h"
#include "core/build.h"
#include "dispatch/select.h"

namespace mixed_gemm {
namespace {

struct Gpu {
  const char* name;
  int sm, sm_count, smem_bytes;
  double dram_gb_per_s;
};
constexpr Gpu kGpus[] = {{"A100", 80, 108, 166912, 1555}, {"RTX3090", 86, 82, 101376, 936},
                         {"Orin", 87, 16, 166912, 204},   {"L4", 89, 58, 101376, 300},
                         {"RTX4090", 89, 128, 101376, 0}, {"H100", 90, 132, 232448, 3350},
                         {"H200", 90, 132, 232448, 4400}, {"B200", 100, 148, 232448, 7000},
                         {"RTX5090", 120, 170, 101376, 0}};

DeviceInfo device_of(const Gpu& gpu) {
  DeviceInfo device;
  device.sm = gpu.sm;
  device.sm_count = gpu.sm_count;
  device.smem_bytes = gpu.smem_bytes;
  device.dram_gb_per_s = gpu.dram_gb_per_s;
  return with_default_rates(device);
}

// Draws the same numbers on every machine, which <random>'s distributions do not.
class Draw {
 public:
  int64_t below(int64_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(bound));
  }
  template <typename T, size_t kCount>
  T of(const T (&values)[kCount]) {
    return values[below(kCount)];
  }
  // Draws every power of two as often: small extents are as likely as large ones.
  int64_t extent(int powers) {
    const int64_t power = int64_t{1} << below(powers);
    return power + (below(3) == 0 ? below(power) : 0);
  }

 private:
  uint64_t state_ = 34;
};

// One problem: how it reads, and its candidates on a GPU, a line each.
struct Entry {
  std::string name;
  std::function<std::string(const DeviceInfo&)> candidates;
};

std::string joined(std::initializer_list<std::string> words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}
std::string text(int64_t n) { return std::to_string(n); }

// The candidates of a problem, or why there are none.
template <typename Problem>
std::string candidates(const Problem& problem, const DeviceInfo& device) {
  std::string all;
  for (const Choice& c : ranked(problem, device)) {
    char us[32];
    std::snprintf(us, sizeof(us), " %.6e\n", c.predicted_us);
    all += config_name<Problem>(c) + us;
  }
  return all.empty() ? why_none(problem, device) : all;
}

// The first weight types; problems of others stand behind all that were here before them.
constexpr WeightType kIntegers[] = {WeightType::kInt4, WeightType::kInt8};
constexpr ElementType kElements[] = {ElementType::kFloat16, ElementType::kFloat16,
                                     ElementType::kBFloat16, ElementType::kFloat32};
std::string element_name(ElementType e) { return kElementTypeNames[static_cast<int>(e)]; }

// A problem with any extents, element and groups.
GemmProblem gemm_problem(Draw& draw) {
  GemmProblem p;
  constexpr int64_t kGroups[] = {-1, 16, 32, 48, 64, 96, 128, 128, 256, 320};
  p.m = draw.extent(14);
  p.n = draw.extent(15);
  p.k = draw.below(8) == 0 ? draw.extent(18) : 64 * draw.extent(10);
  p.element = draw.of(kElements);
  const int64_t group = draw.of(kGroups);
  p.scheme.scales.group = group == -1 || group > p.k ? p.k : group;
  p.scale_stride = p.n;
  return p;
}

Entry gemm(Draw& draw) {
  GemmProblem p = gemm_problem(draw);
  p.scheme.weight = draw.of(kIntegers);
  p.scheme.scales.zeros = static_cast<ZeroMode>(draw.below(std::size(kZeroModeNames)));
  return {joined({"gemm", text(p.m), text(p.n), text(p.k), element_name(p.element),
                  "w" + text(bits_of(p.scheme.weight)), "g" + text(p.scheme.scales.group),
                  kZeroModeNames[static_cast<int>(p.scheme.scales.zeros)]}),
          [p](const DeviceInfo& device) { return candidates(p, device); }};
}

Entry float_gemm(Draw& draw) {
  constexpr WeightType kFloats[] = {WeightType::kE2M1, WeightType::kE4M3, WeightType::kNF4};
  GemmProblem p = gemm_problem(draw);
  p.scheme.weight = draw.of(kFloats);
  return {joined({"gemm", text(p.m), text(p.n), text(p.k), element_name(p.element),
                  weight_info(p.scheme.weight).name, "g" + text(p.scheme.scales.group)}),
          [p](const DeviceInfo& device) { return candidates(p, device); }};
}

Entry scaled(Draw& draw) {
  ScaledMmProblem p;
  p.m = draw.extent(15);
  p.n = draw.extent(15);
  p.k = draw.below(9) == 0 ? draw.below(200) : 16 * draw.extent(12);
  p.operand = static_cast<OperandType>(draw.below(2));
  p.out = draw.of(kElements);
  return {joined({"scaled_mm", text(p.m), text(p.n), text(p.k),
                  kOperandTypeNames[static_cast<int>(p.operand)], element_name(p.out)}),
          [p](const DeviceInfo& device) { return candidates(p, device); }};
}

Entry block(Draw& draw) {
  BlockGemmProblem p;
  constexpr int64_t kBlocks[] = {-1, 16, 32, 48, 64, 128, 128, 160, 256, 512};
  p.m = draw.extent(14), p.n = draw.extent(14);
  p.k = draw.below(9) == 0 ? draw.below(200) : 16 * draw.extent(11);
  const int64_t size = draw.of(kBlocks);
  p.block_size = size == -1 || size > p.k ? std::max<int64_t>(p.k, 1) : size;
  p.element = draw.of(kElements);
  return {joined({"block_quant_gemm", text(p.m), text(p.n), text(p.k), "b" + text(p.block_size),
                  element_name(p.element)}),
          [p](const DeviceInfo& device) { return candidates(p, device); }};
}

ConvShape conv_shape(Draw& draw) {
  constexpr int64_t kKernels[] = {1, 1, 3, 3, 5, 7};
  ConvShape s;
  s.images = draw.extent(6);
  s.in_c = draw.extent(11);
  s.out_c = draw.extent(11);
  s.in_h = s.in_w = 1 + draw.extent(7);
  s.kernel_h = draw.of(kKernels);
  s.kernel_w = draw.below(4) == 0 ? draw.of(kKernels) : s.kernel_h;
  s.stride_h = s.stride_w = 1 + draw.below(2);
  s.dilation_h = 1 + draw.below(4) / 3;
  s.padding_h = s.kernel_h / 2 * s.dilation_h;
  s.padding_w = s.kernel_w / 2;
  s.out_h = conv_out_extent(s.in_h, s.kernel_h, s.stride_h, s.padding_h, s.dilation_h);
  s.out_w = conv_out_extent(s.in_w, s.kernel_w, s.stride_w, s.padding_w, s.dilation_w);
  return s;
}
std::string shape_text(const ConvShape& s) {
  return joined({text(s.images) + "x" + text(s.in_c) + "x" + text(s.in_h), "to", text(s.out_c),
                 "by", text(s.kernel_h) + "x" + text(s.kernel_w), "s" + text(s.stride_h),
                 "d" + text(s.dilation_h)});
}

Entry conv(Draw& draw) {
  static constexpr char kOneByte = 0;  // something for what is only asked to be there
  constexpr int64_t kBlocks[] = {-1, 16, 32, 48, 64, 64, 128};
  ConvProblem p;
  p.shape = conv_shape(draw);
  p.element = draw.of(kElements);
  p.weight = draw.of(kIntegers);
  const int64_t size = draw.of(kBlocks);
  p.block_size = size == -1 || size > p.shape.in_c ? p.shape.in_c : size;
  p.activation = static_cast<Activation>(draw.below(std::size(kActivationNames)));
  p.offsets = draw.below(2) == 0 ? nullptr : &kOneByte;
  p.bias = draw.below(2) == 0 ? nullptr : &kOneByte;
  p.scale_stride = p.shape.out_c;
  return {
      joined({"qconv2d", shape_text(p.shape), element_name(p.element),
              "w" + text(bits_of(p.weight)), "b" + text(p.block_size), p.offsets ? "offsets" : "-",
              p.bias ? "bias" : "-", kActivationNames[static_cast<int>(p.activation)]}),
      [p](const DeviceInfo& device) { return candidates(p, device); }};
}

Entry conv_int8(Draw& draw) {
  ConvInt8Problem p;
  p.shape = conv_shape(draw);
  return {joined({"qconv2d_int8", shape_text(p.shape)}),
          [p](const DeviceInfo& device) { return candidates(p, device); }};
}

Entry awq(Draw& draw) {
  constexpr int64_t kGroups[] = {16, 32, 48, 64, 128, 128};
  const int64_t group = draw.of(kGroups), m = 1 + draw.below(kMaxAwqRows);
  const int64_t n = 8 * draw.extent(12), k = group * draw.extent(8);
  return {joined({"awq_gemm", text(m), text(n), text(k), "g" + text(group)}),
          [=](const DeviceInfo& device) {
            const AwqChoice c =
                select_awq(m, n, k, awq_is_fine(group, k), n % 16 == 0, device.sm, device.sm_count);
            return joined({text(c.row), text(c.warps), text(c.split), text(c.pdl)});
          }};
}

std::vector<Entry> entries() {
  constexpr struct {
    Entry (*draw)(Draw&);
    int count;
  } kKinds[] = {{gemm, 1400},     {scaled, 500}, {block, 400},     {conv, 500},
                {conv_int8, 200}, {awq, 200},    {float_gemm, 300}};
  Draw draw;
  std::vector<Entry> all;
  for (const auto& kind : kKinds) {
    for (int i = 0; i < kind.count; ++i) all.push_back(kind.draw(draw));
  }
  return all;
}

uint32_t hash(const std::string& text) {  // FNV-1a
  uint32_t value = 2166136261u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 16777619u;
  return value;
}

std::string line_of(const Entry& entry) {
  std::string line = entry.name + " |";
  for (const Gpu& gpu : kGpus) {
    char digits[16];
    std::snprintf(digits, sizeof(digits), " %06" PRIx32,
                  hash(entry.candidates(device_of(gpu))) & 0xffffffu);
    line += digits;
  }
  return line;
}

int print(const std::vector<Entry>& all) {
  for (const Entry& entry : all) std::puts(line_of(entry).c_str());
  return 0;
}

int show(const Entry& entry) {
  for (const Gpu& gpu : kGpus) {
    std::printf("%s, %s\n%s\n", entry.name.c_str(), gpu.name,
                entry.candidates(device_of(gpu)).c_str());
  }
  return 0;
}

int compare(const std::vector<Entry>& all, const char* path) {
  std::ifstream file(path);
  std::vector<std::string> expected;
  for (std::string line; std::getline(file, line);) expected.push_back(line);
  if (expected.size() != all.size()) {
    std::printf("%s has %zu lines, expected %zu\n", path, expected.size(), all.size());
    return 1;
  }
  int different = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string line = line_of(all[i]);
    if (line == expected[i]) continue;
    if (++different <= 5) {
      std::printf("line %zu\n  was %s\n  is  %s\n", i + 1, expected[i].c_str(), line.c_str());
    }
  }
  std::printf("%d of %zu problems have other candidates, orders or times\n", different, all.size());
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace mixed_gemm

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  if (!mixed_gemm::this_build().wgmma) {
    std::puts("skipped: candidates.txt is of a build with the kernels of sm_90a");
    return kSkipped;
  }
  const auto all = mixed_gemm::entries();
  if (argc == 1) return mixed_gemm::print(all);
  if (std::strcmp(argv[1], "--show") != 0) return mixed_gemm::compare(all, argv[1]);
  const long line = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 0;
  if (line < 1 || line > static_cast<long>(all.size())) {
    std::printf("--show must name a line in 1..%zu\n", all.size());
    return 2;
  }
  return mixed_gemm::show(all[static_cast<size_t>(line - 1)]);
}
