#include "server/pack/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <stdexcept>

#include "server/log/sink.h"
#include "server/pack/in_order.h"
#include "server/transform/plan.h"

namespace headrace::server::pack {
namespace {

constexpr std::size_t kShown = 10;
constexpr std::uint64_t kRecordsAtOnce = 16;

class Checker {
 public:
  Checker(const store::Store& store, bool decode) : store_(store), decode_(decode) {}

  /// The record's error; empty if it is valid.
  std::string check(std::uint64_t index) try {
    const auto record = store_.record(index);
    if (!record) return record.error().message;
    const std::string name = log::escaped_line(record->name());
    const auto wrong = [&name](std::string_view what) { return fmt::format("{}: {}", name, what); };
    if (!record->sound()) return wrong("its checksum is wrong");
    if (store_.meta().labelled && record->head().label != store_.label(index))
      return wrong(
          fmt::format("its label is {}, but {} in the table", record->head().label, store_.label(index)));
    for (std::size_t f = 0; f < store_.meta().fields.size(); ++f) {
      sample::Item& item = sample_.item(f);
      if (!record->unpack(f, item)) return wrong("its compressed bytes are damaged");
      if (decode_ && record->head().unreadable == 0 && record->field(f).undecodable == 0)
        if (std::string bad = undecodable(store_.meta().fields[f], item); !bad.empty()) return wrong(bad);
    }
    return {};
  } catch (const std::bad_alloc&) {
    return "no memory for it";
  } catch (const std::length_error&) {
    return "no memory for it";
  }

 private:
  std::string undecodable(const sample::SourceField& field, const sample::Item& item) {
    if (!field.is_image()) return {};
    const auto size = decoder_.open(item.image(), transform::PlanConfig{}.max_pixels);
    if (!size) return to_string(size.error());
    if (const auto begun = decoder_.begin({0, 0, size->width, size->height}, false); !begun)
      return to_string(begun.error());
    for (std::int32_t row = 0; row < size->height;) {
      const auto rows = decoder_.next();
      if (!rows) return to_string(rows.error());
      row += rows->count;
    }
    return {};
  }

  const store::Store& store_;
  const bool decode_;
  sample::Sample sample_;
  decode::Decoder decoder_;
};

}  // namespace

VerifyReport verify(const store::Store& store, const VerifyOptions& options,
                    const std::function<void(std::uint64_t, std::uint64_t)>& on_progress) {
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  VerifyReport report;
  {
    const ThreadGroup group(options.threads, [&] {
      Checker checker(store, options.decode);
      for (;;) {
        const std::uint64_t begin = next.fetch_add(kRecordsAtOnce);
        if (begin >= store.size()) return;
        const std::uint64_t end = std::min(begin + kRecordsAtOnce, store.size());
        std::uint64_t bytes = 0;
        std::vector<BadRecord> bad;
        for (std::uint64_t i = begin; i < end; ++i) {
          if (std::string wrong = checker.check(i); !wrong.empty()) bad.push_back({i, std::move(wrong)});
          bytes += store.value(i).size();
        }
        const std::scoped_lock lock(mutex);
        report.checked += end - begin;
        report.bytes += bytes;
        report.bad += bad.size();
        for (BadRecord& one : bad) {
          const auto at =
              std::upper_bound(report.first.begin(), report.first.end(), one.index,
                               [](std::uint64_t i, const BadRecord& other) { return i < other.index; });
          report.first.insert(at, std::move(one));
          if (report.first.size() > kShown) report.first.pop_back();
        }
        on_progress(report.checked, report.bytes);
      }
    });
  }
  report.lost = store.fault();
  return report;
}

}  // namespace headrace::server::pack
