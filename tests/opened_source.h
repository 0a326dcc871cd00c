// The result of opening a source.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/source/source.h"

namespace headrace::server::source {

using Opened = Result<std::shared_ptr<const Source>>;

/// The source; if it was refused, null, and the test fails.
inline std::shared_ptr<const Source> source_of(const Opened& opened) {
  EXPECT_TRUE(opened) << opened.error().message;
  return opened.value_or(nullptr);
}

/// Why the dataset was refused.
inline std::string why_refused(const Opened& opened) {
  if (opened) return "it was opened";
  EXPECT_EQ(opened.error().code, ErrorCode::kDatasetInvalid) << opened.error().message;
  return opened.error().message;
}

}  // namespace headrace::server::source
