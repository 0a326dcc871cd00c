// What a BatchView holds: a leased slot, or a private copy of one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "clientlib/client/attachment.h"
#include "clientlib/client/buffer_pool.h"
#include "clientlib/ring/layout.h"
#include "headrace/client.h"

namespace headrace {

/// Immutable once made, but for what private_views.h says; destroyed by any thread. Its end is the lease's
/// end (SYNC ack); in a forked child it does nothing.
struct BatchView::Lease {
  ~Lease();

  /// The granted slot itself. `own`: as a view that its holder may write to.
  static std::shared_ptr<Lease> on_slot(const std::shared_ptr<client::Attachment>& attachment,
                                        const ring::Grant& grant, bool own);
  /// A copy of the slot's rows; the grant is acked at once.
  static std::shared_ptr<Lease> copy_of(const client::Attachment& attachment, const ring::Grant& grant,
                                        const std::shared_ptr<client::BufferPool>& pool);

  struct Field {
    const std::byte* values = nullptr;
    std::shared_ptr<client::PooledBuffer> copy;  ///< null: the slot's values
    std::span<const std::int64_t> offsets;
    std::int64_t count = 0;  ///< rows, or total values if ragged
  };

  std::shared_ptr<client::Attachment> attachment;  ///< null: nothing is leased
  ring::Grant grant{};
  std::uint32_t rows = 0;
  std::uint32_t valid_rows = 0;
  const ring::RowDesc* row = nullptr;
  std::shared_ptr<const std::vector<FieldSpec>> specs;
  std::vector<Field> fields;
  std::optional<std::uint64_t> faults;  ///< RingReader::freshen, on a slot
  // Of a private copy.
  std::vector<ring::RowDesc> row_copies;
  std::vector<std::vector<std::int64_t>> offset_copies;
  // Of a view that may be written to, copy-on-write.
  std::shared_ptr<ring::RingReader> mapping;  ///< keeps `pages` where they are; null: this is none
  std::span<std::byte> pages;
  bool settled = false;  ///< all of them are this process's own
};

}  // namespace headrace
