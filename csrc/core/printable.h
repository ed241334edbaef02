// A caller's text as it goes into a message: printable ASCII on one line, and not long.
#pragma once
#include <cstddef>
#include <string>

namespace mixed_gemm {

inline std::string printable(const std::string& text) {
  constexpr size_t kLongest = 100;  // of the caller's bytes
  constexpr const char* kDigits = "0123456789abcdef";
  std::string result;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      result += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    }
  }
  if (text.size() <= kLongest) return result;
  return result + "... (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace mixed_gemm
