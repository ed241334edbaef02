// A contract as torch's schema, and as JSON for Python.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "contract/contract.h"

namespace mixed_gemm::contract {
namespace {

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

// Items between commas.
class Listed {
 public:
  void add(const std::string& item) { text_ += (text_.empty() ? "" : ", ") + item; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string type_text(Kind kind, int& written) {
  std::string type = kKindNames[static_cast<int>(kind)];
  if (kind == Kind::kWrittenTensor || kind == Kind::kWrittenTensors) {
    const std::string alias = std::string("(") + static_cast<char>('a' + written++) + "!)";
    type.insert(type.find("Tensor") + 6, alias);
  }
  return type;
}

std::string shape_text(const Size* sizes, int dims) {
  std::string text = "(";
  for (int i = 0; i < dims; ++i) text += (i > 0 ? ", " : "") + sizes[i].text();
  return text + (dims == 1 ? ",)" : ")");
}

// The words of all rules about one argument, with semicolons between them: those about its dtype,
// and those about its shape or value.
class Told {
 public:
  explicit Told(const Argument& argument)
      : dtype_(argument.dtype_words), shape_(argument.shape_words) {
    if (*argument.only_with != 0) shape_ += std::string(" with ") + argument.only_with;
  }
  void add(const Rule& rule) {
    if (rule.kind == Rule::kSameDtype) {
      add(dtype_, std::string("the dtype of ") + rule.like, rule);
    } else if (rule.kind == Rule::kWords) {
      add(dtype_, "int32", rule);
      add(shape_, rule.text, rule);
    } else if (rule.kind == Rule::kFloats || rule.kind == Rule::kDtype) {
      add(dtype_, accepted(rule), rule);
    } else {
      add(shape_, (rule.one ? "one element or " : "") + accepted(rule), rule);
    }
  }
  std::string json() const { return "[" + quoted(dtype_) + ", " + quoted(shape_) + "]"; }

 private:
  static void add(std::string& text, const std::string& words, const Rule& rule) {
    if (words.empty() || words == text) return;
    text += (text.empty() ? "" : "; ") + words;
    if (*rule.only != 0) text += std::string(rule.only_given ? " with " : " without ") + rule.only;
  }
  std::string dtype_, shape_;
};

std::string default_of(const Argument& x) {
  if (x.fallback == nullptr) return "";
  std::string text = x.fallback;  // where JSON wants no quotes of the schema
  std::replace(text.begin(), text.end(), '"', '\'');
  return text;
}

std::string described(const Contract& contract) {
  Listed all;
  for (int i = 0; i < contract.arguments.count; ++i) {
    const Argument& x = contract.arguments[i];
    Told told(x);
    for (const Rule& r : contract.rules) {
      if (r.at == i) told.add(r);
    }
    all.add("[" + quoted(default_of(x)) + ", " + (x.is_keyword ? "true" : "false") + ", " +
            told.json() + "]");
  }
  return all.text();
}

std::string result_words(const Result& r) {
  switch (r.form) {
    case Result::kLeading:
      return "(..., " + r.sizes[0].text() + ")";
    case Result::kSizes:
      return shape_text(r.sizes, r.dims);
    default:
      return r.words;
  }
}

std::string result_type(const Result& result) {
  return result.form == Result::kText ? "str" : *result.unless != 0 ? "Tensor?" : "Tensor";
}

std::string result_json(const Result& r) {
  constexpr const char* kForms[] = {"like", "leading", "sizes", "made", "text"};
  Listed sizes;
  for (int i = 0; i < r.dims; ++i) sizes.add(r.sizes[i].json());
  const std::string dtype = r.dtype == Dtype::kOther ? "" : kDtypeNames[static_cast<int>(r.dtype)];
  return "{\"form\": " + quoted(kForms[r.form]) + ", \"like\": " + quoted(r.like) +
         ", \"sizes\": [" + sizes.text() + "], \"dtype\": " + quoted(dtype) +
         ", \"dtype_of\": " + quoted(r.dtype_of) + ", \"unless\": " + quoted(r.unless) +
         ", \"name\": " + quoted(r.name) + ", \"words\": " + quoted(result_words(r)) + "}";
}

// A rule, without what it leaves as it is. The names of a choice are those that it accepts.
std::string rule_json(const Rule& r) {
  constexpr const char* kKinds[] = {"floats", "dtype",  "same_dtype", "rows",         "rank",
                                    "words",  "bind",   "shape",      "column_major", "along",
                                    "one",    "choice", "range",      "positive",     "pair",
                                    "whole",  "require"};
  static_assert(std::size(kKinds) == Rule::kRequire + 1 &&
                    std::string_view(kKinds[Rule::kShape]) == "shape" &&
                    std::string_view(kKinds[Rule::kWhole]) == "whole",
                "kKinds has the words of Rule::Kind in its order");
  Listed parts, sizes, because, names;
  const auto put = [&](const char* key, const std::string& value) {
    parts.add(quoted(key) + ": " + value);
  };
  const auto put_text = [&](const char* key, const char* text) {
    if (*text != 0) put(key, quoted(text));
  };
  const auto put_number = [&](const char* key, int64_t number) {
    if (number != 0) put(key, std::to_string(number));
  };
  const auto put_list = [&](const char* key, const Listed& list) {
    if (!list.text().empty()) put(key, "[" + list.text() + "]");
  };
  put("kind", quoted(kKinds[r.kind]));
  put_text("argument", r.argument);
  put_text("like", r.like);
  put_text("text", r.text);
  put_text("hint", r.hint);
  put_text(r.only_given ? "where_given" : "without", r.only);
  if (r.kind == Rule::kDtype) put_text("dtype", kDtypeNames[static_cast<int>(r.dtype)]);
  if (r.kind == Rule::kBind || r.kind == Rule::kWhole) {
    put_text("symbol", kSymbolNames[static_cast<int>(r.symbol)]);
  }
  put_number("dims", r.dims);
  const int formulas = r.kind == Rule::kShape ? r.dims : r.kind == Rule::kWhole ? 1 : 0;
  for (int i = 0; i < formulas; ++i) sizes.add(r.sizes[i].json());
  put_list("sizes", sizes);
  for (int i = 0; i < r.because_count; ++i) {
    because.add(quoted(kSymbolNames[static_cast<int>(r.because[i])]));
  }
  put_list("because", because);
  put_number("transposable", r.transposable ? 1 : 0);
  put_number("one", r.one ? 1 : 0);
  for (int i = r.first; i < r.count; ++i) names.add(quoted(r.names[i]));
  put_list("names", names);
  put_number("least", r.least);
  put_number("most", r.most);
  return "{" + parts.text() + "}";
}

}  // namespace

std::string schema_text(const Contract& contract) {
  Listed arguments;
  bool keyword = false;
  int written = 0;
  for (const Argument& x : contract.arguments) {
    if (x.is_keyword && !keyword) arguments.add("*");
    keyword |= x.is_keyword;
    arguments.add(type_text(x.kind, written) + " " + x.name +
                  (x.fallback == nullptr ? "" : std::string("=") + x.fallback));
  }
  const std::string head = std::string(contract.name) + "(" + arguments.text() + ") -> ";
  if (contract.results.count == 1) return head + result_type(contract.results[0]);
  Listed results;
  for (const Result& r : contract.results) results.add(result_type(r) + " " + r.name);
  return head + "(" + results.text() + ")";
}

std::string json_text(const Contract& contract) {
  Listed arguments, symbols, used, results, rules;
  const auto bound = [&](Symbol symbol, const char* argument, int dim, int times) {
    symbols.add(quoted(kSymbolNames[static_cast<int>(symbol)]) + ": [" + quoted(argument) + ", " +
                std::to_string(dim) + ", " + std::to_string(times) + "]");
  };
  Listed chosen;  // symbols that a name binds: the value of each name
  const auto chosen_by = [&](const Rule& r) {
    Listed values;
    for (int i = r.first; i < r.count; ++i) {
      values.add(quoted(r.names[i]) + ": " + std::to_string(r.values[i]));
    }
    chosen.add(quoted(kSymbolNames[static_cast<int>(r.symbol)]) + ": {" + values.text() + "}");
    bound(r.symbol, r.argument, 0, 0);
  };
  for (const Argument& x : contract.arguments) {
    arguments.add("[" + quoted(x.name) + ", " + quoted(kKindNames[static_cast<int>(x.kind)]) + "]");
    if (x.symbol >= 0) bound(static_cast<Symbol>(x.symbol), x.name, 0, 0);
  }
  for (const Rule& r : contract.rules) {
    if (r.kind == Rule::kRows) bound(Symbol::kK, r.argument, -1, 1);
    if (r.kind == Rule::kColumnMajor) bound(Symbol::kN, r.argument, 1, 1);
    if (r.kind == Rule::kBind) bound(r.symbol, r.argument, r.dim, r.times);
    if (r.kind == Rule::kChoice && r.values != nullptr) chosen_by(r);
  }
  bool is_used[kSymbols] = {};
  const auto use = [&](const Size& size) { size.mark(is_used); };
  for (const Rule& r : contract.rules) {
    rules.add(rule_json(r));
    for (const Size& size : r.sizes) use(size);
    for (int i = 0; i < r.because_count; ++i) use(r.because[i]);
  }
  for (const Result& r : contract.results) {
    results.add(result_json(r));
    for (const Size& size : r.sizes) use(size);
  }
  for (int i = 0; i < kSymbols; ++i) {
    if (is_used[i]) used.add(quoted(kSymbolNames[i]));
  }
  return "{\"name\": " + quoted(contract.name) + ", \"called\": " + quoted(contract.words()) +
         ", \"arguments\": [" + arguments.text() + "], \"symbols\": {" + symbols.text() +
         "}, \"chosen\": {" + chosen.text() + "}, \"used\": [" + used.text() + "], \"results\": [" +
         results.text() + "], \"rules\": [" + rules.text() + "], \"told\": [" +
         described(contract) + "]}";
}

std::string accepted(const Rule& rule) {
  switch (rule.kind) {
    case Rule::kFloats:
      return "float16, bfloat16 or float32";
    case Rule::kDtype:
      return std::string(kDtypeNames[static_cast<int>(rule.dtype)]) + rule.text;
    case Rule::kRows:
      return "(..., K)";
    case Rule::kRank:
      return rule.text;
    case Rule::kShape:
      return shape_text(rule.sizes, rule.dims);
    case Rule::kColumnMajor:
      return "(K, N), column-major: stride(0) == 1";
    case Rule::kAlong:
      return *rule.like != 0 ? "(M,) or (M, 1)" : "(N,) or (1, N)";
    case Rule::kOne:
      return "one element";
    case Rule::kChoice: {
      Listed names;
      for (int i = rule.first; i < rule.count; ++i) names.add(rule.names[i]);
      return names.text();
    }
    case Rule::kRange:
      return std::to_string(rule.least) + ".." + std::to_string(rule.most);
    case Rule::kPositive:
      return "positive and finite";
    case Rule::kPair:
      return "an int or two (height, width)";
    default:
      return "";
  }
}

}  // namespace mixed_gemm::contract
