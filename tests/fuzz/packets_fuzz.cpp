// Packets of the local sockets: clients that attach (server/session/sessions.h), the feeder of a stream
// (feeder.h), the bridge to other nodes (bridge.h). Input: 0: attach, 1: feed, 2: bridge; then what that
// function below says.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "tests/engine_fixture.h"
#include "tests/fuzz/bridge_rows.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/quiet.h"
#include "tests/fuzz/sockets.h"

#include "server/assembly/assemble.h"
#include "server/session/bridge.h"
#include "server/session/feeder.h"

namespace headrace::server::session {
namespace {

using namespace std::chrono_literals;

/// The lowest descriptor that is not in use.
int next_descriptor() {
  return UniqueFd(::dup(STDERR_FILENO)).get();
}

std::vector<UniqueFd> make_descriptors(fuzz::Input& input) {
  std::vector<UniqueFd> fds(input.take<std::uint8_t>() % (ring::kMaxFds + 2));
  for (UniqueFd& fd : fds) switch (input.take<std::uint8_t>() % 4) {
      case 0:
        fd.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
        break;
      case 1:
        fd.reset(::eventfd(1, EFD_CLOEXEC));
        break;  // readable: as if the client's process had ended
      case 2:
        fd.reset(::memfd_create("x", MFD_CLOEXEC));
        break;
      default:
        fd.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    }
  return fds;
}

/// Sends the next piece and descriptors. A piece that begins with a byte 1: the attach packet with `token`,
/// and the rest of the piece.
void send_attach(fuzz::Input& input, const UniqueFd& socket, const std::string& token) {
  std::string packet(fuzz::text_of(input.take_piece()));
  if (packet.starts_with('\1')) packet = std::string(wire::kAttachHello) + token + packet.substr(1);
  const auto fds = make_descriptors(input);
  std::vector<int> numbers;
  for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
  fuzz::send_any(socket, packet, numbers);
}

/// Input: for each packet a piece, and the descriptors that come with it.
void attach(fuzz::Input& input) {
  static const auto engine = testing::start_engine({testing::synthetic_stream("s", 64, 8, 2)}, 1);
  static fuzz::AttachSocket server(*engine);
  const int before = next_descriptor();
  const auto opened =
      server.sessions().open({.stream = "s", .group = "g", .client = "c"}, ::geteuid(), ring::monotonic_ns());
  require(opened.has_value(), "a stream can be opened");
  {
    const UniqueFd socket = fuzz::connect_to(server.path());
    send_attach(input, socket, opened->token);
    const auto answer = server.answer(socket);
    require(answer || answer.error().code == ErrorCode::kServerLost, "a peer is answered or disconnected");
    if (answer) {
      const bool attached = answer->bytes.starts_with("ok ");
      require(attached ? answer->fds.size() == 4 : answer->bytes.starts_with("error "),
              "an answer is well formed");
    }
    while (!input.empty()) {
      send_attach(input, socket, opened->token);
      server.serve();
    }
  }
  server.forget(0);
  require(next_descriptor() == before, "no descriptor of a peer is left open");
}

/// Reads packets up to the end of the connection.
void read_to_end(const UniqueFd& socket) {
  for (;;) {
    const auto packet = ring::receive_packet(socket.get(), 20s);
    if (!packet) return require(packet.error().code == ErrorCode::kServerLost, "a connection ends");
    require(nlohmann::json::parse(packet->bytes, nullptr, false).is_object(), "a packet is an object");
  }
}

/// Reads what has been fed so far: at most two batches.
void read_fed(testing::RingClient& client, std::uint64_t& next) {
  const auto grant = client.next(1ms);
  if (!grant) return;
  require(grant->epoch == 0 && grant->batch == next++, "fed batches come in order");
  const auto& slot = client.reader().slot(grant->slot);
  require(slot.rows > 0 && slot.rows <= client.reader().row_capacity(), "a fed batch has its rows");
  for (std::size_t f = 0; f < client.reader().fields().size(); ++f) {
    if (client.reader().fields()[f].kind == FieldKind::kDense) continue;
    const auto* offsets = client.reader().offsets(grant->slot, f);
    for (std::uint32_t row = 0; row < slot.rows; ++row)
      require(offsets[row] >= 0 && offsets[row] <= offsets[row + 1], "offsets of a fed batch ascend");
  }
  client.reader().ack(*grant);
}

/// Input: a piece with the first packet, one with patches of the shared memory, then packets.
void feed(fuzz::Input& input) {
  static const TempFolder folder;
  static const auto config =
      config::parse(
          "server: {directory: /run/x, threads: 1, metrics: off}\n"
          "sources: {f: {type: feed, samples: 12, batch_size: 4, fields: [{name: x, dtype: int32}, {name: t, "
          "dtype: uint8, most_values: 16}]}}\n"
          "streams: {train: {source: f, ring: {prefetch: 2, max_leases: 2}}}\n",
          "x.yaml")
          .value();
  auto setups = assembly::assemble(config).value().streams;
  const auto source = setups.at(0).feed;
  const auto engine = testing::start_engine(std::move(setups), 1);
  testing::RingClient client(*engine, "train", "c");
  const auto feeder = Feeder::start(source, folder.path(), *engine, 0).value();
  const UniqueFd socket = fuzz::connect_to(folder.path() / "feed-f.sock");
  fuzz::send_any(socket, fuzz::text_of(input.take_piece()));
  const auto answer = ring::receive_packet(socket.get(), 20s);
  if (!answer)
    return require(answer.error().code == ErrorCode::kServerLost, "a peer is answered or disconnected");
  const auto patches = input.take_piece();
  if (!answer->fds.empty()) {
    const std::size_t bytes = source->slot_bytes() * source->options().slots;
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, answer->fds[0].get(), 0);
    require(memory != MAP_FAILED, "a feed's memory can be mapped");
    fuzz::Input of_memory(patches.data(), patches.size());
    fuzz::patch(of_memory, {static_cast<std::uint8_t*>(memory), bytes});
    ::munmap(memory, bytes);
  }
  std::uint64_t next = 0;
  while (!input.empty()) {
    fuzz::send_any(socket, fuzz::text_of(input.take_piece()));
    read_fed(client, next);
  }
  ::shutdown(socket.get(), SHUT_WR);
  read_to_end(socket);
}

/// Reads packets until the server takes the bridge, or disconnects it.
void await_verdict(const UniqueFd& socket, const BridgeOrders& orders) {
  const auto late = std::chrono::steady_clock::now() + 20s;
  while (!orders.figures().connected && std::chrono::steady_clock::now() < late) {
    const auto packet = ring::receive_packet(socket.get(), 1ms);
    if (!packet && packet.error().code == ErrorCode::kServerLost) return;
  }
}

/// Input: a piece with the first packet, then for each packet a byte (1: wait for an order, and make its
/// rows; 2: make wrong ones) and a piece, in which BridgeRows replaces names.
void bridge(fuzz::Input& input) {
  static const TempFolder folder;
  static const auto engine = testing::start_engine({testing::synthetic_stream("s", 640, 8, 2)}, 1);
  static const auto orders = std::make_shared<BridgeOrders>();
  static const auto bridge = Bridge::start(folder.path(), *engine, orders).value();
  const auto& maker = engine->stream(0).maker();
  fuzz::BridgeRows rows(maker);
  const UniqueFd socket = fuzz::connect_to(folder.path() / "bridge.sock");
  fuzz::send_any(socket, fuzz::text_of(input.take_piece()));
  await_verdict(socket, *orders);
  testing::RingClient client(*engine, "s", "c");  // orders are given for its batches
  while (!input.empty()) {
    const auto how = input.take<std::uint8_t>() % 3;
    if (how != 0) rows.make_for_order(socket, how == 2);
    fuzz::send_any(socket, rows.replaced_in(fuzz::text_of(input.take_piece())));
    if (const auto grant = client.next(1ms)) {
      fuzz::require_rows(maker, client.reader(), *grant);
      client.reader().ack(*grant);
    }
  }
  ::shutdown(socket.get(), SHUT_WR);
  read_to_end(socket);
  // The server shuts the connection down first, and then takes the orders back.
  const auto late = std::chrono::steady_clock::now() + 20s;
  while (orders->figures().connected && std::chrono::steady_clock::now() < late) std::this_thread::yield();
  require(!orders->figures().connected, "a bridge that disconnected is not connected");
  if (const auto grant = client.next()) fuzz::require_rows(maker, client.reader(), *grant);
}

}  // namespace
}  // namespace headrace::server::session

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  fuzz::log_nothing();
  fuzz::Input input(data, size);
  void (*const kinds[])(fuzz::Input&) = {server::session::attach, server::session::feed,
                                         server::session::bridge};
  kinds[input.take<std::uint8_t>() % 3](input);
  return 0;
}
