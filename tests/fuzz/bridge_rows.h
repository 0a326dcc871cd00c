// The rows that a bridge's process offers to a server, right or wrong.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>

#include "clientlib/ring/ring_reader.h"
#include "server/exec/sample_maker.h"
#include "tests/fuzz/sockets.h"

namespace headrace::fuzz {

class BridgeRows {
 public:
  explicit BridgeRows(const server::exec::SampleMaker& maker) : maker_(maker) {}
  /// Waits a moment for an order and makes its rows, which stay where they are until the end of this object.
  void make_for_order(const UniqueFd& socket, bool wrong) {
    for (;;) {
      const auto packet = ring::receive_packet(socket.get(), std::chrono::milliseconds(100));
      if (!packet) return;
      const auto message = nlohmann::json::parse(packet->bytes, nullptr, false);
      if (!message.contains("order")) continue;
      order_ = message["order"].get<std::uint64_t>();
      return make(message, wrong);
    }
  }
  /// ORDER becomes the number of the last order; FIELDS, SAMPLES and REPLACED the addresses of its rows.
  [[nodiscard]] std::string replaced_in(std::string_view text) const {
    static const Made kNone{};
    const Made& made = made_.empty() ? kNone : made_.back();
    std::string out(text);
    const auto put = [&](std::string_view name, const std::string& value) {
      if (const auto at = out.find(name); at != std::string::npos) out.replace(at, name.size(), value);
    };
    put("ORDER", std::to_string(order_));
    put("FIELDS", nlohmann::json(addresses_of(made.fields)).dump());
    put("SAMPLES", std::to_string(address_of(made.samples.data())));
    put("REPLACED", std::to_string(address_of(made.replaced.data())));
    return out;
  }

 private:
  struct Made {
    std::vector<std::string> fields;
    std::vector<std::uint64_t> samples;
    std::vector<std::uint8_t> replaced;
  };

  static std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uint64_t>(data); }
  static std::vector<std::uint64_t> addresses_of(const std::vector<std::string>& fields) {
    std::vector<std::uint64_t> out;
    for (const std::string& field : fields) out.push_back(address_of(field.data()));
    return out;
  }
  void make(const nlohmann::json& order, bool wrong) {
    Made& made = made_.emplace_back();
    made.fields.resize(maker_.fields().size());
    for (std::uint32_t row = 0; row < order["rows"].get<std::uint32_t>(); ++row) {
      server::exec::LooseRow values(maker_);
      const auto shown = maker_.show(order["epoch"].get<std::uint64_t>(),
                                     order["first"].get<std::uint64_t>() + row, values.fields, scratch_);
      require(shown.has_value(), "a synthetic row can be made");
      for (std::size_t f = 0; f < made.fields.size(); ++f)
        made.fields[f].append(reinterpret_cast<const char*>(values.fields[f].dense), maker_.row_size(f));
      made.samples.push_back(shown->sample_index);
      made.replaced.push_back(shown->replaced);
    }
    if (wrong)
      for (char& value : made.fields[0]) value = static_cast<char>(~value);
  }

  const server::exec::SampleMaker& maker_;
  server::exec::RowScratch scratch_;
  std::uint64_t order_ = 0;
  std::deque<Made> made_;
};

/// Whether a batch has the values that the server makes itself.
inline void require_rows(const server::exec::SampleMaker& maker, const ring::RingReader& reader,
                         const ring::Grant& grant) {
  server::exec::RowScratch scratch;
  const ring::SlotDesc& slot = reader.slot(grant.slot);
  for (std::uint32_t row = 0; row < slot.valid_rows; ++row) {
    server::exec::LooseRow values(maker);
    require(maker.show(slot.epoch, slot.position + row, values.fields, scratch).has_value(),
            "a synthetic row can be made");
    for (std::size_t f = 0; f < maker.fields().size(); ++f) {
      const std::size_t size = maker.row_size(f);
      require(std::memcmp(reader.values(grant.slot, f) + row * size, values.fields[f].dense, size) == 0,
              "a batch has the right values, whatever a bridge offers");
    }
  }
}

}  // namespace headrace::fuzz
