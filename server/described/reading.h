// The state of reading a document: the place of the current value, the folder of relative paths, and the
// faults found so far.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace headrace::server::described {

using Json = nlohmann::json;
using Pointer = Json::json_pointer;
using Folder = std::filesystem::path;

/// For messages: text that is not UTF-8 is replaced.
std::string as_json(const Json& value);

/// The faults of a document, in the order in which they were found.
class Faults {
 public:
  struct Fault {
    Pointer at;
    bool at_key;  ///< the key is wrong, or something missing beside it; otherwise the value
    std::string message, suggestion;
  };

  void add(Fault fault);
  /// Marks the node as wrong; the caller reports the reason elsewhere.
  void mark(const Pointer& at);
  /// Whether neither the node nor anything below it is wrong.
  [[nodiscard]] bool sound(const Pointer& at) const;
  [[nodiscard]] const std::vector<Fault>& all() const { return all_; }

 private:
  std::vector<Fault> all_;
  std::set<std::string> wrong_;  ///< pointers
};

/// A value that names data: a path or a URL.
struct Location {
  Pointer at;
  std::string text;
};

class Reading {
 public:
  Reading() = default;
  /// `faults` and `data` collect the faults and the locations of data; null: they are not needed.
  explicit Reading(Folder folder, Pointer at = Pointer(), Faults* faults = nullptr,
                   std::vector<Location>* data = nullptr)
      : folder_(std::move(folder)), at_(std::move(at)), faults_(faults), data_(data) {}

  [[nodiscard]] Reading below(const std::string& name) const {
    return Reading(folder_, at_ / name, faults_, data_);
  }
  [[nodiscard]] Reading collecting(std::vector<Location>& data) const {
    return Reading(folder_, at_, faults_, &data);
  }
  [[nodiscard]] const Folder& folder() const { return folder_; }
  [[nodiscard]] const Pointer& at() const { return at_; }
  [[nodiscard]] Faults* faults() const { return faults_; }

  /// Whether neither the current value nor anything below it is wrong.
  [[nodiscard]] bool sound() const { return faults_ == nullptr || faults_->sound(at_); }
  /// The same for some of its keys.
  [[nodiscard]] bool sound(std::initializer_list<const char*> keys) const;

  /// Reports the value at `below`, or the key. "": the current value; "a/b": b in a.
  void wrong(const std::string& below, std::string message, std::string suggestion = {}) const;
  void wrong_key(const std::string& below, std::string message, std::string suggestion = {}) const;
  void wrong(const Pointer& below, std::string message, std::string suggestion = {}) const;
  void wrong_key(const Pointer& below, std::string message, std::string suggestion = {}) const;

  void add_data(const std::string& text) const;

 private:
  void add(const Pointer& below, bool at_key, std::string message, std::string suggestion) const;

  Folder folder_;
  Pointer at_;
  Faults* faults_ = nullptr;
  std::vector<Location>* data_ = nullptr;
};

/// Whether `map` has exactly one of the keys `ways`; otherwise reports it. `all`: the list of them in
/// messages.
bool check_one_of(const Json& map, std::initializer_list<const char*> ways, const char* all,
                  const Reading& reading);

}  // namespace headrace::server::described
