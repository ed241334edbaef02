// The text of a device: all forms that are taken, and that no others are.
#include "dispatch/device_text.h"

#include <gtest/gtest.h>

#include <locale>

#include "core/count_product.h"
#include "core/device.h"
#include "core/printable.h"

namespace mixed_gemm {
namespace {

constexpr const char* kForm =
    "device must be cpu or cuda:sm=<10..999>,sms=<1..4096>,smem=<1..16777216>[,gbs=<1..1000000>], "
    "got '";

std::string refusal(const std::string& text) {
  std::optional<DeviceInfo> device = DeviceInfo();
  const std::string reason = parse_device_text(text, device);
  EXPECT_TRUE(reason.empty() || !device) << text;
  return reason;
}

TEST(DeviceText, ReadsWhatItSays) {
  for (const double gbs : {1.0, 4425.12, 1e6, 1.0 / 3 + 3000}) {
    for (const DeviceInfo& info :
         {DeviceInfo{80, 108, 166912, gbs, 0}, {999, 4096, 1 << 24, gbs}, {10, 1, 1, gbs}}) {
      std::optional<DeviceInfo> device;
      EXPECT_EQ(parse_device_text(device_text(info), device), "") << device_text(info);
      ASSERT_TRUE(device);
      EXPECT_EQ(device->sm, info.sm);
      EXPECT_EQ(device->sm_count, info.sm_count);
      EXPECT_EQ(device->smem_bytes, info.smem_bytes);
      EXPECT_EQ(device->dram_gb_per_s, info.dram_gb_per_s);
    }
  }
  std::optional<DeviceInfo> device = DeviceInfo();
  EXPECT_EQ(parse_device_text("cpu", device), "");
  EXPECT_FALSE(device);
  EXPECT_EQ(parse_device_text("cuda:sm=90,sms=132,smem=232448", device), "");
  EXPECT_EQ(device->dram_gb_per_s, 0);
}

TEST(DeviceText, SaysWhichFieldIsWrong) {
  const struct {
    const char *text, *reason;
  } cases[] = {
      {"", ""},
      {"cuda", ""},
      {"cpu ", ""},
      {"CPU", ""},
      {"cuda:", ": sm= must come first"},
      {"cuda: sm=90,sms=132,smem=232448", ": sm= must come first"},
      {"cuda:sms=132,sm=90,smem=232448", ": sm= must come first"},
      {"cuda:sm=90,smem=232448,sms=132", ": sms= must come next"},
      {"cuda:sm=90,sms=132", ": smem= must come next"},
      {"cuda:sm=,sms=132,smem=1", ": sm must be a whole number in 10..999, got ''"},
      {"cuda:sm=9,sms=132,smem=1", ": sm must be a whole number in 10..999, got '9'"},
      {"cuda:sm=9.0,sms=132,smem=1", ": sm must be a whole number in 10..999, got '9.0'"},
      {"cuda:sm=90,sms=0,smem=1", ": sms must be a whole number in 1..4096, got '0'"},
      {"cuda:sm=90,sms=-1,smem=1", ": sms must be a whole number in 1..4096, got '-1'"},
      {"cuda:sm=90,sms=+1,smem=1", ": sms must be a whole number in 1..4096, got '+1'"},
      {"cuda:sm=90,sms= 1,smem=1", ": sms must be a whole number in 1..4096, got ' 1'"},
      {"cuda:sm=90,sms=99999,smem=1", ": sms must be a whole number in 1..4096, got '99999'"},
      {"cuda:sm=90,sms=1,smem=0", ": smem must be a whole number in 1..16777216, got '0'"},
      {"cuda:sm=90,sms=1,smem=-5", ": smem must be a whole number in 1..16777216, got '-5'"},
      {"cuda:sm=90,sms=1,smem=999999999999",
       ": smem must be a whole number in 1..16777216, got '999999999999'"},
      {"cuda:sm=90,sms=1,smem=18446744073709551617",
       ": smem must be a whole number in 1..16777216, got '18446744073709551617'"},
      {"cuda:sm=90,sms=1,smem=1junk", ": smem must be a whole number in 1..16777216, got '1junk'"},
      {"cuda:sm=90,sms=1,smem=1,", ": nothing but gbs= may follow"},
      {"cuda:sm=90,sms=1,smem=1,tflops=3", ": nothing but gbs= may follow"},
      {"cuda:sm=90,sms=1,smem=1,gbs=", ": gbs must be a number in 1..1000000, got ''"},
      {"cuda:sm=90,sms=1,smem=1,gbs=1,2", ": gbs must be a number in 1..1000000, got '1,2'"},
      {"cuda:sm=90,sms=1,smem=1,gbs=1e400", ": gbs must be a number in 1..1000000, got '1e400'"},
      {"cuda:sm=90,sms=1,smem=1,gbs=0x10", ": gbs must be a number in 1..1000000, got '0x10'"},
      {"cuda:sm=90,sms=1,smem=1,gbs=4\n", ": gbs must be a number in 1..1000000, got '4\\x0a'"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(refusal(c.text), kForm + printable(c.text) + "'" + c.reason);
  }
  for (const char* gbs : {"nan", "NaN", "inf", "-inf", "0", "0.5", "-1", "+1", "1e7", " 1", "1 ",
                          "1e", "1.2.3", "4425junk"}) {
    EXPECT_NE(refusal(std::string("cuda:sm=90,sms=1,smem=1,gbs=") + gbs), "") << gbs;
  }
  EXPECT_NE(refusal(std::string("cpu\0", 4)), "");
}

struct CommaAndGroups : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(DeviceText, IsTheSameInEveryLocale) {
  const DeviceInfo info{90, 1132, 232448, 4425.5, 0};
  const std::string text = device_text(info);
  EXPECT_EQ(text, "cuda:sm=90,sms=1132,smem=232448,gbs=4425.5");
  const std::locale before =
      std::locale::global(std::locale(std::locale::classic(), new CommaAndGroups));
  std::optional<DeviceInfo> device;
  const std::string there = device_text(info), reason = parse_device_text(text, device);
  std::locale::global(before);
  EXPECT_EQ(there, text);
  EXPECT_EQ(reason, "");
  EXPECT_EQ(device->dram_gb_per_s, 4425.5);
}

TEST(Printable, IsShortPlainText) {
  EXPECT_EQ(printable("a\"b'\\"), "a\"b'\\");
  EXPECT_EQ(printable(std::string("\0\n\x7f\xc3\xa9", 5)), "\\x00\\x0a\\x7f\\xc3\\xa9");
  EXPECT_EQ(printable(std::string(100, 'x')), std::string(100, 'x'));
  EXPECT_EQ(printable(std::string(101, 'x')), std::string(100, 'x') + "... (101 bytes)");
}

TEST(CountProduct, SaturatesAndKnowsZero) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(count_product({}), 1);
  EXPECT_EQ(count_product({3, 5, 7}), 105);
  EXPECT_EQ(count_product({kMost, 1}), kMost);
  EXPECT_EQ(count_product({int64_t{1} << 27, int64_t{1} << 24, int64_t{1} << 25}), kMost);
  EXPECT_EQ(count_product({int64_t{1} << 32, int64_t{1} << 32}), kMost);
  EXPECT_EQ(count_product({int64_t{1} << 40, int64_t{1} << 40, 0}), 0);
}

}  // namespace
}  // namespace mixed_gemm
