// `headrace schema`: the JSON Schema of configurations, for editors and for configs/headrace.schema.json.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "server/verbs/verbs.h"

namespace headrace::server::verbs {

void add_schema(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("schema", "Print the JSON Schema of configurations");
  verb->callback([&exit_code] {
    const std::string text = config::schema_text();
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
      exit_code = report({ErrorCode::kEnvironment,
                          fmt::format("standard output cannot be written: {}", std::strerror(errno))});
  });
}

}  // namespace headrace::server::verbs
