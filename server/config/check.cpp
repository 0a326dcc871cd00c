// What a schema cannot say: references between parts, and rules over several values.
#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "clientlib/base/nearest.h"
#include "server/config/check_composites.h"
#include "server/config/check_feed.h"
#include "server/config/check_paths.h"
#include "server/config/check_residence.h"
#include "server/config/check_sampler.h"
#include "server/config/check_storage.h"
#include "server/config/network.h"
#include "server/config/read.h"
#include "server/transform/op.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

class Checker {
 public:
  Checker(const Document& document, std::vector<Problem>& problems)
      : document_(document), problems_(problems) {
    for (const auto& problem : problems) wrong_.insert(problem.path);
  }

  // Whether the node or something below it has a problem already: then it is not read.
  [[nodiscard]] bool sound(const Pointer& at) const {
    const auto path = dotted(at);
    return std::none_of(wrong_.begin(), wrong_.end(), [&](const std::string& other) {
      return other == path || other.starts_with(path + ".") || other.starts_with(path + "[");
    });
  }

  void server(const ServerConfig& config);
  void source(const Pointer& at);
  void stream(const Pointer& at, const Config& config);

 private:
  [[nodiscard]] const json& value(const Pointer& at) const { return document_.value.at(at); }
  [[nodiscard]] bool has(const Pointer& at) const { return document_.value.contains(at); }
  void wrong(Problem problem) { problems_.push_back(std::move(problem)); }

  void split(const Pointer& split);
  void part(const Pointer& at, const StreamConfig& stream, const SourceConfig& source);
  void plan(const Pointer& at, const StreamConfig& stream, bool one_size);
  bool chain(const Pointer& at, transform::PlanConfig config, const std::string& field, bool one_size);
  void synthetic(const Pointer& at);
  void mix(const Pointer& at, const StreamConfig& stream);
  void sharing(const Pointer& at, const StreamConfig& stream);
  void duration(const Pointer& at);

  const Document& document_;
  std::vector<Problem>& problems_;
  std::set<std::string> wrong_;
};

void Checker::server(const ServerConfig& config) {
  const auto longest = config.directory / "control.sock";
  constexpr std::size_t kRoom = sizeof(sockaddr_un::sun_path) - 1;
  if (longest.string().size() > kRoom)
    wrong(document_.at_value(
        Pointer("/server/directory"),
        fmt::format("\"{}\" is too long: the path of a socket in it has {} bytes, and {} are possible",
                    config.directory.string(), longest.string().size(), kRoom)));
  for (const char* key : {"evict_after", "group_grace", "drain_timeout"}) duration(Pointer("/server") / key);
  constexpr std::chrono::seconds kShortest{1};  // clients beat every 0.4 s
  if (config.evict_after < kShortest)
    wrong(document_.at_value(
        Pointer("/server/evict_after"),
        fmt::format("{} is too short: clients give a sign of life twice a second; at least 1s",
                    value(Pointer("/server/evict_after")).dump())));
}

// The schema has seen to its form.
void Checker::duration(const Pointer& at) {
  if (has(at) && !parse_duration(value(at).get<std::string>()))
    wrong(document_.at_value(at, fmt::format("{} is longer than a year, which is 8760h", value(at).dump())));
}

void Checker::source(const Pointer& at) {
  if (value(at / "type") == "npy" && !has(at / "path") && !has(at / "fields"))
    wrong(document_.at_key(at, "needs path (an .npz file) or fields (a .npy file each)"));
  if (has(at / "of")) check_composite(document_, at, problems_);
  if (has(at / "split")) split(at / "split");
  check_storage(document_, at, problems_);
  check_network(document_, at, problems_);
}

void Checker::split(const Pointer& split) {
  std::vector<std::string> ways;
  for (const char* way : {"fractions", "classes", "lists"})
    if (has(split / way)) ways.emplace_back(way);
  if (ways.size() != 1) {
    wrong(document_.at_key(
        split, ways.empty() ? std::string("needs fractions, classes or lists")
                            : fmt::format("has {}; it takes one of them", fmt::join(ways, " and "))));
    return;
  }
  if (ways[0] == "fractions") {
    double sum = 0;
    for (const auto& fraction : value(split / "fractions")) sum += fraction.get<double>();
    if (sum > 1 + 1e-9)
      wrong(document_.at_value(split / "fractions",
                               fmt::format("the fractions add up to {:.6g}, more than 1", sum)));
  }
  if (ways[0] == "classes") {
    std::map<std::string, std::string> owner;
    for (const auto& [name, classes] : value(split / "classes").items()) {
      for (std::size_t i = 0; i < classes.size(); ++i) {
        const auto [before, fresh] = owner.emplace(classes[i].get<std::string>(), name);
        if (!fresh)
          wrong(document_.at_value(split / "classes" / name / std::to_string(i),
                                   fmt::format("class {} is in part \"{}\" already; parts are disjoint",
                                               classes[i].dump(), before->second)));
      }
    }
  }
}

void Checker::stream(const Pointer& at, const Config& config) {
  const auto source_name = has(at / "source") && value(at / "source").is_string()
                               ? value(at / "source").get<std::string>()
                               : std::string();
  const json& sources = document_.value.value("sources", json::object());
  const bool known = sources.is_object() && sources.contains(source_name);
  if (!source_name.empty() && sources.is_object() && !known) {
    std::vector<std::string> names;
    for (const auto& [name, ignored] : sources.items()) names.push_back(name);
    wrong(document_.at_value(
        at / "source",
        names.empty()
            ? fmt::format("there is no source \"{}\", nor any other", source_name)
            : fmt::format("there is no source \"{}\"; sources: {}", source_name, fmt::join(names, ", ")),
        nearest(source_name, names)));
  }
  if (!sound(at)) return;
  const auto& stream = config.streams.at(at.back());
  const auto source = config.sources.find(source_name);
  if (source != config.sources.end()) part(at, stream, source->second);
  if (source != config.sources.end() && source->second.feed() != nullptr) {
    check_fed(document_, at, config, problems_);
  } else if (source != config.sources.end() && !source->second.type->traits.images) {
    synthetic(at);
  } else if (source != config.sources.end() || has(at / "transforms")) {
    // Of a source that is wrong itself nothing is known that could be held against its streams.
    plan(at, stream, source == config.sources.end() || source->second.type->traits.one_size);
  }
  if (has(at / "mix")) mix(at, stream);
  sharing(at, stream);
  check_sampler(document_, at, stream, problems_);
  check_residence(document_, at, stream, problems_);
}

void Checker::part(const Pointer& at, const StreamConfig& stream, const SourceConfig& source) {
  const bool given = has(at / "part");
  if (!source.split) {
    if (given)
      wrong(document_.at_key(
          at / "part", fmt::format("source \"{}\" has no split, so no parts; leave this out, or split it",
                                   stream.source)));
    return;
  }
  const auto names = source::part_names(*source.split);
  if (!given) {
    wrong(document_.at_key(at, fmt::format("key \"part\" is missing: source \"{}\" is split into {}",
                                           stream.source, fmt::join(names, ", "))));
  } else if (std::find(names.begin(), names.end(), stream.part) == names.end()) {
    wrong(document_.at_value(at / "part",
                             fmt::format("source \"{}\" has no part \"{}\"; parts: {}", stream.source,
                                         stream.part, fmt::join(names, ", ")),
                             nearest(stream.part, names)));
  }
}

void Checker::synthetic(const Pointer& at) {
  for (const char* key :
       {"transforms", "output", "device", "derive", "mix", "warnings", "max_pixels", "resize_passes"})
    if (has(at / key))
      wrong(document_.at_key(at / key, "the source is synthetic and has no images; leave this out"));
}

void Checker::mix(const Pointer& at, const StreamConfig& stream) {
  const transform::MixConfig& mix = *stream.plan.mix;
  if (!mix.mixup_alpha && !mix.cutmix_alpha)
    wrong(document_.at_key(at / "mix", "needs mixup, cutmix or both of them"));
  if (mix.mixup_alpha && stream.plan.chain.output.dtype == DType::kUInt8)
    wrong(
        document_.at_key(at / "mix" / "mixup",
                         "gives fractions, which uint8 cannot hold; set output.dtype to float32, float16 or "
                         "bfloat16, or use cutmix alone"));
}

void Checker::plan(const Pointer& at, const StreamConfig& stream, bool one_size) {
  // What the source's images are is not known before it is opened; then all is compiled again.
  std::vector<std::string> fields = stream.plan.named();
  if (fields.empty()) fields.emplace_back();
  for (const std::string& field : fields)
    if (!chain(at, stream.plan.chain_of(field, false), field, one_size)) return;
}

bool Checker::chain(const Pointer& at, transform::PlanConfig config, const std::string& field,
                    bool one_size) {
  transform::Values values;
  for (const auto& transform : config.transforms) transform->add_to(values);
  if (!values.mean.empty()) config.channels = values.mean.size() == 1 ? 1 : 3;
  if (one_size) config.input = {transform::kLargestSide, transform::kLargestSide};
  std::optional<std::size_t> culprit;
  const auto compiled = transform::Plan::compile(config, &culprit);
  if (compiled) return true;
  auto message = compiled.error().message;
  if (constexpr std::string_view kLead = "transforms: "; message.starts_with(kLead))
    message.erase(0, kLead.size());
  if (!field.empty()) message = fmt::format("field {}: {}", field, message);
  const Pointer list = at / "transforms";
  wrong(culprit ? document_.at_value(list / std::to_string(*culprit), std::move(message))
                : document_.at_key(has(list) ? list : at, std::move(message)));
  return false;
}

void Checker::sharing(const Pointer& at, const StreamConfig& stream) {
  const auto& sharing = stream.sharing;
  for (const char* key : {"max_lag", "on_lag"})
    if (stream.delivery == Delivery::kShard && has(at / "sharing" / key))
      wrong(document_.at_key(
          at / "sharing" / key,
          "of broadcast streams only: the ranks of a shard stream share no slots; leave it out"));
  if (sharing.max_lag > stream.ring.prefetch)
    wrong(document_.at_value(
        at / "sharing" / "max_lag",
        fmt::format("{} is more than ring.prefetch, which is {}; a client cannot lag more than what is kept",
                    sharing.max_lag, stream.ring.prefetch)));
  if (sharing.wait_for > stream.ring.max_clients)
    wrong(document_.at_value(
        at / "sharing" / "wait_for",
        fmt::format("{} is more than ring.max_clients, which is {}; the first batch would never come",
                    sharing.wait_for, stream.ring.max_clients)));
  duration(at / "sharing" / "wait_timeout");
}

StreamPlaces places_of(const Document& document, const Pointer& at, std::size_t transforms) {
  StreamPlaces out{to_string(document.key_place(at)), to_string(document.value_place(at / "batch_size")), {}};
  for (std::size_t i = 0; i < transforms; ++i)
    out.transforms.push_back(to_string(document.value_place(at / "transforms" / std::to_string(i))));
  return out;
}

}  // namespace

Config read_and_check(const Document& document, const std::filesystem::path& folder,
                      const Environment& environment, std::vector<Problem>& problems) {
  Config out;
  check_paths(document, folder, problems);
  Checker checker(document, problems);
  const json server = document.value.value("server", json::object());
  if (checker.sound(Pointer("/server")) && server.is_object()) {
    out.server = read_server(server, folder, environment);
    checker.server(out.server);
  }
  const auto each = [&](const char* key, const auto& visit) {
    const auto found = document.value.find(key);
    if (found == document.value.end() || !found->is_object()) return;
    for (const auto& [name, value] : found->items()) {
      if (value.is_object()) visit(Pointer() / key / name, name, value);
    }
  };
  each("sources", [&](const Pointer& at, const std::string& name, const json& value) {
    if (!checker.sound(at)) return;
    const auto before = problems.size();
    checker.source(at);
    if (problems.size() == before) out.sources[name] = read_source(value, folder);
  });
  check_composites(document, out.sources, problems);
  each("streams", [&](const Pointer& at, const std::string& name, const json& value) {
    if (checker.sound(at)) {
      StreamConfig& stream = out.streams[name] = read_stream(value, folder, out.server);
      stream.places = places_of(document, at, stream.plan.chain.transforms.size());
    }
    if (out.streams.contains(name)) apply_feed(out, out.streams[name]);
    checker.stream(at, out);
  });
  return out;
}

}  // namespace headrace::server::config
