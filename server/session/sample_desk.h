// Makes the samples that people ask to see, on a thread of its own: a large image takes seconds to decode,
// and the session thread has clients to attach meanwhile. Few wait at a time; who comes on top is told so.
//
// Thread safety: `ask`, `take` and `fd` from one thread.
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

/// What a request gets: a JSON body, and a second frame unless it is empty.
struct Answer {
  Result<nlohmann::json> body;
  std::string binary;
};

class SampleDesk {
 public:
  explicit SampleDesk(const exec::Engine& engine);
  ~SampleDesk();  ///< waits for the sample that is at hand; those that wait are dropped
  SampleDesk(const SampleDesk&) = delete;
  SampleDesk& operator=(const SampleDesk&) = delete;

  /// Who asked, for the answer's way back.
  struct Asker {
    std::string identity;
    std::int64_t id = 0;
  };
  /// kTimeout if too many wait; kNoSuchStream, kInvalidArgument for what is not there.
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
  std::size_t open_ = 0;          ///< [mutex] asked and not taken yet
  bool stopping_ = false;         ///< [mutex]
  exec::RowScratch scratch_;      ///< the thread's
  std::thread thread_;
};

}  // namespace headrace::server::session
