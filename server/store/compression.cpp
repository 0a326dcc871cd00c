#include "server/store/compression.h"

#include <lz4.h>
#include <zstd.h>

#include <array>
#include <memory>

namespace headrace::server::store {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"none", "lz4", "zstd"};
constexpr int kZstdLevel = 3;

const char* chars(const std::uint8_t* bytes) {
  return reinterpret_cast<const char*>(bytes);
}
char* chars(std::uint8_t* bytes) {
  return reinterpret_cast<char*>(bytes);
}

}  // namespace

std::string_view name_of(Compression compression) {
  const auto i = static_cast<std::size_t>(compression);
  return i < kNames.size() ? kNames[i] : "unknown";
}

std::optional<Compression> compression_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Compression>(i);
  return std::nullopt;
}

bool compress(Compression how, std::span<const std::uint8_t> raw, std::vector<std::uint8_t>& out) {
  if (how == Compression::kNone || raw.empty()) return false;
  std::size_t size = 0;
  if (how == Compression::kLz4) {
    if (raw.size() > LZ4_MAX_INPUT_SIZE) return false;
    // Room for less than `raw`: compression that does not shrink it ends early.
    out.resize(raw.size());
    const int made = LZ4_compress_default(chars(raw.data()), chars(out.data()), static_cast<int>(raw.size()),
                                          static_cast<int>(out.size()) - 1);
    size = made > 0 ? static_cast<std::size_t>(made) : 0;
  } else {
    thread_local const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                                    &ZSTD_freeCCtx);
    if (!context) return false;
    out.resize(ZSTD_compressBound(raw.size()));
    const std::size_t made =
        ZSTD_compressCCtx(context.get(), out.data(), out.size(), raw.data(), raw.size(), kZstdLevel);
    size = ZSTD_isError(made) != 0U ? 0 : made;
  }
  if (size == 0 || size >= raw.size()) return false;
  out.resize(size);
  return true;
}

bool decompress(Compression how, std::span<const std::uint8_t> stored, std::span<std::uint8_t> out) {
  if (how == Compression::kLz4) {
    if (stored.size() > LZ4_MAX_INPUT_SIZE || out.size() > LZ4_MAX_INPUT_SIZE) return false;
    return LZ4_decompress_safe(chars(stored.data()), chars(out.data()), static_cast<int>(stored.size()),
                               static_cast<int>(out.size())) == static_cast<int>(out.size());
  }
  if (how != Compression::kZstd) return false;
  thread_local const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                                  &ZSTD_freeDCtx);
  return context && ZSTD_decompressDCtx(context.get(), out.data(), out.size(), stored.data(),
                                        stored.size()) == out.size();
}

}  // namespace headrace::server::store
