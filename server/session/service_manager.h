// Sends the messages of sd_notify(3) to the service manager that started this process (systemd): it is ready,
// alive, or stopping. Does not use libsystemd, which would add libgcrypt and others to every wheel and image.
// Does nothing unless NOTIFY_SOCKET is set. Never blocks: while the manager's queue is full, messages are
// deferred to the next turn of the main loop. Thread safety: one thread at a time.
#pragma once

#include <sys/un.h>

#include <cstdint>
#include <string>

#include "clientlib/ring/unique_fd.h"

namespace headrace::server::session {

class ServiceManager {
 public:
  /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
  ServiceManager();

  void ready(const std::string& status);
  void stopping();
  /// To be called at each turn of the main loop: keeps the watchdog from restarting the service, and sends
  /// what was deferred.
  void alive(std::uint64_t now_ns);

 private:
  /// Sends now, or from alive(). Replaces an older state that was deferred.
  void tell(std::string state);
  /// False if the manager's queue is full. Other errors are logged and not retried.
  bool send(const std::string& state);

  ring::UniqueFd socket_;
  sockaddr_un address_{};
  socklen_t address_size_ = 0;
  std::uint64_t watchdog_ns_ = 0;  ///< 0: no watchdog
  std::uint64_t next_ns_ = 0;
  std::string deferred_;  ///< the state that the manager does not know yet
};

}  // namespace headrace::server::session
