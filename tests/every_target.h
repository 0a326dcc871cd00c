// Kernels on every instruction set that this machine has.
#pragma once

#include <gtest/gtest.h>

#include <hwy/highway.h>
#include <cstdint>

namespace headrace::testing {

/// Runs `body` on each of them, the best last.
template <class Body>
void on_every_target(Body body) {
  int targets = 0;
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
    ++targets;
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  EXPECT_GT(targets, 0);
}

}  // namespace headrace::testing
