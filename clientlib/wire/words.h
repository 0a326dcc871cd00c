// The words for enumerations on the wire and in configuration files.
#pragma once

#include <optional>
#include <string_view>

#include "headrace/stream_info.h"

namespace headrace::wire {

std::string_view word_of(Join join);                    ///< default now epoch_start cursor
std::string_view word_of(Delivery delivery);            ///< broadcast shard
std::string_view word_of(LastBatch last);               ///< short pad drop
std::string_view word_of(FieldKind kind);               ///< dense ragged
std::string_view word_of(Move::Kind kind);              ///< crop horizontal_flip vertical_flip turn
std::string_view word_of(pixels::PaddingMode padding);  ///< constant edge reflect symmetric
std::string_view word_of(pixels::PixelLayout layout);   ///< NCHW NHWC

std::optional<Join> join_from_word(std::string_view word);
std::optional<Delivery> delivery_from_word(std::string_view word);
std::optional<LastBatch> last_from_word(std::string_view word);
std::optional<FieldKind> kind_from_word(std::string_view word);
std::optional<Move::Kind> move_from_word(std::string_view word);
std::optional<pixels::PaddingMode> padding_from_word(std::string_view word);
std::optional<pixels::PixelLayout> layout_from_word(std::string_view word);

}  // namespace headrace::wire
