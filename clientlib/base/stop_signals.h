// The signals that ask a process to stop.
#pragma once

#include <csignal>

namespace headrace {

/// SIGTERM, SIGINT and, unless this process ignores it (as under nohup(1)), SIGHUP. An ignored signal must
/// not be in the set: while blocked, it would stay pending.
inline sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  struct sigaction hangup {};
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

/// Whether one of these signals, which this process blocks, is pending.
inline bool stop_is_pending() {
  const sigset_t stop = stop_signals();
  sigset_t waiting, both;
  sigemptyset(&waiting);
  ::sigpending(&waiting);
  sigandset(&both, &waiting, &stop);
  return sigisemptyset(&both) == 0;
}

}  // namespace headrace
