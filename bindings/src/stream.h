// A stream whose batches are in host memory.
#pragma once

#include "bindings/src/batch.h"
#include "bindings/src/loop.h"
#include "headrace/client.h"

namespace headrace::python {

using PyStream = PyLoop<Stream, PyBatch>;

}  // namespace headrace::python
