#include "server/session/sample_desk.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "server/log/barrier.h"
#include "server/status/picture.h"

namespace headrace::server::session {
namespace {

constexpr std::size_t kMostOpen = 4;

Answer refusal(const Error& error) {
  return {tl::make_unexpected(error), {}};
}

}  // namespace

SampleDesk::SampleDesk(const exec::Engine& engine)
    : engine_(engine), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { work(); }) {}

SampleDesk::~SampleDesk() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

Result<void> SampleDesk::ask(Asker asker, const wire::SampleRequest& request) {
  const auto stream = engine_.find(request.stream);
  if (!stream) return tl::make_unexpected(stream.error());
  if (engine_.stream(*stream).feed())
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream `{}` is fed from outside and gives each batch once: there is none to show",
                    request.stream));
  if (const std::uint64_t size = engine_.stream(*stream).maker().size(); request.index >= size)
    return fail(ErrorCode::kInvalidArgument, fmt::format("index {}: stream `{}` has {} samples per epoch",
                                                         request.index, request.stream, size));
  {
    const std::scoped_lock lock(mutex_);
    if (open_ == kMostOpen)
      return fail(ErrorCode::kTimeout,
                  fmt::format("{} samples wait to be made and shown: ask again later", open_));
    ++open_;
    waiting_.push_back({std::move(asker), *stream, request});
  }
  asked_.notify_one();
  return {};
}

std::vector<SampleDesk::Made> SampleDesk::take() {
  std::uint64_t rings = 0;
  (void)!::read(bell_.get(), &rings, sizeof rings);
  const std::scoped_lock lock(mutex_);
  open_ -= made_.size();
  return std::exchange(made_, {});
}

void SampleDesk::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    asked_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const Question question = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    try {
      Answer answer = make(question);
      lock.lock();
      made_.push_back({question.asker, std::move(answer)});
    } catch (...) {  // no reply: the client times out
      log::thrown("the thread that makes samples");
      if (!lock.owns_lock()) lock.lock();
      --open_;
    }
    const std::uint64_t one = 1;
    (void)!::write(bell_.get(), &one, sizeof one);
  }
}

Answer SampleDesk::make(const Question& question) try {
  const wire::SampleRequest& request = question.request;
  const exec::SampleMaker& maker = engine_.stream(question.stream).maker();
  const auto shown = exec::show_row(maker, request.epoch, request.index, scratch_);
  if (!shown) return refusal(shown.error());
  wire::SampleReply reply;
  reply.sample_index = shown->row.sample_index;
  reply.name = shown->explanation.name;
  reply.replaced = shown->row.replaced;
  reply.label = shown->row.label;
  reply.fields = shown->fields->specs();
  reply.parameters = nlohmann::json::parse(shown->explanation.parameters);
  if (request.picture.empty()) return {wire::to_json(reply), shown->fields->bytes()};
  auto file = status::png_of_row(maker, request.picture, *shown);
  if (!file) return refusal(file.error());
  return {wire::to_json(reply), std::move(*file)};
} catch (const std::exception& error) {
  return refusal({ErrorCode::kInternal, fmt::format("sample {} of stream `{}`: {}", question.request.index,
                                                    question.request.stream, error.what())});
}

}  // namespace headrace::server::session
