// Threads of the library: named for people who look at the process, deaf to the host program's
// signals, and never joined, because they live as long as the process.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace hetccl {

// `name`: at most 15 characters. `body` does not return while anything it refers to may go.
template <typename Body>
void start_detached_thread(const char* name, Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([name, body = std::move(body)] {
    pthread_setname_np(pthread_self(), name);
    body();
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace hetccl
