#include "server/described/names.h"

namespace headrace::server::described {

Codec<std::string> name() {
  return named("name", text("^[A-Za-z][A-Za-z0-9_-]{0,46}$",
                            "a name of 1 to 47 letters, digits, _ and -, a letter first"));
}

Codec<std::string> field() {
  return named("field", text("^[a-z][a-z0-9_]{0,46}$",
                             "a field's name: 1 to 47 lower-case letters, digits and _, a letter first"));
}

Codec<std::vector<std::string>> fields() {
  return named("fields", expecting("a list of fields' names", list(field(), 1)));
}

Codec<std::uint64_t> seed() {
  return named("seed", integer<std::uint64_t>(0, INT64_MAX));
}

Codec<std::uint32_t> count() {
  return named("count", integer<std::uint32_t>(1, 1'000'000));
}

Codec<double> fraction() {
  return named("fraction", number(0, 1));
}

Codec<DType> dtype(const std::vector<DType>& some) {
  std::vector<std::pair<const char*, DType>> words;
  words.reserve(some.size());
  for (const DType each : some) words.emplace_back(name_of(each).data(), each);
  return word(std::move(words));
}

Codec<std::string> class_name() {
  return named("class", expecting("the name of a class (in quotes if it looks like a number)", text()));
}

Codec<std::vector<std::string>> class_names() {
  auto out = named("classes", list(class_name(), 1));
  out.schema["description"] = "Names of labels 0, 1, ... Default: \"0\", \"1\", ...";
  return out;
}

}  // namespace headrace::server::described
