#include "dispatch/device_text.h"

#include <charconv>
#include <locale>
#include <sstream>

#include "core/printable.h"

namespace mixed_gemm {
namespace {

// A field of the text. The ranges hold every GPU there is with room, and nothing that the cost
// model could not count with.
struct Field {
  const char* name;
  int64_t least, most;
  int DeviceInfo::*value;
};
constexpr Field kFields[] = {{"sm", 10, 999, &DeviceInfo::sm},
                             {"sms", 1, 4096, &DeviceInfo::sm_count},
                             {"smem", 1, 1 << 24, &DeviceInfo::smem_bytes}};
constexpr const char* kBandwidth = "gbs";
constexpr int64_t kLeastBandwidth = 1, kMostBandwidth = 1000000;

std::string range_text(int64_t least, int64_t most) {
  return std::to_string(least) + ".." + std::to_string(most);
}

std::string form_text() {
  std::string form = "cpu or cuda:";
  for (const Field& f : kFields) {
    form += std::string(f.name) + "=<" + range_text(f.least, f.most) + ">,";
  }
  form.back() = '[';
  return form + "," + kBandwidth + "=<" + range_text(kLeastBandwidth, kMostBandwidth) + ">]";
}

// Takes `start` off the front of the text.
bool skip(std::string& text, const std::string& start) {
  if (text.compare(0, start.size(), start) != 0) return false;
  text.erase(0, start.size());
  return true;
}

// Takes what is before the next comma off the front of the text.
std::string take_value(std::string& text) {
  const std::string value = text.substr(0, text.find(','));
  text.erase(0, value.size());
  return value;
}

std::optional<int> whole_number(const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end || value < least || value > most) return std::nullopt;
  return static_cast<int>(value);
}

// Reads a number: no comma of another locale, no space, no sign in front, neither nan nor inf.
std::optional<double> number(const std::string& text, double least, double most) {
  if (text.empty() || text[0] == '+' ||
      text.find_first_not_of("0123456789.eE+-") != std::string::npos) {
    return std::nullopt;
  }
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  double value = 0;
  stream >> value;
  const bool all = !stream.fail() && stream.peek() == std::istringstream::traits_type::eof();
  if (!all || !(value >= least && value <= most)) return std::nullopt;
  return value;
}

std::string why_not_number(const char* name, const char* kind, int64_t least, int64_t most,
                           const std::string& got) {
  return std::string(name) + " must be a " + kind + " in " + range_text(least, most) + ", got '" +
         printable(got) + "'";
}

// Says why the rest behind "cuda:" is refused, or "".
std::string why_not_fields(std::string rest, DeviceInfo& info) {
  const char* separator = "";
  for (const Field& f : kFields) {
    if (!skip(rest, std::string(separator) + f.name + "=")) {
      return std::string(f.name) + "= must come " + (*separator ? "next" : "first");
    }
    const std::string value = take_value(rest);
    const std::optional<int> found = whole_number(value, f.least, f.most);
    if (!found) return why_not_number(f.name, "whole number", f.least, f.most, value);
    info.*f.value = *found;
    separator = ",";
  }
  if (rest.empty()) return "";
  if (!skip(rest, std::string(separator) + kBandwidth + "=")) {
    return std::string("nothing but ") + kBandwidth + "= may follow";
  }
  const std::optional<double> found = number(rest, kLeastBandwidth, kMostBandwidth);
  if (!found) {
    return why_not_number(kBandwidth, "number", kLeastBandwidth, kMostBandwidth, rest);
  }
  info.dram_gb_per_s = *found;
  return "";
}

}  // namespace

std::string device_text(const DeviceInfo& device) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << "cuda:";
  for (const Field& f : kFields) text << f.name << "=" << device.*f.value << ",";
  text.precision(17);
  text << kBandwidth << "=" << device.dram_gb_per_s;
  return text.str();
}

std::string parse_device_text(const std::string& text, std::optional<DeviceInfo>& device) {
  device.reset();
  if (text == "cpu") return "";
  const std::string must = "device must be " + form_text() + ", got '" + printable(text) + "'";
  std::string rest = text;
  if (!skip(rest, "cuda:")) return must;
  DeviceInfo info;
  const std::string reason = why_not_fields(rest, info);
  if (!reason.empty()) return must + ": " + reason;
  device = info;
  return "";
}

}  // namespace mixed_gemm
