// A trainer of the chaos run, in C++: the same as consumer.py, which says what it does. chaos_consumer JSON
#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "headrace/client.h"

namespace {

using headrace::BatchView;
using headrace::Error;
using headrace::ErrorCode;
using nlohmann::json;

bool survived(ErrorCode code) {
  static const std::set<ErrorCode> codes = {ErrorCode::kClientNameTaken,   ErrorCode::kDraining,
                                            ErrorCode::kGroupMismatch,     ErrorCode::kLeaseFenced,
                                            ErrorCode::kNotEnoughMemory,   ErrorCode::kRankTaken,
                                            ErrorCode::kRingFull,          ErrorCode::kServerLost,
                                            ErrorCode::kServerUnreachable, ErrorCode::kTokenInvalid};
  return codes.contains(code);
}

/// SAMPLE=HASH of each valid row, over all of its fields.
std::string hashes(const BatchView& batch) {
  std::string out;
  for (std::uint32_t row = 0; row < batch.rows(); ++row) {
    if (!batch.valid(row)) continue;
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (const headrace::FieldSpec& spec : batch.fields()) {
      const std::size_t size = headrace::row_bytes(spec);
      XXH3_64bits_update(&state, headrace::or_throw(batch.field(spec.name)).data + row * size, size);
    }
    char text[48];
    std::snprintf(text, sizeof text, " %llu=%016llx",
                  static_cast<unsigned long long>(batch.sample_index(row)),
                  static_cast<unsigned long long>(XXH3_64bits_digest(&state)));
    out += text;
  }
  return out;
}

class Journal {
 public:
  explicit Journal(const std::string& path) : out_(path, std::ios::app) {}

  /// One write for each line, so that a kill leaves whole lines and perhaps the beginning of one.
  void write(const std::string& kind, const std::string& rest, const char* before = "") {
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    char time[32];
    std::snprintf(time, sizeof time, "%.6f", now.count());
    out_ << before + kind + ' ' + time + ' ' + rest + '\n' << std::flush;
  }

 private:
  std::ofstream out_;
};

class Consumer {
 public:
  explicit Consumer(const json& given)
      : given_(given),
        journal_(given.at("journal")),
        checkpoint_(given.at("checkpoint").get<std::string>()),
        end_(given.at("end").get<std::string>()),
        random_(given.at("seed").get<std::uint32_t>() ^ static_cast<std::uint32_t>(::getpid())) {
    state_ = given.at("state");
    if (std::ifstream saved{checkpoint_}) {
      const json read = json::parse(saved);
      kept_ = read.at("kept");
      state_ = read.at("state");
    }
    journal_.write("start", std::to_string(kept_), "\n");
  }

  void run() {
    headrace::Stream stream = attach();
    int until_save = saves_(random_);
    std::uniform_real_distribution<double> step(0, given_.at("step").get<double>());
    while (!reached(stream.epoch())) {
      auto batch = stream.next(std::chrono::seconds(60));
      if (!batch) {
        survive(batch.error());
        continue;
      }
      if (!*batch) continue;
      journal_.write("batch", std::to_string((*batch)->epoch()) + ' ' + std::to_string((*batch)->batch()) +
                                  hashes(**batch));
      ++kept_;
      (*batch)->release();
      if (--until_save == 0) {
        until_save = saves_(random_);
        save(stream.state());
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(step(random_)));
      if (::getppid() != parent_) throw std::runtime_error("the harness has ended");
    }
    save(stream.state());
    journal_.write("end", "");
  }

 private:
  headrace::Stream attach() {
    for (;;) {
      auto client =
          headrace::Client::connect({.address = given_.at("address"), .timeout = std::chrono::seconds(20)});
      if (!client) {
        survive(client.error());
        continue;
      }
      headrace::OpenOptions options;
      options.stream = given_.at("stream");
      options.group = given_.at("group");
      options.client = given_.at("name");
      options.rank = given_.at("rank");
      options.world_size = given_.at("world_size");
      if (!state_.is_null()) options.state = headrace::or_throw(headrace::State::from_json(state_.dump()));
      auto stream = client->open(options);
      if (stream) return std::move(*stream);
      survive(stream.error());
    }
  }

  void survive(const Error& error) {
    std::string said = error.to_string();
    for (char& c : said)
      if (c == '\n') c = ' ';
    journal_.write("error", std::string(headrace::name_of(error.code)) + ' ' + said);
    if (!survived(error.code)) throw headrace::Exception(error);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }

  /// Whole, or not at all: a full disk leaves the last checkpoint.
  void save(const headrace::State& state) {
    const std::filesystem::path fresh = checkpoint_.string() + ".new";
    std::ofstream out(fresh);
    out << json{{"kept", kept_}, {"state", json::parse(state.to_json())}}.dump();
    out.close();
    std::error_code failed;
    if (out) std::filesystem::rename(fresh, checkpoint_, failed);
    if (!out || failed) {
      std::filesystem::remove(fresh, failed);
      journal_.write("error", "CHECKPOINT cannot be written");
    } else {
      journal_.write("save", std::to_string(kept_));
    }
  }

  bool reached(std::uint64_t epoch) const {
    std::ifstream file{end_};
    std::uint64_t end = 0;
    return file >> end && epoch >= end;
  }

  json given_;
  Journal journal_;
  std::filesystem::path checkpoint_, end_;
  std::mt19937 random_;
  std::uniform_int_distribution<int> saves_{1, 6};
  json state_;
  std::uint64_t kept_ = 0;
  pid_t parent_ = ::getppid();
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  try {
    Consumer(json::parse(argv[1])).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chaos_consumer: %s\n", error.what());
    return 1;
  }
  return 0;
}
