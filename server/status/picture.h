// Rows of a batch as pictures.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "headrace/error.h"
#include "server/exec/field_plans.h"
#include "server/exec/sample_maker.h"
#include "server/pictures/picture.h"

namespace headrace::server::status {

/// A finished row of an image field: values of the output, `normalize` undone, clamped to 0 to 255. REQUIRES:
/// plan.plan; `row` has the field's bytes.
pictures::Picture picture_of_row(const exec::FieldPlan& plan, std::span<const std::byte> row);

/// A PNG file of the image field with this number in plans().
Result<std::string> png_of_row(const exec::SampleMaker& maker, std::size_t field,
                               const exec::ShownRow& shown);
/// The same by name. kInvalidArgument: no image field has it.
Result<std::string> png_of_row(const exec::SampleMaker& maker, const std::string& field,
                               const exec::ShownRow& shown);

}  // namespace headrace::server::status
