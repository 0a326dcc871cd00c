// The state of a BatchView: a leased slot, a private copy of one, or a batch that this process made.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "clientlib/client/attachment.h"
#include "clientlib/client/buffer_pool.h"
#include "clientlib/ring/layout.h"
#include "clientlib/ring/slot_layout.h"
#include "headrace/client.h"

namespace headrace {

/// Immutable once made, except for what private_views.h changes. Any thread may destroy it. Its destructor
/// ends the lease (SYNC ack); in a forked child it does nothing.
struct BatchView::Lease {
  ~Lease();

  /// A lease on the granted slot. `own`: with a copy-on-write view, which the loop may write to.
  static std::shared_ptr<Lease> on_slot(const std::shared_ptr<client::Attachment>& attachment,
                                        const ring::Grant& grant, bool own);
  /// A copy of the slot's rows; the grant is acked at once.
  static std::shared_ptr<Lease> copy_of(const client::Attachment& attachment, const ring::Grant& grant,
                                        const std::shared_ptr<client::BufferPool>& pool);

  /// A batch in the memory of its maker; nothing is leased. `slot` is a view of `memory`.
  static std::shared_ptr<Lease> on_memory(std::shared_ptr<const void> memory, const ring::SlotMemory& slot,
                                          std::shared_ptr<const std::vector<FieldSpec>> fields,
                                          const Cursor& batch, std::uint32_t rows, std::uint32_t valid_rows);

  struct Field {
    const std::byte* values = nullptr;
    std::shared_ptr<client::PooledBuffer> copy;  ///< null: `values` point into the slot or into `memory`
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
  std::optional<std::uint64_t> faults;  ///< what RingReader::freshen returned; unused by copies
  std::shared_ptr<const void> memory;   ///< null: the batch came from a server
  // Private copies only.
  std::vector<ring::RowDesc> row_copies;
  std::vector<std::vector<std::int64_t>> offset_copies;
  // Copy-on-write views only.
  std::shared_ptr<ring::RingReader> mapping;  ///< keeps `pages` mapped; null: not a copy-on-write view
  std::span<std::byte> pages;
  bool settled = false;  ///< all pages are this process's own
};

}  // namespace headrace
