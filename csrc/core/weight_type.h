// THE list of weight types: what a code of each one is. Kernels can be compiled for a type that has
// a row here, places of a code in a word (layout/code_places.h) and a converter
// (dequant/weight_converter.h).
#pragma once
#include <cstdint>
#include <optional>
#include <tuple>

namespace mixed_gemm {

enum class WeightType : int { kInt4, kInt8, kE2M1, kE4M3 };

// Signed integers q, stored as q + kBias. kBias is the code of 0, which padding holds, in every
// weight type.
template <WeightType kCodeType, int kCodeBits>
struct IntegerCodes {
  static constexpr WeightType kType = kCodeType;
  static constexpr int kBits = kCodeBits;
  static constexpr int kBias = 1 << (kCodeBits - 1);
  static constexpr bool kIsInteger = true;

  // The number that a code stands for, by definition: kernels for any machine and tests take it.
  static constexpr float value(uint32_t code) {
    return static_cast<float>(static_cast<int>(code) - kBias);
  }
};

struct Int4 : IntegerCodes<WeightType::kInt4, 4> {
  static constexpr const char* kName = "int4";
};
struct Int8 : IntegerCodes<WeightType::kInt8, 8> {
  static constexpr const char* kName = "int8";
};

// Floats of a sign, an exponent and a mantissa, from the top bit down, with subnormals. Those of 8
// bits have no infinity, and their code of all ones below the sign is a NaN, which no weight holds.
template <WeightType kCodeType, int kExponent, int kMantissa>
struct FloatCodes {
  static constexpr WeightType kType = kCodeType;
  static constexpr int kExponentBits = kExponent, kMantissaBits = kMantissa;
  static constexpr int kBits = 1 + kExponentBits + kMantissaBits;
  static constexpr int kExponentBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kBias = 0;
  static constexpr bool kIsInteger = false;

  static constexpr float value(uint32_t code) {
    const int mantissa = static_cast<int>(code) & ((1 << kMantissaBits) - 1);
    const int exponent = static_cast<int>(code) >> kMantissaBits & ((1 << kExponentBits) - 1);
    float magnitude =
        static_cast<float>(exponent == 0 ? mantissa : mantissa + (1 << kMantissaBits));
    const int power = (exponent == 0 ? 1 : exponent) - kExponentBias - kMantissaBits;
    for (int i = power; i < 0; ++i) magnitude *= 0.5f;
    for (int i = power; i > 0; --i) magnitude *= 2.f;
    return code >> (kBits - 1) & 1 ? -magnitude : magnitude;
  }
};

// 0, 0.5, 1, 1.5, 2, 3, 4, 6 (OCP Microscaling Formats, FP4).
struct E2M1 : FloatCodes<WeightType::kE2M1, 2, 1> {
  static constexpr const char* kName = "e2m1";
};
// Up to 448 (OCP 8-bit Floating Point, E4M3).
struct E4M3 : FloatCodes<WeightType::kE4M3, 4, 3> {
  static constexpr const char* kName = "e4m3";
};

template <typename... Weights>
struct WeightList {};
using WeightTypes = WeightList<Int4, Int8, E2M1, E4M3>;  // in the order of the enumerators

// A row of the list at run time.
struct WeightInfo {
  const char* name;
  int bits, bias;
  bool is_integer;
};

namespace weight_list {

template <typename... Weights>
constexpr int count(WeightList<Weights...>) {
  return sizeof...(Weights);
}

template <typename... Weights>
constexpr bool in_order(WeightList<Weights...>) {
  int at = 0;
  return ((static_cast<int>(Weights::kType) == at++) && ...);
}

struct Infos {
  WeightInfo rows[count(WeightTypes())];
};
template <typename Weight>
constexpr WeightInfo info() {
  return {Weight::kName, Weight::kBits, Weight::kBias, Weight::kIsInteger};
}
template <typename... Weights>
constexpr Infos infos(WeightList<Weights...>) {
  return {{info<Weights>()...}};
}

template <typename... Weights>
std::tuple<Weights...> rows(WeightList<Weights...>);
using Rows = decltype(rows(WeightTypes()));

}  // namespace weight_list

constexpr int kNumWeights = weight_list::count(WeightTypes());
static_assert(weight_list::in_order(WeightTypes()), "tables are indexed by the enumerators");

// The struct of an enumerator.
template <WeightType kType>
using WeightOf = std::tuple_element_t<static_cast<int>(kType), weight_list::Rows>;

constexpr WeightInfo weight_info(WeightType type) {
  return weight_list::infos(WeightTypes()).rows[static_cast<int>(type)];
}
constexpr int bits_of(WeightType type) { return weight_info(type).bits; }

// The integers of a width; none where no such weight is stored.
constexpr std::optional<WeightType> integer_weight(int64_t bits) {
  for (int i = 0; i < kNumWeights; ++i) {
    const WeightInfo info = weight_info(static_cast<WeightType>(i));
    if (info.is_integer && info.bits == bits) return static_cast<WeightType>(i);
  }
  return std::nullopt;
}

// The names and the bits of all types, by their enumerators; the floats stand behind the integers.
template <typename Item>
struct OfWeights {
  Item items[kNumWeights];
};
constexpr OfWeights<const char*> weight_names() {
  OfWeights<const char*> names{};
  for (int i = 0; i < kNumWeights; ++i)
    names.items[i] = weight_info(static_cast<WeightType>(i)).name;
  return names;
}
constexpr OfWeights<int> weight_bits() {
  OfWeights<int> bits{};
  for (int i = 0; i < kNumWeights; ++i) bits.items[i] = bits_of(static_cast<WeightType>(i));
  return bits;
}
constexpr int first_float() {
  int first = 0;
  while (weight_info(static_cast<WeightType>(first)).is_integer) ++first;
  return first;
}
constexpr OfWeights<const char*> kWeightNames = weight_names();
constexpr OfWeights<int> kWeightBits = weight_bits();
constexpr int kFirstFloat = first_float();

// Calls `use` with the struct of a type.
template <typename Use, int kFrom = 0>
auto with_weight(WeightType type, const Use& use) {
  if constexpr (kFrom + 1 < kNumWeights) {
    if (static_cast<int>(type) != kFrom) return with_weight<Use, kFrom + 1>(type, use);
  }
  return use(WeightOf<static_cast<WeightType>(kFrom)>());
}

}  // namespace mixed_gemm
