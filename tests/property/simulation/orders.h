// Orders for batches that other processes make: rows come, or come late, twice, wrong, or never.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "clientlib/base/unique_fd.h"
#include "server/exec/remote_batch.h"
#include "tests/property/simulation/record.h"
#include "tests/property/simulation/rows.h"

namespace headrace::testing {

class SimulatedOrders final : public server::exec::RemoteOrders {
 public:
  /// `most`: orders under way at once. All references must outlive it.
  SimulatedOrders(SimulatedRows& rows, Record& record, std::size_t most);

  [[nodiscard]] bool has_room() const override;
  std::shared_ptr<server::exec::RemoteBatch> order(std::uint64_t epoch, const BatchRows& rows,
                                                   std::uint32_t ready) override;
  /// Something happens to one of the orders.
  void step(Chance& chance);
  /// Nothing more comes.
  void lose_all();
  /// Orders that were not released.
  [[nodiscard]] std::uint64_t open() const { return made_ - *released_; }

 private:
  /// A batch's rows in the memory of their maker.
  struct Memory {
    std::vector<std::byte> x, y, label;
    std::vector<std::uint64_t> samples;
    std::vector<std::uint8_t> replaced;
  };
  struct Order {
    std::uint64_t epoch;
    BatchRows rows;
    std::shared_ptr<server::exec::RemoteBatch> batch;
    std::shared_ptr<Memory> memory;
    bool arrived = false;
  };
  void connect();
  static void overwrite(Memory& memory);  ///< it is somebody else's now
  void make(const Order& order, bool wrong, Memory& memory);
  void arrive(Order& order, bool wrong);

  SimulatedRows& rows_;
  Record& record_;
  const std::size_t most_;
  UniqueFd ours_, theirs_;
  std::shared_ptr<const server::exec::ProcessMemory> process_;
  std::vector<Order> orders_;
  std::uint64_t made_ = 0;
  std::shared_ptr<std::uint64_t> released_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace headrace::testing
