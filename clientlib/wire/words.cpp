#include "clientlib/wire/words.h"

#include <array>
#include <utility>

namespace headrace::wire {
namespace {

template <class T, std::size_t N>
using Words = std::array<std::pair<T, std::string_view>, N>;

constexpr Words<Join, 4> kJoins{{{Join::kDefault, "default"},
                                 {Join::kNow, "now"},
                                 {Join::kEpochStart, "epoch_start"},
                                 {Join::kCursor, "cursor"}}};
constexpr Words<Delivery, 2> kDeliveries{{{Delivery::kBroadcast, "broadcast"}, {Delivery::kShard, "shard"}}};
constexpr Words<LastBatch, 3> kLast{
    {{LastBatch::kShort, "short"}, {LastBatch::kPad, "pad"}, {LastBatch::kDrop, "drop"}}};
constexpr Words<FieldKind, 2> kKinds{{{FieldKind::kDense, "dense"}, {FieldKind::kRagged, "ragged"}}};
constexpr Words<Move::Kind, 4> kMoves{{{Move::Kind::kCrop, "crop"},
                                       {Move::Kind::kHorizontalFlip, "horizontal_flip"},
                                       {Move::Kind::kVerticalFlip, "vertical_flip"},
                                       {Move::Kind::kTurn, "turn"}}};
constexpr Words<pixels::PaddingMode, 4> kPaddings{{{pixels::PaddingMode::kConstant, "constant"},
                                                   {pixels::PaddingMode::kEdge, "edge"},
                                                   {pixels::PaddingMode::kReflect, "reflect"},
                                                   {pixels::PaddingMode::kSymmetric, "symmetric"}}};
constexpr Words<pixels::PixelLayout, 2> kLayouts{
    {{pixels::PixelLayout::kNchw, "NCHW"}, {pixels::PixelLayout::kNhwc, "NHWC"}}};

template <class T, std::size_t N>
std::string_view find_word(const Words<T, N>& words, T value) {
  for (const auto& [entry, word] : words)
    if (entry == value) return word;
  return "unknown";
}

template <class T, std::size_t N>
std::optional<T> find_value(const Words<T, N>& words, std::string_view word) {
  for (const auto& [value, entry] : words)
    if (entry == word) return value;
  return std::nullopt;
}

}  // namespace

std::string_view word_of(Join join) {
  return find_word(kJoins, join);
}
std::string_view word_of(Delivery delivery) {
  return find_word(kDeliveries, delivery);
}
std::string_view word_of(LastBatch last) {
  return find_word(kLast, last);
}
std::string_view word_of(FieldKind kind) {
  return find_word(kKinds, kind);
}
std::string_view word_of(Move::Kind kind) {
  return find_word(kMoves, kind);
}
std::string_view word_of(pixels::PaddingMode padding) {
  return find_word(kPaddings, padding);
}
std::string_view word_of(pixels::PixelLayout layout) {
  return find_word(kLayouts, layout);
}
std::optional<Join> join_from_word(std::string_view word) {
  return find_value(kJoins, word);
}
std::optional<Delivery> delivery_from_word(std::string_view word) {
  return find_value(kDeliveries, word);
}
std::optional<LastBatch> last_from_word(std::string_view word) {
  return find_value(kLast, word);
}
std::optional<FieldKind> kind_from_word(std::string_view word) {
  return find_value(kKinds, word);
}
std::optional<Move::Kind> move_from_word(std::string_view word) {
  return find_value(kMoves, word);
}
std::optional<pixels::PaddingMode> padding_from_word(std::string_view word) {
  return find_value(kPaddings, word);
}
std::optional<pixels::PixelLayout> layout_from_word(std::string_view word) {
  return find_value(kLayouts, word);
}

}  // namespace headrace::wire
