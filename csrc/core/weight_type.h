// THE list of weight types: what a code of each one is. Kernels can be compiled for a type that has
// a row here, places of a code in a word (layout/code_places.h) and a converter
// (dequant/weight_converter.h).
#pragma once
#include <cstdint>
#include <optional>
#include <tuple>

namespace mixed_gemm {

enum class WeightType : int { kInt4, kInt8, kE2M1, kE4M3, kNF4, kFP4 };

// Signed integers q, stored as q + kBias; other types have a kBias of 0. kZero is the code of the
// number 0, which padding holds.
template <WeightType kCodeType, int kCodeBits>
struct IntegerCodes {
  static constexpr WeightType kType = kCodeType;
  static constexpr int kBits = kCodeBits;
  static constexpr int kBias = 1 << (kCodeBits - 1), kZero = kBias;
  static constexpr bool kIsInteger = true, kHasBook = false;
  static constexpr int kLeastGroup = 16;  // that kernels of tensor cores take; all take multiples

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
  static constexpr int kBias = 0, kZero = 0;
  static constexpr bool kIsInteger = false, kHasBook = false;
  static constexpr int kLeastGroup = 16;

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

// Codes of four bits that stand for any 16 values, by a table in float32. bitsandbytes' formats are
// such. Kernels for GPUs take the values when they run (dequant/book.h), so that one kernel serves
// all books.
template <WeightType kCodeType, typename Book>
struct BookCodes {
  static constexpr WeightType kType = kCodeType;
  static constexpr int kBits = 4, kBias = 0, kZero = Book::kZero;
  static constexpr bool kIsInteger = false, kHasBook = true;
  static constexpr int kLeastGroup = 32;
  static constexpr float value(uint32_t code) { return Book::kValues[code & 15]; }
};

// Quantiles of a normal distribution over [-1, 1] (QLoRA, appendix E).
struct NF4Book {
  static constexpr int kZero = 7;
  static constexpr float kValues[16] = {
      -1.f,
      -0.6961928009986877f,
      -0.5250730514526367f,
      -0.39491748809814453f,
      -0.28444138169288635f,
      -0.18477343022823334f,
      -0.09105003625154495f,
      0.f,
      0.07958029955625534f,
      0.16093020141124725f,
      0.24611230194568634f,
      0.33791524171829224f,
      0.44070982933044434f,
      0.5626170039176941f,
      0.7229568362236023f,
      1.f,
  };
};
struct NF4 : BookCodes<WeightType::kNF4, NF4Book> {
  static constexpr const char* kName = "nf4";
};
// A sign and three bits, the largest of which is 1.
struct FP4Book {
  static constexpr int kZero = 0;
  static constexpr float kValues[16] = {
      0.f, 0.0052083333f,  0.66666667f,  1.f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
      0.f, -0.0052083333f, -0.66666667f, -1.f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
};
struct FP4 : BookCodes<WeightType::kFP4, FP4Book> {
  static constexpr const char* kName = "fp4";
};

template <typename... Weights>
struct WeightList {};
using WeightTypes =
    WeightList<Int4, Int8, E2M1, E4M3, NF4, FP4>;  // in the order of the enumerators

// A row of the list at run time.
struct WeightInfo {
  const char* name;
  int bits, bias;
  bool is_integer, has_book;
  int least_group;
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
  return {Weight::kName,      Weight::kBits,    Weight::kBias,
          Weight::kIsInteger, Weight::kHasBook, Weight::kLeastGroup};
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
// The type that kernels for GPUs are compiled for: books share those of the first one.
constexpr WeightType compiled_weight(WeightType type) {
  return weight_info(type).has_book ? WeightType::kNF4 : type;
}

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
