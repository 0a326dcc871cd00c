// Codecs of values that several parts of a configuration share.
#pragma once

#include "headrace/field.h"
#include "server/described/described.h"

namespace headrace::server::described {

/// The name of a source, a stream or a part.
Codec<std::string> name();
/// The name of a field.
Codec<std::string> field();
Codec<std::vector<std::string>> fields();
Codec<std::uint64_t> seed();
Codec<std::uint32_t> count();
/// One of `some`.
Codec<DType> dtype(const std::vector<DType>& some);
/// From 0 to 1.
Codec<double> fraction();
/// The name of a class.
Codec<std::string> class_name();
/// Names of labels 0, 1, ...
Codec<std::vector<std::string>> class_names();

}  // namespace headrace::server::described
