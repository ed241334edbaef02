// Divisor divides as `/` and `%` do, at the edges of every quotient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/divisor.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

std::vector<int> divisors() {
  std::vector<int> values = {1, 2, 3, 5, 6, 7, 9, 11, 100, 132, 264, 641, 1000003};
  for (int bit = 2; bit <= 30; ++bit) {
    for (const int64_t near : {-1, 0, 1})
      values.push_back(static_cast<int>((int64_t{1} << bit) + near));
  }
  for (const int64_t below : {0, 1, 2}) values.push_back(static_cast<int>(kMost - below));
  return values;
}

void expect_same(const Divisor& divisor, int64_t n) {
  const int dividend = static_cast<int>(std::clamp(n, int64_t{0}, kMost));
  ASSERT_EQ(divisor.quotient(dividend), dividend / divisor.divisor) << dividend;
  ASSERT_EQ(divisor.remainder(dividend), dividend % divisor.divisor) << dividend;
}

TEST(Divisor, DividesAtTheEdgesOfQuotients) {
  std::mt19937 random(7);
  for (const int d : divisors()) {
    SCOPED_TRACE(d);
    const Divisor divisor = Divisor::of(d);
    std::uniform_int_distribution<int64_t> quotients(0, kMost / d);
    for (int i = 0; i < 300; ++i) {
      const int64_t q = i < 100 ? i : i < 200 ? kMost / d - (i - 100) : quotients(random);
      for (const int64_t near : {-1, 0, 1}) expect_same(divisor, q * d + near);
    }
    expect_same(divisor, kMost);
  }
}

TEST(Divisor, DividesEverySmallNumber) {
  for (int d = 1; d <= 300; ++d) {
    const Divisor divisor = Divisor::of(d);
    for (int n = 0; n < 3000; ++n) expect_same(divisor, n);
  }
}

}  // namespace
}  // namespace mixed_gemm
