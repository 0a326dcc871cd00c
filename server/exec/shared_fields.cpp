#include "server/exec/shared_fields.h"

#include <algorithm>

#include "server/transform/chain_parts.h"

namespace headrace::server::exec {
namespace {

bool share_image(const FieldPlan& plan, std::size_t transforms, SharedField& field) {
  const transform::PlanConfig& chain = plan.ring_chain;
  auto first = transform::Plan::compile(transform::first_part(chain, transforms));
  if (!first) return false;
  const transform::Size size = first->output_size();
  auto second = transform::Plan::compile(transform::second_part(chain, transforms, size));
  if (!second) return false;
  field.bytes = first->row_bytes();
  field.pixels.width = static_cast<std::uint32_t>(size.width);
  field.pixels.height = static_cast<std::uint32_t>(size.height);
  field.pixels.channels = static_cast<std::uint32_t>(chain.mask ? 1 : chain.channels);
  field.first = std::move(*first);
  field.second = std::move(*second);
  return true;
}

}  // namespace

std::optional<SharedFields> share_fields(const source::Source& source, const std::vector<FieldPlan>& plans,
                                         std::size_t transforms) {
  SharedFields shared;
  bool decodes = false;
  for (const FieldPlan& plan : plans) {
    SharedField& field = shared.fields.emplace_back();
    field.offset = shared.row_bytes;
    if (plan.plan) {
      if (!share_image(plan, transforms, field)) return std::nullopt;
      decodes |= source.fields()[plan.source_field].content == source::Content::kEncodedImage;
    } else if (plan.spec.kind == FieldKind::kDense) {
      field.bytes = row_bytes(plan.spec);
    } else {
      return std::nullopt;
    }
    shared.row_bytes += field.bytes;
  }
  if (!decodes) return std::nullopt;
  return shared;
}

}  // namespace headrace::server::exec
