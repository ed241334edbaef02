// One line of the tuned table, as text.
#pragma once
#include <cstdint>
#include <string>

#include "core/quant_scheme.h"

namespace mixed_gemm {

struct TunedLine {
  int sm = 0, sms = 0;
  ElementType element = ElementType::kFloat16;
  WeightType weight = WeightType::kInt4;
  ScaleType scales = ScaleType::kActivations;
  int64_t group = 0;  // -1: per channel
  bool zeros = false;
  int64_t n = 0, k = 0, m = 0;
  std::string config;  // as it is written: it may be no name of a configuration
  double us = 0;
};

// Reads a line (dispatch/tuned_table.h says what one is); returns why the text is none, or "".
std::string read_tuned_line(const std::string& text, TunedLine& line);

}  // namespace mixed_gemm
