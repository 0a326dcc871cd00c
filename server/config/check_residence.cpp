#include "server/config/check_residence.h"

#include "server/transform/resident_steps.h"

namespace headrace::server::config {

void check_residence(const Document& document, const Pointer& at, const StreamConfig& stream,
                     std::vector<Problem>& problems) {
  if (!stream.resident) return;
  if (stream.sampler && document.value.contains(at / "sampler"))
    problems.push_back(document.at_key(at / "sampler",
                                       "with `residence` the device makes the order, and knows `shuffled` "
                                       "and `sequential`: use one of them, "
                                       "or leave `residence` out"));
  if (stream.plan.mix)
    problems.push_back(document.at_key(
        at / "mix",
        "rows of a resident set are not mixed: mix them in the trainer, or leave `residence` out"));
  if (!stream.plan.derived.empty())
    problems.push_back(document.at_key(at / "derive",
                                       "a resident set has one image of a sample, and nothing derived of it: "
                                       "leave this or `residence` out"));
  if (stream.plan.on_device)
    problems.push_back(document.at_key(
        at / "device",
        "with `residence` every batch is made on the device: leave this out, which says where "
        "images are finished that come through the ring"));
  if (const auto obstacle = transform::resident_obstacle(stream.plan.chain))
    problems.push_back(
        document.at_value(at / "transforms" / std::to_string(obstacle->transform), obstacle->why));
}

}  // namespace headrace::server::config
