// XXH3 (64 bits) over the valid rows of all batches of an epoch, field by field, in order: equal for two
// trainers if and only if they received the same bytes. `headrace.Digest` in Python gives the same.
#pragma once

#include <memory>
#include <string>

#include "headrace/client.h"

class EpochDigest {
 public:
  EpochDigest();
  ~EpochDigest();

  void add(const headrace::BatchView& batch);
  /// Returns the digest in hexadecimal, and starts a new one.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};
