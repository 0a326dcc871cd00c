// `headrace schema`: the JSON Schema of configurations, for editors and for configs/headrace.schema.json.
#include <cstdio>

#include "server/verbs/verbs.h"

namespace headrace::server::verbs {

void add_schema(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("schema", "Print the JSON Schema of configurations");
  verb->callback([&exit_code] {
    const std::string text = config::schema_text();
    exit_code = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 3;
  });
}

}  // namespace headrace::server::verbs
