// What the process has once: the fabric and the progress thread. Made at first use, passed down,
// never destroyed, so that exit without clean-up is harmless. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <set>

#include "lib/base/settings.h"
#include "lib/base/status.h"
#include "lib/net/fabric.h"
#include "lib/run/progress_thread.h"
#include "lib/run/staging_pool.h"

namespace hetccl {

class Stream;

class Context {
 public:
  static Context& get();

  // The first settings asked with decide.
  Result<net::Fabric*> fabric(const Settings& settings);
  run::ProgressThread& progress_thread();
  // Over the fabric's shared memory. The first size asked with decides.
  run::StagingPool& staging_pool(size_t bytes);

  // Handles from hetcclStreamCreate.
  void add_stream(Stream* stream);
  bool remove_stream(Stream* stream);
  bool has_stream(const void* handle);

 private:
  Context() = default;
  std::mutex mutex_;
  net::Fabric* fabric_ = nullptr;
  run::ProgressThread* progress_thread_ = nullptr;
  run::StagingPool* staging_pool_ = nullptr;
  std::set<const void*> streams_;
};

}  // namespace hetccl
