#include "server/source/formats/synthetic.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "server/source/source_type.h"

namespace headrace::server::source {
namespace {

class Synthetic final : public Source {
 public:
  Synthetic(std::uint64_t count, std::uint64_t bytes) : count_(count), bytes_(bytes) {}

  [[nodiscard]] std::uint64_t size() const override { return count_; }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    Item& data = out.item(0);
    data.own(bytes_);
    fill_synthetic(index, std::as_writable_bytes(std::span(data.storage)));
    return {};
  }
  [[nodiscard]] std::int64_t label(std::uint64_t) const override { return 0; }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    return fmt::format("synthetic/{}", index);
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return classes_; }
  [[nodiscard]] std::uint64_t fingerprint() const override {
    const std::uint64_t numbers[2] = {count_, bytes_};
    return XXH3_64bits_withSeed(numbers, sizeof numbers, 0x53594E5448455449);  // differs from every folder's
  }

 private:
  const std::uint64_t count_, bytes_;
  const std::vector<std::string> classes_{"synthetic"};
  const std::vector<SourceField> fields_{{.name = "data",
                                          .content = Content::kValues,
                                          .dtype = DType::kUInt8,
                                          .shape = {static_cast<std::int64_t>(bytes_)}}};
};

}  // namespace

void fill_synthetic(std::uint64_t index, std::span<std::byte> row) {
  const std::size_t head = std::min(row.size(), sizeof index);
  std::memcpy(row.data(), &index, head);
  std::memset(row.data() + head, 0, row.size() - head);
}

Result<std::shared_ptr<const Source>> make_synthetic(std::uint64_t count, std::uint64_t bytes) {
  if (count == 0 || bytes == 0)
    return fail(ErrorCode::kConfigInvalid, "a synthetic source needs a count and bytes of at least 1");
  return std::make_shared<Synthetic>(count, bytes);
}

namespace {

struct SyntheticOptions {
  std::uint64_t count = 0, bytes = 0;

  static described::Description<SyntheticOptions> description() {
    using Self = SyntheticOptions;
    return {
        "synthetic",
        "Rows with the sample's number and zeros, without files. Measures the cost of the transport alone.",
        {described::required("count", &Self::count, described::integer<std::uint64_t>(1, 1'000'000'000'000)),
         described::required("bytes", &Self::bytes, described::integer<std::uint64_t>(1, 1'073'741'824))}};
  }
};

}  // namespace

namespace types {
SourceType synthetic() {
  return source_type<SyntheticOptions>({.cache = false, .io = false, .images = false},
                                       [](const SyntheticOptions& options, const OpenContext&) {
                                         return make_synthetic(options.count, options.bytes);
                                       });
}
}  // namespace types

}  // namespace headrace::server::source
