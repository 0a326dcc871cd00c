// How a document is read: where the value that is read stands, what relative paths are relative to, and what
// is wrong so far.
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

/// What is wrong in a document, in the order in which it was found.
class Faults {
 public:
  struct Fault {
    Pointer at;
    bool at_key;  ///< the key is wrong, or what is missing beside it; else the value
    std::string message, suggestion;
  };

  void add(Fault fault);
  /// The node counts as wrong; somebody else reports why.
  void mark(const Pointer& at);
  /// Nothing is wrong with the node, or below it.
  [[nodiscard]] bool sound(const Pointer& at) const;
  [[nodiscard]] const std::vector<Fault>& all() const { return all_; }

 private:
  std::vector<Fault> all_;
  std::set<std::string> wrong_;  ///< pointers
};

/// A value that says where data are: a path or a URL.
struct Location {
  Pointer at;
  std::string text;
};

class Reading {
 public:
  /// `faults`, `data`: what is wrong, and where data are, is added to them; null: nobody asks.
  explicit Reading(Folder folder = {}, Pointer at = Pointer(), Faults* faults = nullptr,
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

  /// Nothing is wrong with the value that is read, or below it.
  [[nodiscard]] bool sound() const { return faults_ == nullptr || faults_->sound(at_); }
  /// The same of some of its keys.
  [[nodiscard]] bool sound(std::initializer_list<const char*> keys) const;

  /// The value at `below` is wrong, or the key. "": what is read itself; "a/b": b in a.
  void wrong(const std::string& below, std::string message, std::string suggestion = {}) const;
  void wrong_key(const std::string& below, std::string message, std::string suggestion = {}) const;
  void wrong(const Pointer& below, std::string message, std::string suggestion = {}) const;
  void wrong_key(const Pointer& below, std::string message, std::string suggestion = {}) const;

  void add_data(const std::string& text) const;

 private:
  void add(const Pointer& below, bool at_key, std::string message, std::string suggestion) const;

  Folder folder_;
  Pointer at_;
  Faults* faults_;
  std::vector<Location>* data_;
};

/// Whether `map` has exactly one of the keys `ways`; else that is wrong. `all`: how messages list them.
bool check_one_of(const Json& map, std::initializer_list<const char*> ways, const char* all,
                  const Reading& reading);

}  // namespace headrace::server::described
