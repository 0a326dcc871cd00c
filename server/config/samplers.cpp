#include "server/config/samplers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "server/described/names.h"

namespace headrace::server::config {

using namespace described;

namespace {

using MaybeSampler = std::optional<SamplerConfig>;

template <class S>
Key<S> epoch_samples() {
  return nullable("samples", &S::samples,
                  named("epoch_samples", integer<std::uint64_t>(1, 1'000'000'000'000)),
                  "Samples in an epoch. Default: as many as the source has. pk rounds down to whole groups.");
}

/// A key that is written only if it `counts`. A path never does: the content of the file counts.
template <class S>
Key<S> written_if(bool (*counts)(const S&), Key<S> key) {
  key.schema.erase("default");
  key.write = [counts, write = key.write](const S& from, Json& map) {
    if (counts(from)) write(from, map);
  };
  return key;
}

template <class S>
bool never(const S&) {
  return false;
}

Codec<double> weight() {
  return named("weight", number(0));
}

/// The keys of each way of weighing: the first is required, the second optional.
struct Weighing {
  const char *by, *needs, *takes;
};
constexpr Weighing kWeighings[] = {
    {"class", "weights", "other"}, {"file", "path", "other"}, {"field", "field", ""}};

void check_weights(const WeightedSampler& sampler, const Json& map, const Reading& reading) {
  const auto* way = std::find_if(std::begin(kWeighings), std::end(kWeighings),
                                 [&](const Weighing& each) { return map.at("by") == each.by; });
  if (!map.contains(way->needs))
    reading.wrong_key(
        "", fmt::format("key \"{}\" is missing: `by: {}` reads the weights from it", way->needs, way->by));
  for (const char* key : {"weights", "path", "field", "other"})
    if (map.contains(key) && std::string_view(key) != way->needs && std::string_view(key) != way->takes)
      reading.wrong_key(key, fmt::format("has no meaning with `by: {}`; leave it out", way->by));
  const auto& weights = sampler.weights;
  if (sampler.by == WeightedSampler::By::kClass && map.contains("weights") &&
      sampler.other.value_or(0) == 0 &&
      std::all_of(weights.begin(), weights.end(), [](const auto& each) { return each.second == 0; }))
    reading.wrong("weights", "weights that sum to zero: give a class a larger weight");
}

/// One of the ways to sample, selected by its name.
struct Way {
  std::string name;
  Schema schema;
  std::function<SamplerConfig(const Json&, const Reading&)> read;
  std::function<bool(const SamplerConfig&, Json&)> write;  ///< false: it is another one
};

template <class S>
Way way(Codec<S> (*codec)(const Description<S>&)) {
  const Codec<S> how = codec(description_of<S>());
  const std::string name = description_of<S>().name;
  return {name, how.schema, how.read, [how, name](const SamplerConfig& sampler, Json& map) {
            const auto* one = std::get_if<S>(&sampler);
            if (one != nullptr) map[name] = how.write(*one);
            return one != nullptr;
          }};
}

}  // namespace

Description<WeightedSampler> WeightedSampler::description() {
  using Self = WeightedSampler;
  return {
      "weighted",
      "Draws with replacement, each sample in proportion to its weight.",
      {written_if<Self>(
           never, required("by", &Self::by,
                           word<By>({{"class", By::kClass}, {"file", By::kFile}, {"field", By::kField}}))),
       written_if<Self>([](const Self& s) { return s.by == By::kClass; },
                        key("weights", &Self::weights, map(weight(), 1),
                            "With `by: class`: the weight of each sample of the class.")),
       written_if<Self>(never,
                        key("path", &Self::path, local_path(),
                            "With `by: file`: a file with a weight per line, in the source's order, or with "
                            "lines of `relative/path weight`.")),
       written_if<Self>(
           [](const Self& s) { return s.by == By::kField; },
           key("field", &Self::field, text(),
               "With `by: field`: a field that has one number per sample. Every sample is read when the "
               "server starts.")),
       nullable("other", &Self::other, weight(),
                "Weight of classes and paths that are not listed. Default: they are an error."),
       epoch_samples<Self>()},
      check_weights};
}

Description<BalancedSampler> BalancedSampler::description() {
  return {"balanced",
          "Every class equally often; within a class every sample once before any occurs again.",
          {epoch_samples<BalancedSampler>()}};
}

Description<PkSampler> PkSampler::description() {
  using Self = PkSampler;
  return {"pk",
          "Groups of p classes with k samples each, all distinct.",
          {required("p", &Self::classes, count(), "Classes in a group."),
           required("k", &Self::per_class, count(),
                    "Samples of each of them. batch_size must be a multiple of p * k."),
           key("small_classes", &Self::repeat_small, word<bool>({{"refuse", false}, {"repeat", true}}),
               "Classes of fewer than k samples are an error, or have their samples repeated."),
           epoch_samples<Self>()}};
}

Description<ListSampler> ListSampler::description() {
  using Self = ListSampler;
  return {"list",
          "The samples whose indices a file lists, one per line, as batches report them.",
          {written_if<Self>(never, required("path", &Self::path, local_path())),
           key("shuffle", &Self::shuffle, boolean())}};
}

Codec<MaybeSampler> sampler() {
  const std::vector<Way> ways{way<WeightedSampler>(object), way<BalancedSampler>(object_or_null),
                              way<PkSampler>(object), way<ListSampler>(object)};
  Schema properties = Schema::object();
  for (const Way& each : ways) properties[each.name] = each.schema;
  Schema schema = name_or_map({"sequential", "shuffled", "balanced"}, std::move(properties),
                              "one sampler with its arguments, such as {pk: {p: 8, k: 4}}");
  schema["description"] = "Which samples an epoch visits, in which order. Default: shuffled.";
  const Codec<MaybeSampler> out{
      std::move(schema),
      [ways](const Json& value, const Reading& reading) -> MaybeSampler {
        const auto name = value.is_string() ? value.get<std::string>() : value.begin().key();
        for (const Way& each : ways)
          if (each.name == name)
            return each.read(value.is_string() ? Json() : *value.begin(), reading.below(name));
        return {};
      },
      [ways](const MaybeSampler& value) {
        Json written;
        for (const Way& each : ways)
          if (value && each.write(*value, written)) break;
        return written;
      }};
  return named("sampler", out);
}

}  // namespace headrace::server::config
