#include "tests/property/simulation/orders.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "clientlib/base/contract.h"

namespace headrace::testing {

using server::exec::ProcessMemory;
using server::exec::RemoteBatch;
using server::exec::RemoteRows;

SimulatedOrders::SimulatedOrders(SimulatedRows& rows, Record& record, std::size_t most)
    : rows_(rows), record_(record), most_(most) {
  if (most_ > 0) connect();
}

void SimulatedOrders::connect() {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a pair of sockets");
  ours_ = UniqueFd(ends[0]);
  theirs_ = UniqueFd(ends[1]);
  process_ = ProcessMemory::open(::getpid(), ours_.get()).value();
}

void SimulatedOrders::overwrite(Memory& memory) {
  for (auto* bytes : {&memory.x, &memory.y, &memory.label})
    std::fill(bytes->begin(), bytes->end(), std::byte{0xEE});
}

bool SimulatedOrders::has_room() const {
  return std::count_if(orders_.begin(), orders_.end(), [](const Order& order) {
           return order.batch->awaited();
         }) < static_cast<std::ptrdiff_t>(most_);
}

std::shared_ptr<RemoteBatch> SimulatedOrders::order(std::uint64_t epoch, const BatchRows& rows,
                                                    std::uint32_t /*ready*/) {
  if (!has_room()) return nullptr;
  ++made_;
  auto memory = std::make_shared<Memory>();
  // Its end calls it again after take_back(); then the memory is somebody else's.
  auto release = [memory, once = std::make_shared<bool>(false), released = released_](std::uint32_t) {
    overwrite(*memory);
    if (!std::exchange(*once, true)) ++*released;
  };
  Order order{.epoch = epoch,
              .rows = rows,
              .batch = std::make_shared<RemoteBatch>(std::move(release)),
              .memory = memory};
  orders_.push_back(order);
  return order.batch;
}

void SimulatedOrders::make(const Order& order, bool wrong, Memory& memory) {
  const std::uint32_t count = order.rows.rows;
  memory.x.resize(count * rows_.width());
  memory.y.resize(count * rows_.width());
  memory.label.resize(count * sizeof(std::int64_t));
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto& row = rows_.at(order.epoch, (order.rows.first + i) % rows_.samples());
    // Never the position's own sample: the server cannot know that this one is bad.
    const std::uint64_t sample = wrong ? (row.own + 1) % rows_.samples() : row.sample;
    memory.samples.push_back(sample);
    memory.replaced.push_back(row.replaced && !wrong ? 1 : 0);
    rows_.write(sample, &memory.x[i * rows_.width()], &memory.y[i * rows_.width()],
                &memory.label[i * sizeof(std::int64_t)]);
  }
}

void SimulatedOrders::arrive(Order& order, bool wrong) {
  Memory again;  // the first rows may be in use
  Memory& memory = order.arrived ? again : *order.memory;
  make(order, wrong, memory);
  const auto address = [](const auto& values) { return reinterpret_cast<std::uint64_t>(values.data()); };
  const RemoteRows from{.memory = process_,
                        .fields = {address(memory.x), address(memory.y), address(memory.label)},
                        .samples = address(memory.samples),
                        .replaced = address(memory.replaced)};
  const bool used = order.batch->arrive(from);
  record_.note(40, order.epoch, order.rows.first, used);
  if (order.arrived) {
    record_.fault(Fault::kOrderTwice);
    record_.check(!used, "rows were taken twice");
  } else if (!used) {
    record_.fault(Fault::kOrderLate);
  } else if (wrong) {
    record_.fault(Fault::kOrderWrong);
  }
  order.arrived = true;
}

void SimulatedOrders::step(Chance& chance) {
  if (orders_.empty()) return;
  const auto which = orders_.begin() + static_cast<std::ptrdiff_t>(chance.pick(orders_.size()));
  const std::uint64_t event = chance.pick(12);
  record_.note(41, event);
  if (event < 6) {
    if (!which->arrived) arrive(*which, event == 5);
  } else if (event == 6 && which->arrived) {
    arrive(*which, false);
  } else if (event == 7) {
    if (which->batch->make_here()) record_.fault(Fault::kOrderLost);
  } else if (event == 8) {
    ours_.reset(), theirs_.reset();
    for (const Order& order : orders_)
      if (order.arrived) overwrite(*order.memory);
    connect();
    record_.fault(Fault::kOrderCut);
  } else if (which->arrived || !which->batch->awaited()) {
    orders_.erase(which);
  }
}

void SimulatedOrders::lose_all() {
  for (Order& order : orders_)
    if (order.batch->make_here()) record_.fault(Fault::kOrderLost);
  orders_.clear();
}

}  // namespace headrace::testing
