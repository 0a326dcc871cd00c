// What a BatchView holds: a leased slot, or a private copy of one.
#pragma once

#include <memory>
#include <vector>

#include "clientlib/client/attachment.h"
#include "clientlib/ring/layout.h"
#include "headrace/client.h"

namespace headrace {

/// Immutable once made; destroyed by any thread. Its end is the lease's end (SYNC ack); in a forked child it
/// does nothing.
struct BatchView::Lease {
  ~Lease();

  /// The granted slot itself.
  static std::shared_ptr<Lease> on_slot(std::shared_ptr<client::Attachment> attachment,
                                        const ring::Grant& grant);
  /// A copy of the slot's rows; the grant is acked at once.
  static std::shared_ptr<Lease> copy_of(const client::Attachment& attachment, const ring::Grant& grant);

  struct Field {
    const std::byte* values = nullptr;
    std::span<const std::int64_t> offsets;
    std::int64_t count = 0;  ///< rows, or total values if ragged
  };

  std::shared_ptr<client::Attachment> attachment;  ///< null: a private copy
  ring::Grant grant{};
  std::uint32_t rows = 0;
  std::uint32_t valid_rows = 0;
  const ring::RowDesc* row = nullptr;
  std::shared_ptr<const std::vector<FieldSpec>> specs;
  std::vector<Field> fields;
  std::vector<std::byte> memory;  ///< of a private copy
};

}  // namespace headrace
