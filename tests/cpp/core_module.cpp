// pybind11 module _mixed_gemm_core: the torch-free C++ core, shown to pytest and hypothesis. Built
// with the tests only, never part of the package. `format` is "float16" or "bfloat16".
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/bit_ops.h"
#include "core/half_arithmetic.h"
#include "dequant/integer_converter.h"
#include "dispatch/select.h"
#include "layout/pack_weight.h"
#include "layout/weight_layout.h"
#include "problem/extents.h"
#include "problem/integer_bits.h"

namespace py = pybind11;

namespace mixed_gemm {
namespace {

WeightType weight_of(int bits) {
  if (!why_not_bits(bits).empty()) throw std::invalid_argument(why_not_bits(bits));
  return *integer_weight(bits);
}

template <typename Body>
auto with_layout(int bits, const Body& body) {
  return with_weight(weight_of(bits),
                     [&](auto weight) { return body(WeightLayout<decltype(weight)>{}); });
}

template <typename Body>
auto with_format(const std::string& format, const Body& body) {
  if (format == "float16") return body(Half{});
  if (format == "bfloat16") return body(BFloat16{});
  throw std::invalid_argument("format must be float16 or bfloat16, got " + format);
}

void bind_layout(py::module_& m) {
  m.attr("LAYOUT_VERSION") = kLayoutVersion;
  m.attr("PAD_N") = kPadN;
  m.attr("PAD_K") = kPadK;
  m.def("place", [](int bits, int64_t n, int64_t k, int64_t k_pad) {
    return with_layout(bits, [&](auto layout) {
      const auto place = decltype(layout)::place(n, k, k_pad);
      return std::make_pair(place.word, place.slot);
    });
  });
  m.def("element", [](int bits, int64_t word, int slot, int64_t k_pad) {
    return with_layout(bits, [&](auto layout) {
      const auto element = decltype(layout)::element(word, slot, k_pad);
      return std::make_pair(element.n, element.k);
    });
  });
  m.def("packed_bytes", [](int bits, int64_t n, int64_t k) {
    return with_layout(bits, [&](auto layout) { return decltype(layout)::packed_bytes(n, k); });
  });
  using Weight = py::array_t<int8_t, py::array::c_style | py::array::forcecast>;
  using Packed = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;
  m.def("pack_weight", [](int bits, const Weight& q) {
    const int64_t n = q.shape(0), k = q.shape(1);
    Packed packed(
        with_layout(bits, [&](auto layout) { return decltype(layout)::packed_bytes(n, k); }));
    pack_weight(weight_of(bits), q.data(), k, n, k, packed.mutable_data(), serial_for);
    return packed;
  });
  m.def("unpack_weight", [](int bits, const Packed& packed, int64_t n, int64_t k) {
    const int64_t expected =
        with_layout(bits, [&](auto layout) { return decltype(layout)::packed_bytes(n, k); });
    if (packed.size() != expected) {
      throw std::invalid_argument("packed must have " + std::to_string(expected) + " bytes, got " +
                                  std::to_string(packed.size()));
    }
    Weight q({n, k});
    unpack_weight(weight_of(bits), packed.data(), n, k, q.mutable_data(), serial_for);
    return q;
  });
}

void bind_arithmetic(py::module_& m) {
  m.def("prmt", &prmt_twin, py::arg("a"), py::arg("b"), py::arg("selector"));
  m.def("lop3", &lop3_twin, py::arg("a"), py::arg("b"), py::arg("c"), py::arg("lut"));
  m.def("decode", [](const std::string& format, uint16_t bits) {
    return with_format(format, [&](auto f) { return decode<decltype(f)>(bits); });
  });
  m.def("encode", [](const std::string& format, double value) {
    return with_format(format, [&](auto f) { return encode<decltype(f)>(value); });
  });
  m.def("fma_x2", [](const std::string& format, uint32_t a, uint32_t b, uint32_t c) {
    return with_format(format, [&](auto f) { return fma_x2<decltype(f)>(a, b, c); });
  });
  m.def("mul_x2", [](const std::string& format, uint32_t a, uint32_t b) {
    return with_format(format, [&](auto f) { return mul_x2<decltype(f)>(a, b); });
  });
  m.def("sub_x2", [](const std::string& format, uint32_t a, uint32_t b) {
    return with_format(format, [&](auto f) { return sub_x2<decltype(f)>(a, b); });
  });
  // Converts one packed word of integers to its pairs: 4 words of two 16-bit floats for int4, 2 for
  // int8.
  m.def("convert", [](const std::string& format, int bits, uint32_t word) {
    return with_format(format, [&](auto f) {
      return with_weight(weight_of(bits), [&](auto weight) {
        uint32_t pairs[16 / decltype(weight)::kBits] = {};
        if constexpr (decltype(weight)::kIsInteger) {
          convert_word<decltype(f), decltype(weight)>(word, pairs);
        }
        return std::vector<uint32_t>(std::begin(pairs), std::end(pairs));
      });
    });
  });
}

void bind_dispatch(py::module_& m) {
  m.def(
      "why_not",
      [](int64_t rows, int64_t n, int64_t k, int64_t bits, int64_t group_size) {
        std::vector<std::string> reasons = why_not_problem(rows, n, k, group_size);
        if (!why_not_bits(bits).empty()) reasons.insert(reasons.begin(), why_not_bits(bits));
        return reasons;
      },
      py::arg("m"), py::arg("n"), py::arg("k"), py::arg("bits"), py::arg("group_size"));
  m.def("nearest_group_size", &nearest_group_size, py::arg("k"), py::arg("group_size"));
  // Returns (name, predicted us) of every legal candidate for float16, best first. zero_mode as in
  // ZeroMode.
  m.def(
      "candidates",
      [](int64_t rows, int64_t n, int64_t k, int bits, int64_t group_size, int zero_mode, int sm,
         int sms, int smem) {
        GemmProblem problem;
        problem.m = rows;
        problem.n = n;
        problem.k = k;
        problem.scheme =
            integer_scheme(weight_of(bits), group_size, static_cast<ZeroMode>(zero_mode));
        std::vector<std::pair<std::string, double>> named;
        for (const Choice& c : ranked(problem, with_default_rates({sm, sms, smem, 0, 0}))) {
          named.emplace_back(config_name<GemmProblem>(c), c.predicted_us);
        }
        return named;
      },
      py::arg("m"), py::arg("n"), py::arg("k"), py::arg("bits"), py::arg("group_size"),
      py::arg("zero_mode"), py::arg("sm"), py::arg("sms"), py::arg("smem"));
}

}  // namespace
}  // namespace mixed_gemm

PYBIND11_MODULE(_mixed_gemm_core, m) {
  m.doc() = "The torch-free C++ core of mixed_gemm, for tests.";
  mixed_gemm::bind_layout(m);
  mixed_gemm::bind_arithmetic(m);
  mixed_gemm::bind_dispatch(m);
}
