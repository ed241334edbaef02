// The products of experts on the CPU: the bits of one product for each, on any threads.
#include "cpu/gemm/gemm_cpu.h"
#include "cpu/grouped/grouped_gemm_cpu.h"
#include "cpu_case.h"
#include "scattered_for.h"

namespace mixed_gemm::test {
namespace {

// The operands of experts behind each other, as GroupedGemmProblem has them.
class Experts {
 public:
  Experts(Case c, const std::vector<int64_t>& rows, int64_t rows_behind) : rows_(rows) {
    c.misalign = c.padding = 0;
    int32_t end = 0;
    for (size_t e = 0; e < rows.size(); ++e) {
      c.m = rows[e];
      experts_.emplace_back(c, static_cast<unsigned>(e));
      end += static_cast<int32_t>(rows[e]);
      ends_.push_back(end);
      const Operands& one = experts_.back();
      append(a_, one.a.data(), c.m * c.k * bytes_of(c.element));
      append(packed_, one.packed.data(), static_cast<int64_t>(one.packed.size()));
      append(scales_, one.scales.data(), one.groups * c.n * bytes_of(c.element));
      if (c.zero_mode != ZeroMode::kNone) {
        append(zeros_, one.zeros.data(), one.groups * c.n * bytes_of(c.element));
      }
      append(bias_, one.bias.data(), c.n * bytes_of(c.element));
      factor_.insert(factor_.end(), one.factor.begin(), one.factor.end());
    }
    a_.resize(a_.size() + static_cast<size_t>(rows_behind * c.k * bytes_of(c.element)), 0xff);
    problem_.gemm = experts_.front().problem();
    GemmProblem& p = problem_.gemm;
    p.m = end + rows_behind;
    p.a = a_.data(), p.a_stride = c.k, p.b_packed = packed_.data(), p.scales = scales_.data();
    p.scale_stride = c.n, p.bias = bias_.data();
    if (p.zeros) p.zeros = zeros_.data();
    if (p.factor) p.factor = factor_.data();
    problem_.experts = static_cast<int64_t>(rows.size());
    problem_.offs = ends_.data();
  }

  std::vector<uint8_t> run(const ParallelFor& parallel_for) const {
    std::vector<uint8_t> d(bytes(problem_.gemm.m), 0xff);
    GroupedGemmProblem p = problem_;
    p.gemm.d = d.data();
    grouped_gemm_cpu(p, parallel_for);
    return d;
  }

  std::vector<uint8_t> one_by_one() const {
    std::vector<uint8_t> all;
    for (size_t e = 0; e < rows_.size(); ++e) {
      std::vector<uint8_t> d(bytes(rows_[e]));
      GemmProblem p = experts_[e].problem();
      p.d = d.data();
      gemm_cpu(p, serial_for);
      all.insert(all.end(), d.begin(), d.end());
    }
    all.resize(bytes(problem_.gemm.m), 0);
    return all;
  }

 private:
  static void append(std::vector<uint8_t>& to, const uint8_t* from, int64_t bytes) {
    to.insert(to.end(), from, from + bytes);
  }
  size_t bytes(int64_t rows) const {
    return static_cast<size_t>(rows * problem_.gemm.n * bytes_of(problem_.gemm.element));
  }

  std::vector<int64_t> rows_;
  std::vector<Operands> experts_;
  std::vector<int32_t> ends_;
  std::vector<uint8_t> a_, packed_, scales_, zeros_, bias_;
  std::vector<float> factor_;
  GroupedGemmProblem problem_;
};

TEST(GroupedGemmCpu, has_the_bits_of_one_product_for_each_expert) {
  const std::vector<std::vector<int64_t>> routings = {
      {1},
      {0, 3, 0, 0},
      {2, 0, 1, 7},
      {90, 1, 40, 33, 0, 300},
      {40, 40, 40, 40, 40, 40, 40, 40, 40, 41, 39, 42},
  };
  for (const auto& rows : routings) {
    for (const int64_t rows_behind : {0, 5}) {
      for (const ElementType element :
           {ElementType::kFloat16, ElementType::kBFloat16, ElementType::kFloat32}) {
        Case c;
        c.n = 75, c.k = 200, c.group = 64, c.element = element;
        c.zero_mode = ZeroMode::kSub, c.activation = Activation::kSilu, c.bias = true;
        const Experts integers(c, rows, rows_behind);
        EXPECT_EQ(integers.run(serial_for), integers.one_by_one());
        EXPECT_EQ(integers.run(scattered_for), integers.one_by_one());
        c.weight = WeightType::kE2M1, c.zero_mode = ZeroMode::kNone, c.factor = c.few_bits = true;
        const Experts floats(c, rows, rows_behind);
        EXPECT_EQ(floats.run(scattered_for), floats.one_by_one());
      }
    }
  }
}

}  // namespace
}  // namespace mixed_gemm::test
