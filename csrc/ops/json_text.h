// The little JSON that the library answers with. It is strict: Python's json.loads takes it without
// its NaN and Infinity.
#pragma once
#include <cmath>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

namespace mixed_gemm {

inline std::string json_string(const std::string& text) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      result += std::string("\\u00") + kDigits[byte / 16] + kDigits[byte % 16];
    } else {
      result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
  }
  return result + "\"";
}

// A number with six decimals, in every locale.
inline std::string json_number(double value) {
  if (!std::isfinite(value)) throw std::runtime_error("mixed_gemm: JSON has no such number");
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(6);
  text << std::fixed << value;
  return text.str();
}

template <typename Items, typename ToText>
std::string json_list(const Items& items, ToText to_text) {
  std::string result = "[";
  for (const auto& item : items) result += (result.size() > 1 ? ", " : "") + to_text(item);
  return result + "]";
}

}  // namespace mixed_gemm
