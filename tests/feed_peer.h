// The feeder's side of a feed, for tests: sends headrace.share()'s messages, and any others.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "clientlib/ring/fd_passing.h"

namespace headrace::testing {

class FeedPeer {
 public:
  explicit FeedPeer(const std::filesystem::path& socket)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket.native().copy(address.sun_path, sizeof address.sun_path - 1);
    connected_ = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  FeedPeer(const FeedPeer&) = delete;
  FeedPeer& operator=(const FeedPeer&) = delete;
  ~FeedPeer() {
    if (memory_ != nullptr) ::munmap(memory_, size_);
  }

  [[nodiscard]] bool connected() const { return connected_; }
  void say(const std::string& bytes) { (void)ring::send_packet(socket_.get(), bytes, {}); }
  /// The next packet; an empty object at the end.
  nlohmann::json hear() {
    auto packet = ring::receive_packet(socket_.get(), std::chrono::seconds(20));
    if (!packet) return nlohmann::json::object();
    if (!packet->fds.empty()) memory_fd_ = std::move(packet->fds[0]);
    return nlohmann::json::parse(packet->bytes);
  }
  /// Sends hello and maps the slots.
  void greet() {
    say(R"({"feed": 1})");
    layout = hear();
    ASSERT_TRUE(layout.contains("slot_bytes")) << layout;
    size_ = layout["slots"].get<std::size_t>() * layout["slot_bytes"].get<std::size_t>();
    void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_.get(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    memory_ = static_cast<std::byte*>(mapped);
  }
  /// The address of a field's values in a slot.
  template <class T>
  T* values(std::uint32_t slot, std::size_t field, const char* which = "values") {
    return reinterpret_cast<T*>(memory_ + slot * layout["slot_bytes"].get<std::size_t>() +
                                layout["fields"][field][which].get<std::size_t>());
  }
  void announce(std::uint64_t batch, std::uint32_t slot, std::uint32_t rows) {
    say(nlohmann::json{{"batch", batch}, {"slot", slot}, {"rows", rows}}.dump());
  }
  void hang_up() { socket_.reset(); }

  nlohmann::json layout;

 private:
  ring::UniqueFd socket_, memory_fd_;
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
  bool connected_ = false;
};

}  // namespace headrace::testing
