// Makes a described struct an Op, for the files of this folder.
#pragma once

#include <memory>

#include "server/described/described.h"
#include "server/transform/op.h"

namespace headrace::server::transform {

/// `T` is a struct with its arguments as members and a T::description().
template <class T>
class DescribedOp : public Op {
 public:
  [[nodiscard]] std::string_view name() const final { return described::description_of<T>().name; }
  [[nodiscard]] nlohmann::json arguments() const final {
    return described::write(static_cast<const T&>(*this));
  }
};

struct OpType {
  std::string name;
  described::Schema schema;  ///< of the arguments
  Transform (*make)(const nlohmann::json& arguments, const described::Reading& reading) = nullptr;
};

template <class T>
OpType op_type() {
  return {.name = described::description_of<T>().name,
          .schema = described::schema_of<T>(),
          .make = [](const nlohmann::json& arguments, const described::Reading& reading) -> Transform {
            auto out = std::make_shared<T>();
            described::read_into(*out, arguments, reading);
            return out;
          }};
}

}  // namespace headrace::server::transform
