#include "server/pack/record_input.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "server/source/fingerprint.h"
#include "server/source/labels.h"
#include "server/store/field_json.h"
#include "server/store/record.h"

namespace headrace::server::pack {
namespace {

using nlohmann::json;
using source::Content;
using source::SourceField;

constexpr int kVersion = 1;
constexpr std::size_t kLongestHeader = std::size_t{64} << 20;
constexpr std::uint32_t kLongestText = 4096;
constexpr std::size_t kMostFields = 64;
/// LMDB keeps a value's size in 32 bits.
constexpr std::uint64_t kLargestSample = std::uint64_t{3} << 30;
constexpr std::size_t kStep = std::size_t{4} << 20;
constexpr int kPollMs = 100;

struct SampleHead {
  std::uint64_t index = 0;
  std::int64_t label = 0;
  std::uint32_t name_bytes = 0;
  std::uint32_t kind = 0;
};
constexpr std::uint32_t kEnd = 0, kSample = 1, kBad = 2;
struct FieldHead {
  std::uint64_t bytes = 0;
  std::uint32_t height = 0, width = 0;
};
static_assert(sizeof(SampleHead) == 24 && sizeof(FieldHead) == 16);

struct Notify {
  std::condition_variable& all;
  ~Notify() { all.notify_all(); }
};

/// Empty: nothing is wrong.
std::string wrong_with(const std::vector<SourceField>& fields, bool labelled) {
  if (fields.empty() || fields.size() > kMostFields)
    return fmt::format("expected 1 to {} fields", kMostFields);
  std::set<std::string> names;
  for (const SourceField& field : fields) {
    if (!std::all_of(field.name.begin(), field.name.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }))
      return fmt::format("field `{}`: names are of a to z, 0 to 9 and _", field.name);
    if (labelled && field.name == "label")
      return "field `label` is the class: leave it out, each sample has it";
    if (!names.insert(field.name).second) return fmt::format("field `{}` comes twice", field.name);
    if (field.mask && (!field.is_image() || field.channels != 1))
      return fmt::format("field `{}`: a mask is an image of one channel", field.name);
    if (!field.is_image() && std::find(field.shape.begin(), field.shape.end(), 0) != field.shape.end())
      return fmt::format("field `{}`: its shape has a 0", field.name);
  }
  return {};
}

std::uint64_t hash_of(const InputSample& sample) {
  source::Fingerprint hash;
  hash.add(static_cast<std::uint64_t>(sample.label)).add(std::string_view(sample.bad));
  // A bad sample's items are left over from another sample.
  if (!sample.bad.empty()) return hash.value();
  for (const source::Item& item : sample.sample.items)
    hash.add(item.bytes.size()).add(static_cast<std::uint64_t>(item.pixels.width)).add(item.bytes);
  return hash.value();
}

/// Throws json's errors.
Result<store::Meta> read_header(const json& header) {
  const auto refuse = [](const std::string& why) { return fail(ErrorCode::kBadMessage, why); };
  if (header.at("headrace").get<std::string>() != "records") return refuse("it describes something else");
  if (const int version = header.at("version").get<int>(); version != kVersion)
    return refuse(fmt::format("its version is {}; this program reads {}", version, kVersion));
  store::Meta meta;
  meta.streamed = true;
  meta.count = header.value("count", std::uint64_t{0});
  if (header.contains("count") && meta.count == 0) return refuse("count 0: there is nothing to pack");
  meta.labelled = header.value("labelled", false);
  meta.classes = header.value("classes", std::vector<std::string>());
  if (!meta.labelled && !meta.classes.empty()) return refuse("classes without `labelled`");
  source::Fingerprint promised;
  for (const json& entry : header.at("fields")) {
    auto field = store::field_from_json(entry);
    if (!field) return refuse(field.error().message);
    promised.add(std::string_view(store::to_json(*field).dump()));
    meta.fields.push_back(std::move(*field));
  }
  if (const std::string wrong = wrong_with(meta.fields, meta.labelled); !wrong.empty()) return refuse(wrong);
  promised.add(std::uint64_t{meta.labelled});
  for (const std::string& name : meta.classes) promised.add(std::string_view(name));
  promised.add(std::string_view(header.value("identity", std::string())));
  meta.source_fingerprint = promised.value();
  return meta;
}

}  // namespace

Result<void> PipeReader::refill() {
  begin_ = end_ = 0;
  while (!stop_) {
    pollfd wait{fd_, POLLIN, 0};
    if (::poll(&wait, 1, kPollMs) <= 0) continue;
    const auto got = ::read(fd_, buffer_.data(), buffer_.size());
    if (got >= 0) {
      end_ = static_cast<std::size_t>(got);
      return {};
    }
    if (errno != EINTR && errno != EAGAIN)
      return fail(ErrorCode::kEnvironment, fmt::format("the pipe cannot be read: {}", std::strerror(errno)));
  }
  return {};
}

Result<std::size_t> PipeReader::read(std::span<std::uint8_t> out) {
  std::size_t got = 0;
  while (got < out.size()) {
    if (begin_ == end_) {
      if (auto more = refill(); !more) return fail(more.error());
      if (begin_ == end_) break;
    }
    const std::size_t take = std::min(end_ - begin_, out.size() - got);
    std::memcpy(out.data() + got, buffer_.data() + begin_, take);
    begin_ += take;
    got += take;
  }
  return got;
}

Result<std::optional<std::string>> PipeReader::line(std::size_t most) {
  std::string out;
  while (out.size() <= most) {
    if (begin_ == end_) {
      if (auto more = refill(); !more) return fail(more.error());
      if (begin_ == end_) return std::nullopt;
    }
    const auto* first = buffer_.data() + begin_;
    const auto* last = buffer_.data() + end_;
    const auto* newline = std::find(first, last, '\n');
    out.append(first, newline);
    begin_ += static_cast<std::size_t>(newline - first);
    if (newline == last) continue;
    ++begin_;
    return out;
  }
  return std::nullopt;
}

Result<std::unique_ptr<RecordInput>> RecordInput::open(int in, int out, const std::atomic<bool>& stop) {
  const auto refuse = [](const std::string& why) {
    return fail(ErrorCode::kBadMessage, fmt::format("the first line of the records: {}", why));
  };
  std::unique_ptr<RecordInput> input(new RecordInput(in, out, stop));
  auto line = input->pipe_.line(kLongestHeader);
  if (!line) return fail(line.error());
  if (!*line) return refuse("there is none; it is JSON, see server/pack/record_input.h");
  try {
    const json header = store::parse_description(**line);
    if (!header.is_object()) return refuse("it is not a JSON object");
    auto meta = read_header(header);
    if (!meta) return refuse(meta.error().message);
    input->meta_ = std::move(*meta);
  } catch (const json::parse_error&) {
    return refuse("it is not a JSON object");
  } catch (const json::exception& error) {
    return refuse(error.what());
  } catch (const std::invalid_argument& error) {
    return refuse(error.what());
  }
  return input;
}

Result<void> RecordInput::begin(std::uint64_t there, bool complete) {
  next_ = there;
  const std::string answer = json{{"next", there}, {"complete", complete}}.dump() + "\n";
  if (::write(out_, answer.data(), answer.size()) != static_cast<ssize_t>(answer.size()))
    return fail(ErrorCode::kEnvironment,
                "the reply to the first line of the records cannot be written: its reader is gone");
  return {};
}

Result<bool> RecordInput::read(std::uint64_t index, InputSample& out) {
  {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return over_ || next_ == index; });
    if (over_) return false;  // the thread that found the end reports why
    // Notifies the other threads even if read_next throws.
    const Notify others{turn_};
    over_ = true;
    auto there = read_next(out);
    over_ = !there || !*there;
    ++next_;
    if (!there && stop_) return false;
    if (over_) return there;
  }
  out.content_hash = hash_of(out);
  return true;
}

Error RecordInput::wrong(const std::string& what) const {
  return {ErrorCode::kBadMessage,
          fmt::format("the records, at sample {}: {}; what came before is kept: fix it, and run the same "
                      "headrace pack again",
                      next_, what)};
}

Result<void> RecordInput::fill(std::span<std::uint8_t> out, const char* what) {
  const auto got = pipe_.read(out);
  if (!got) return fail(got.error());
  if (*got < out.size()) return fail(wrong(fmt::format("they end {}", what)));
  return {};
}

Result<void> RecordInput::fill_text(std::string& out, std::size_t bytes, const char* what) {
  out.resize(bytes);
  return fill({reinterpret_cast<std::uint8_t*>(out.data()), out.size()}, what);
}

Result<bool> RecordInput::read_next(InputSample& out) {
  SampleHead head;
  heads_.resize(sizeof head);
  if (auto got = fill(heads_, "before their end mark"); !got) return fail(got.error());
  std::memcpy(&head, heads_.data(), sizeof head);
  if (head.kind > kBad) return fail(wrong("its head is invalid"));
  if (head.index != next_) return fail(wrong(fmt::format("its index is {}", head.index)));
  if (head.kind == kEnd) {
    if (meta_.count != 0 && meta_.count != next_)
      return fail(wrong(fmt::format("they end, but {} were announced", meta_.count)));
    return false;
  }
  if (meta_.count != 0 && next_ >= meta_.count)
    return fail(wrong(fmt::format("it is one more than the {} that were announced", meta_.count)));
  if (head.name_bytes > kLongestText)
    return fail(wrong(fmt::format("its text has {} bytes, the limit is {}", head.name_bytes, kLongestText)));
  out.label = meta_.labelled ? head.label : 0;
  if (meta_.labelled && (head.label < 0 || head.label >= source::label_limit(meta_.classes)))
    return fail(wrong(source::label_out_of_range("its label", head.label, meta_.classes)));

  out.bad.clear();
  if (head.kind == kBad) {
    out.name = std::to_string(next_);
    if (head.name_bytes == 0) return fail(wrong("it is bad, but does not say why"));
    if (auto got = fill_text(out.bad, head.name_bytes, "within a reason"); !got) return fail(got.error());
    return true;
  }
  heads_.resize(meta_.fields.size() * sizeof(FieldHead));
  if (auto got = fill(heads_, "within a head"); !got) return fail(got.error());
  if (auto got = fill_text(out.name, head.name_bytes, "within a name"); !got) return fail(got.error());
  std::uint64_t bytes = 0;
  for (std::size_t f = 0; f < meta_.fields.size(); ++f) {
    const auto field = std::span(heads_).subspan(f * sizeof(FieldHead), sizeof(FieldHead));
    if (auto got = read_field(meta_.fields[f], field, out.sample.item(f)); !got) return fail(got.error());
    bytes += out.sample.items[f].bytes.size();
    if (bytes > kLargestSample) return fail(wrong(fmt::format("it has more than {} bytes", kLargestSample)));
  }
  return true;
}

Result<void> RecordInput::read_field(const SourceField& field, std::span<const std::uint8_t> from,
                                     source::Item& out) {
  FieldHead head;
  std::memcpy(&head, from.data(), sizeof head);
  const auto refuse = [&](const std::string& why) {
    return fail(wrong(fmt::format("field `{}`: {}", field.name, why)));
  };
  const std::uint64_t one = store::value_bytes(field);
  if (head.bytes > store::kMostUnpacked)
    return refuse(fmt::format("{} bytes exceed the limit of {}", head.bytes, store::kMostUnpacked));
  if (field.content == Content::kValues && head.bytes != one)
    return refuse(fmt::format("it has {} bytes, and its shape {}", head.bytes, one));
  if (field.content == Content::kRagged && head.bytes % one != 0)
    return refuse(fmt::format("{} bytes are no whole number of values of {}", head.bytes, one));
  out.pixels = {.width = 0, .height = 0, .channels = field.channels, .planar = false};
  if (field.content == Content::kPixels) {
    const auto fits = [](std::uint32_t side, std::int32_t all) {
      return side >= 1 && side <= decode::kMaxSide && (all == 0 || side == static_cast<std::uint32_t>(all));
    };
    if (!fits(head.height, field.height) || !fits(head.width, field.width))
      return refuse(fmt::format("{} x {} is not the size of its images", head.height, head.width));
    if (std::uint64_t{head.height} * head.width * static_cast<std::uint64_t>(field.channels) != head.bytes)
      return refuse(fmt::format("{} x {} pixels of {} channels are not {} bytes", head.height, head.width,
                                field.channels, head.bytes));
    out.pixels.height = static_cast<std::int32_t>(head.height);
    out.pixels.width = static_cast<std::int32_t>(head.width);
  } else if (head.height != 0 || head.width != 0) {
    return refuse("only pixels have a size");
  }
  // Allocate only as bytes arrive: the announced size is not trusted.
  out.own(0);
  while (out.storage.size() < head.bytes) {
    const std::size_t had = out.storage.size();
    out.own(had + std::min<std::uint64_t>(head.bytes - had, std::max(kStep, had)));
    if (auto got = fill(std::span(out.storage).subspan(had), "within a field"); !got) return got;
  }
  return {};
}

}  // namespace headrace::server::pack
