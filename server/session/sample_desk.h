// Makes samples for inspection on a thread of its own: a large image takes seconds to decode, and the session
// thread must attach clients meanwhile. Only a few requests wait at a time; further ones are refused.
//
// Thread safety: call `ask`, `take` and `fd` from one thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "clientlib/wire/protocol.h"
#include "headrace/error.h"
#include "server/exec/engine.h"

namespace headrace::server::session {

/// The reply to a request: a JSON body, and a second frame unless it is empty.
struct Answer {
  Result<nlohmann::json> body;
  std::string binary;
};

class SampleDesk {
 public:
  explicit SampleDesk(const exec::Engine& engine);
  ~SampleDesk();  ///< waits for the sample in progress; drops the waiting requests
  SampleDesk(const SampleDesk&) = delete;
  SampleDesk& operator=(const SampleDesk&) = delete;

  /// The sender of a request, to which the reply is routed.
  struct Asker {
    std::string identity;
    std::int64_t id = 0;
  };
  /// kTimeout: too many requests wait; kNoSuchStream, kInvalidArgument: the sample does not exist.
  Result<void> ask(Asker asker, const wire::SampleRequest& request);

  struct Made {
    Asker asker;
    Answer answer;
  };
  [[nodiscard]] int fd() const { return bell_.get(); }  ///< readable: call `take`
  std::vector<Made> take();

 private:
  struct Question {
    Asker asker;
    std::size_t stream = 0;
    wire::SampleRequest request;
  };
  void work();
  Answer make(const Question& question);

  const exec::Engine& engine_;
  ring::UniqueFd bell_;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<Question> waiting_;  ///< [mutex]
  std::vector<Made> made_;        ///< [mutex]
  std::size_t open_ = 0;          ///< [mutex] requests without a taken reply
  bool stopping_ = false;         ///< [mutex]
  exec::RowScratch scratch_;      ///< used only by the thread
  std::thread thread_;
};

}  // namespace headrace::server::session
