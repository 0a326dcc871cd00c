#include "server/config/check_residence.h"

#include "server/transform/resident_steps.h"

namespace headrace::server::config {

void check_residence(const Document& document, const Pointer& at, const StreamConfig& stream,
                     std::vector<Problem>& problems) {
  if (!stream.resident) return;
  if (stream.sampler && document.value.contains(at / "sampler"))
    problems.push_back(document.at_key(at / "sampler",
                                       "with `residence` the device computes the order, and supports only "
                                       "`shuffled` and `sequential`: use one of them, or leave `residence` "
                                       "out"));
  if (stream.plan.mix)
    problems.push_back(document.at_key(
        at / "mix",
        "with `residence` the device computes rows and cannot mix them: mix them in the trainer, or leave "
        "`residence` out"));
  if (!stream.plan.derived.empty())
    problems.push_back(document.at_key(at / "derive",
                                       "a dataset in GPU memory has one image a sample, and no images "
                                       "derived from it: leave `derive` or `residence` out"));
  if (stream.plan.on_device)
    problems.push_back(document.at_key(
        at / "device",
        "with `residence` the device computes every batch, and `device` is only for images that come through "
        "the ring: leave one of the two out"));
  if (const auto obstacle = transform::resident_obstacle(stream.plan.chain))
    problems.push_back(
        document.at_value(at / "transforms" / std::to_string(obstacle->transform), obstacle->why));
}

}  // namespace headrace::server::config
