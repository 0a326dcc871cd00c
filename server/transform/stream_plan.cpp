#include "server/transform/stream_plan.h"

#include <algorithm>
#include <set>
#include <type_traits>

namespace headrace::server::transform {
namespace {

template <class... Kinds>
bool is_one_of(const Transform& transform) {
  return (std::holds_alternative<Kinds>(transform) || ...);
}

bool is_for(const std::vector<std::string>& only, const std::string& field) {
  return only.empty() || std::find(only.begin(), only.end(), field) != only.end();
}

}  // namespace

PlanConfig StreamPlan::chain_of(const std::string& field, bool mask) const {
  PlanConfig out = chain;
  for (std::size_t i = 0; i < out.transforms.size(); ++i) {
    Transform& transform = out.transforms[i];
    // Of the lists of augmentations a mask takes the geometric ones: see draw_steps.
    const bool colour = std::visit(
        [](const auto& t) {
          using T = std::decay_t<decltype(t)>;
          return std::is_same_v<T, Normalize> || std::is_same_v<T, ToY> || std::is_same_v<T, ColorJitter> ||
                 std::is_same_v<T, RandomGrayscale> || std::is_same_v<T, GaussianBlur> ||
                 std::is_same_v<T, RandomErasing>;
        },
        transform);
    if (!is_for(i < only.size() ? only[i] : std::vector<std::string>{}, field) || (mask && colour))
      transform = NotHere{};
  }
  out.mask = mask;
  return out;
}

bool StreamPlan::crops() const {
  for (const Transform& transform : chain.transforms) {
    if (is_one_of<CenterCrop, RandomCrop, RandomResizedCrop>(transform)) return true;
    if (!is_one_of<Resize, RandomHorizontalFlip, RandomVerticalFlip, RandomRotate90, NotHere>(transform))
      return false;
  }
  return false;
}

std::vector<std::string> StreamPlan::named() const {
  std::set<std::string> names;
  for (const auto& fields : only) names.insert(fields.begin(), fields.end());
  return {names.begin(), names.end()};
}

}  // namespace headrace::server::transform
