#include "clientlib/examples/epoch_digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>

struct EpochDigest::State {
  XXH3_state_t xxh;
};

EpochDigest::EpochDigest() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh);
}
EpochDigest::~EpochDigest() = default;

void EpochDigest::add(const headrace::BatchView& batch) {
  for (const headrace::FieldSpec& spec : batch.fields()) {
    const auto field = batch.field(spec.name).value();
    const std::size_t size = headrace::row_bytes(spec);
    for (std::uint32_t row = 0; row < batch.rows(); ++row)
      if (batch.valid(row)) XXH3_64bits_update(&state_->xxh, field.data + row * size, size);
  }
}

std::string EpochDigest::finish() {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits_digest(&state_->xxh)));
  XXH3_64bits_reset(&state_->xxh);
  return text;
}
