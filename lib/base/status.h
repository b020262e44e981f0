// The outcome of an operation: a code of the public API and, on failure, its cause in words.
// Who decides an error writes its text; callers pass it on unchanged.
#pragma once

#include <hetccl/hetccl.h>

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace hetccl {

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(hetcclResult_t code, std::string message)
      : failure_(code == hetcclSuccess
                     ? nullptr
                     : std::make_shared<const Failure>(Failure{code, std::move(message)})) {}

  bool ok() const { return failure_ == nullptr; }
  hetcclResult_t code() const { return ok() ? hetcclSuccess : failure_->code; }
  const std::string& message() const {
    static const std::string none;
    return ok() ? none : failure_->message;
  }

 private:
  struct Failure {
    hetcclResult_t code;
    std::string message;
  };
  std::shared_ptr<const Failure> failure_;
};

inline Status invalid_argument(std::string m) { return {hetcclInvalidArgument, std::move(m)}; }
inline Status invalid_usage(std::string m) { return {hetcclInvalidUsage, std::move(m)}; }
inline Status system_error(std::string m) { return {hetcclSystemError, std::move(m)}; }
inline Status internal_error(std::string m) { return {hetcclInternalError, std::move(m)}; }
inline Status remote_error(std::string m) { return {hetcclRemoteError, std::move(m)}; }
inline Status timeout_error(std::string m) { return {hetcclTimeout, std::move(m)}; }

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    assert(!status_.ok());
  }
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T* operator->() { return &*value_; }
  T& operator*() { return *value_; }
  const T* operator->() const { return &*value_; }
  const T& operator*() const { return *value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace hetccl
