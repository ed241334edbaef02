// The result of a function below ops/: an empty text is success, another one the reason why not,
// ready to be shown to the user.
#pragma once
#include <string>
#include <utility>

namespace mixed_gemm {

class Status {
 public:
  Status() = default;
  explicit Status(std::string reason) : reason_(std::move(reason)) {}
  bool ok() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

}  // namespace mixed_gemm
