#include "server/source/combine/subset.h"

#include "server/source/combine/refs.h"
#include "server/source/combine/split.h"

namespace headrace::server::source {

described::Description<SubsetOptions> SubsetOptions::description() {
  using Self = SubsetOptions;
  return {"subset",
          "Some samples of a source, selected by exactly one of first, fraction, classes, list and indices.",
          {described::required("of", &Self::of, only_ref()),
           described::optional("first", &Self::first, described::integer<std::uint64_t>(1, kMostComposed),
                               "Number of samples, from the beginning."),
           described::optional("fraction", &Self::fraction, described::number_above(0, 1),
                               "Fraction of the samples, spread over the source."),
           described::key("seed", &Self::seed, described::seed(), "Seed of `fraction`."),
           described::without_default(
               described::key("classes", &Self::classes, described::list(described::class_name(), 1))),
           described::optional("list", &Self::list,
                               described::expecting("the name of a file", described::local_path()),
                               "A file of relative paths, one per line."),
           described::optional("indices", &Self::indices,
                               described::expecting("the name of a file", described::local_path()),
                               "A file of indices, one per line, as batches report them.")},
          [](const Self&, const described::Json& map, const described::Reading& reading) {
            described::check_one_of(map, {"first", "fraction", "classes", "list", "indices"},
                                    "one of first, fraction, classes, list, indices", reading);
          }};
}

namespace types {
SourceType subset() {
  return source_type<SubsetOptions>(
      {.in_memory = kMembersKeep, .keeps_in_members = true},
      [](const SubsetOptions& options, const OpenContext& context) {
        const SourcePtr& of = context.members.front().source;
        if (options.first) return first_samples(of, *options.first);
        if (options.indices) return listed_samples(of, *options.indices);
        if (options.fraction)
          return source::subset(of, SplitFractions{{{"", *options.fraction}}, options.seed});
        if (options.list) return source::subset(of, SplitLists{{{"", *options.list}}});
        return source::subset(of, SplitClasses{{{"", options.classes}}});
      });
}
}  // namespace types

}  // namespace headrace::server::source
