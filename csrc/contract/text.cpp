// A contract as torch's schema, and as JSON for Python.
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
         ", \"dtype_of\": " + quoted(r.dtype_of) + ", \"unless\": " + quoted(r.unless) + "}";
}

// A rule, without what it leaves as it is. The names of a choice are those that it accepts.
std::string rule_json(const Rule& r) {
  constexpr const char* kKinds[] = {"floats", "dtype",  "same_dtype", "rows",         "rank",
                                    "words",  "bind",   "shape",      "column_major", "along",
                                    "one",    "choice", "range",      "positive",     "pair",
                                    "whole",  "require"};
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
  for (const Argument& x : contract.arguments) {
    arguments.add("[" + quoted(x.name) + ", " + quoted(kKindNames[static_cast<int>(x.kind)]) + "]");
    if (x.symbol >= 0) bound(static_cast<Symbol>(x.symbol), x.name, 0, 0);
  }
  for (const Rule& r : contract.rules) {
    if (r.kind == Rule::kRows) bound(Symbol::kK, r.argument, -1, 1);
    if (r.kind == Rule::kColumnMajor) bound(Symbol::kN, r.argument, 1, 1);
    if (r.kind == Rule::kBind) bound(r.symbol, r.argument, r.dim, r.times);
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
         "}, \"used\": [" + used.text() + "], \"results\": [" + results.text() + "], \"rules\": [" +
         rules.text() + "]}";
}

}  // namespace mixed_gemm::contract
