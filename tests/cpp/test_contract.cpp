// The walk over the rules of a contract and its texts, on a table of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "contract/check.h"

namespace mixed_gemm::contract {
namespace {

constexpr const char* kModes[] = {"none", "sub", "add"};

std::optional<Refusal> refuse_seven(Given& given) {
  if (given.numbers[3] != 7) return {};
  return value_fault({"bits", "not be 7"});
}

constexpr Argument kArguments[] = {
    tensor("a"),
    tensor("w"),
    optional_tensor("bias"),
    integer("bits").keyword().binds(Bits),
    integer("group_size", "-1").keyword().binds(GroupSize).must_be("", "all of K"),
    text("mode", "\"sub\"").keyword(),
    pair("stride", "1").keyword(),
    real("scale").keyword(),
    optional_pair("blocks").keyword(),
    optional_real("limit").keyword(),
    real("alpha", "1.0").keyword(),
};
constexpr auto kRules =
    placed(kArguments,
           {floats("a").with_hint("a.half()"), rows("a"), rank("w", 2), bind(N, "w", 1),
            require(refuse_seven), range("bits", 2, 8), choice("mode", kModes, 1), two("stride"),
            positive("scale"), positive("limit"), same_dtype("w", "a"),
            shape("w", {groups(K, GroupSize), N}).because_of({K, GroupSize}).may_be_transposed(),
            dtype("bias", Dtype::kInt8, " (signed)"),
            shape("bias", {rounded_up(N, 64) * Bits / 8}).without("blocks"),
            shape("bias", {N}).or_one().where_given("blocks"), whole(GroupSize, K)});
constexpr auto kResults = given_by(
    kArguments, {leading("a", N).named("d"),
                 matrix("w", N, rounded_up(K, 64)).of_dtype(Dtype::kUint8).named("packed")});
constexpr Contract kContract = {"sample", kArguments, kRules, kResults};

// A valid call: a [3, 96], w [3, 72], bias [64].
struct Sample {
  std::vector<int64_t> a = {3, 96}, a_strides = {96, 1}, w = {3, 72}, w_strides = {72, 1},
                       bias = {64}, stride = {1, 2}, blocks = {1, 1};
  Given given{};

  static void set(View& v, Dtype dtype, const std::vector<int64_t>& sizes,
                  const std::vector<int64_t>& strides) {
    v = {};
    v.state = View::kGiven;
    v.dtype = dtype;
    v.dims = static_cast<int64_t>(sizes.size());
    v.sizes = sizes.data(), v.strides = strides.data();
    v.storage = -1;
  }
  Sample() {
    given.numbers[3] = 4, given.numbers[4] = 32;
    given.texts[5] = "sub";
    given.reals[7] = 1;
    given.list_sizes[9] = 0;
  }
  std::string refusal() {
    describe();
    return checked();
  }
  void describe() {
    set(given.views[0], Dtype::kFloat16, a, a_strides);
    set(given.views[1], Dtype::kFloat16, w, w_strides);
    set(given.views[2], Dtype::kInt8, bias, w_strides);
    given.lists[6] = stride.data(), given.list_sizes[6] = static_cast<int64_t>(stride.size());
    given.lists[8] = nullptr;
  }
  std::string checked() {
    const auto refused = check(kContract, given);
    if (!refused) return "";
    return (refused->kind == ErrorKind::kType ? "type: " : "value: ") + refused->text;
  }
};

TEST(Contract, AcceptsAndBinds) {
  Sample sample;
  EXPECT_EQ(sample.refusal(), "");
  EXPECT_EQ(sample.given[M], 3);
  EXPECT_EQ(sample.given[N], 72);
  EXPECT_EQ(sample.given[K], 96);
  EXPECT_EQ(sample.given[GroupSize], 32);
  EXPECT_EQ(sample.given.numbers[5], 1);
}

TEST(Contract, ASymbolOfMinusOneIsAllOfItsExtent) {
  Sample sample;
  sample.given.numbers[4] = -1;
  sample.w = {1, 72};
  EXPECT_EQ(sample.refusal(), "");
  EXPECT_EQ(sample.given[GroupSize], 96);
}

TEST(Contract, ShapesPrintThemselves) {
  Sample sample;
  sample.w = {2, 72};
  EXPECT_EQ(sample.refusal(),
            "value: w must be (ceil(K/group_size), N) = (3, 72), got (2, 72); K=96, group_size=32");
  sample.w = {3, 72};
  sample.bias = {63};
  EXPECT_EQ(sample.refusal(),
            "value: bias must be (round_up(N, 64) * bits / 8,) = (64,), got (63,)");
  sample.w = {72, 3};  // N is 3 then
  sample.bias = {1};
  EXPECT_EQ(sample.refusal(),
            "value: w must be (ceil(K/group_size), N) = (3, 3), got (72, 3); K=96, group_size=32");
  sample.w = {72};
  EXPECT_EQ(sample.refusal(), "value: w must be 2-d (ceil(K/group_size), N), got (72,)");
}

TEST(Contract, DtypesAreTypeErrors) {
  Sample sample;
  sample.describe();
  sample.given.views[0].dtype = Dtype::kInt64;
  EXPECT_EQ(sample.checked(),
            "type: a must be float16, bfloat16 or float32, got int64. Hint: a.half()");
  sample.describe();
  sample.given.views[1].dtype = Dtype::kOther;
  sample.given.views[1].other_dtype = "bits8";
  EXPECT_EQ(sample.checked(), "type: w must be float16 (the dtype of a), got bits8");
  sample.describe();
  sample.given.views[2].dtype = Dtype::kUint8;
  EXPECT_EQ(sample.checked(), "type: bias must be int8 (signed), got uint8");
}

TEST(Contract, ScalarsAreRefusedInTheOrderOfTheRules) {
  Sample sample;
  sample.given.numbers[3] = 9;
  sample.given.texts[5] = "none";
  sample.stride = {1};
  sample.given.reals[7] = -0.5;
  EXPECT_EQ(sample.refusal(), "value: bits must be in 2..8, got 9");
  sample.given.numbers[3] = 7;
  EXPECT_EQ(sample.refusal(), "value: bits must not be 7");
  sample.given.numbers[3] = 4;
  EXPECT_EQ(sample.refusal(), "value: mode must be one of sub, add, got 'none'");
  sample.given.texts[5] = "add";
  EXPECT_EQ(sample.refusal(), "value: stride must be an int or two (height, width), got (1,)");
  sample.stride = {1, 1};
  EXPECT_EQ(sample.refusal(), "value: scale must be positive and finite, got -0.5");
  sample.given.reals[7] = -std::nan("");
  EXPECT_EQ(sample.refusal(), "value: scale must be positive and finite, got nan");
}

TEST(Contract, AnOptionalNumberIsCheckedWhereItIsGiven) {
  Sample sample;
  sample.given.reals[9] = -1;
  EXPECT_EQ(sample.refusal(), "");
  sample.given.list_sizes[9] = 1;
  EXPECT_EQ(sample.refusal(), "value: limit must be positive and finite, got -1");
  sample.given.reals[9] = 2;
  EXPECT_EQ(sample.refusal(), "");
}

TEST(Contract, TensorsComeBeforeDevicesAndStorages) {
  Sample sample;
  sample.describe();
  sample.given.views[1].device = kCudaDevice;
  sample.given.views[1].index = 1;
  EXPECT_EQ(sample.checked(),
            "value: all tensors must be on one device, got a on cpu and w on cuda:1. Hint: move "
            "them with .to(device)");
  sample.given.views[1].state = View::kUndefined;
  EXPECT_EQ(sample.checked(), "type: w must be a tensor, got None");
  sample.describe();
  sample.given.views[1].storage = 10;
  sample.given.views[1].item = 2;
  EXPECT_EQ(
      sample.checked().find("value: w must have a storage of 432 bytes or more, got 10 bytes; "
                            "its shape is (3, 72). Hint: the storage was freed"),
      0U);
  sample.describe();
  sample.given.views[2] = {};  // none
  EXPECT_EQ(sample.checked(), "");
}

TEST(Contract, ARuleMayHoldWhereAnotherArgumentIsGiven) {
  Sample sample;
  sample.bias = {1};
  sample.describe();
  EXPECT_NE(sample.checked(), "");
  sample.given.lists[8] = sample.blocks.data(), sample.given.list_sizes[8] = 2;
  EXPECT_EQ(sample.checked(), "");
}

TEST(Contract, WritesItsSchema) {
  EXPECT_EQ(schema_text(kContract),
            "sample(Tensor a, Tensor w, Tensor? bias=None, *, int bits, int group_size=-1, str "
            "mode=\"sub\", int[2] stride=1, float scale, int[2]? blocks=None, float? "
            "limit=None, float alpha=1.0) -> (Tensor d, Tensor packed)");
}

TEST(Contract, TellsPythonOfSymbolsAndResults) {
  const std::string json = json_text(kContract);
  for (const char* part :
       {"\"symbols\": {\"bits\": [\"bits\", 0, 0], \"group_size\": [\"group_size\", 0, 0], \"K\": "
        "[\"a\", -1, 1], \"N\": [\"w\", 1, 1]}, \"chosen\": {}, \"used\": [\"N\", \"K\", \"bits\", "
        "\"group_size\"]",
        "{\"form\": \"sizes\", \"like\": \"w\", \"sizes\": [[\"N\"], [\"K\", 64, \"round_up\"]], "
        "\"dtype\": \"uint8\", \"dtype_of\": \"\", \"unless\": \"\", "}) {
    EXPECT_NE(json.find(part), std::string::npos) << json;
  }
}

// A symbol that a name binds: kernels have it once the name is checked, Python by a table.
TEST(Contract, ANameBindsASymbol) {
  static constexpr const char* kTypes[] = {"int4", "e2m1", "e4m3"};
  static constexpr int kBitsOfTypes[] = {4, 4, 8};
  static constexpr Argument kNamed[] = {text("weight")};
  static constexpr auto kNamedRules =
      placed(kNamed, {choice("weight", kTypes, 1).binds(Bits, kBitsOfTypes)});
  static constexpr Contract kByName = {"by_name", kNamed, kNamedRules, {}};
  Given given{};
  given.texts[0] = "e4m3";
  EXPECT_FALSE(check(kByName, given));
  EXPECT_EQ(given[Bits], 8);
  EXPECT_EQ(given.numbers[0], 2);
  given.texts[0] = "int4";
  EXPECT_EQ(check(kByName, given)->text, "weight must be one of e2m1, e4m3, got 'int4'");
  const std::string json = json_text(kByName);
  EXPECT_NE(json.find("\"chosen\": {\"bits\": {\"e2m1\": 4, \"e4m3\": 8}}"), std::string::npos)
      << json;
  EXPECT_NE(json.find("\"symbols\": {\"bits\": [\"weight\", 0, 0]}"), std::string::npos) << json;
}

TEST(Contract, TellsWhatItsRulesAccept) {
  const std::string json = json_text(kContract);
  const std::string list = json.substr(json.find("\"told\": "));
  const char* kTold[] = {
      "[\"\", false, [\"float16, bfloat16 or float32\", \"(..., K)\"]]",
      "[\"\", false, [\"the dtype of a\", \"(ceil(K/group_size), N)\"]]",
      "[\"None\", false, [\"int8 (signed)\", \"(round_up(N, 64) * bits / 8,) without blocks; one "
      "element or (N,) with blocks\"]]",
      "[\"\", true, [\"\", \"2..8\"]]",
      "[\"-1\", true, [\"\", \"all of K\"]]",
      "[\"'sub'\", true, [\"\", \"sub, add\"]]",
      "[\"1\", true, [\"\", \"an int or two (height, width)\"]]",
      "[\"\", true, [\"\", \"positive and finite\"]]",
      "[\"None\", true, [\"\", \"\"]]",
      "[\"None\", true, [\"\", \"positive and finite\"]]",
      "[\"1.0\", true, [\"\", \"\"]]",
  };
  std::string expected;
  for (const char* one : kTold) expected += (expected.empty() ? "" : ", ") + std::string(one);
  EXPECT_EQ(list, "\"told\": [" + expected + "]}");
  EXPECT_NE(json.find("\"name\": \"d\", \"words\": \"(..., N)\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"name\": \"packed\", \"words\": \"(N, round_up(K, 64))\""),
            std::string::npos);
}

TEST(Contract, TellsPythonOfRules) {
  const std::string json = json_text(kContract);
  for (const Rule& r : kContract.rules) {
    if (*r.argument == 0) continue;  // a function, or a symbol
    EXPECT_NE(json.find(std::string("\"argument\": \"") + r.argument + "\""), std::string::npos);
  }
  for (const char* part :
       {"{\"kind\": \"rows\", \"argument\": \"a\"}", "{\"kind\": \"require\"}",
        "{\"kind\": \"whole\", \"symbol\": \"group_size\", \"sizes\": [[\"K\"]]}",
        "\"names\": [\"sub\", \"add\"]", "\"called\": \"sample\""}) {
    EXPECT_NE(json.find(part), std::string::npos) << json;
  }
}

TEST(Contract, GroupsOfNothingAreNoneAndBlocksOfNothingOne) {
  int64_t symbols[kSymbols] = {};
  symbols[static_cast<int>(GroupSize)] = -1;
  EXPECT_EQ(groups(K, GroupSize).value(symbols), 0);
  EXPECT_EQ(blocks(K, GroupSize).value(symbols), 1);
}

}  // namespace
}  // namespace mixed_gemm::contract
