// Published: readers see whole values, in the order in which they were stored, while a thread stores without
// a pause.
#include "server/exec/published.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace headrace::server::exec {
namespace {

using Value = std::array<std::uint64_t, 14>;

TEST(Published, ReadersSeeWholeValuesInOrder) {
  Published<Value> published;
  std::atomic<bool> ended{false};
  std::atomic<std::uint64_t> torn{0}, backwards{0}, changes{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      std::uint64_t last = 0;
      while (!ended.load()) {
        const Value value = published.load();
        for (const std::uint64_t word : value) torn += word != value[0];
        backwards += value[0] < last;
        changes += value[0] > last;
        last = value[0];
      }
    });
  for (std::uint64_t i = 1; changes.load() < 2000; ++i) {
    Value value;
    value.fill(i);
    published.store(value);
  }
  ended = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0U);
  EXPECT_EQ(backwards, 0U);
}

}  // namespace
}  // namespace headrace::server::exec
