#include "headrace/stream_info.h"

namespace headrace {

std::string difference(const Fingerprint& now, const Fingerprint& then) {
  struct Part {
    const char* name;
    const std::string &now, &then;
  };
  for (const Part& part :
       {Part{"dataset", now.dataset, then.dataset},
        Part{"plan (transforms, output, order)", now.plan, then.plan}, Part{"seed", now.seed, then.seed},
        Part{"algorithm version", now.algorithm, then.algorithm}})
    if (part.now != part.then)
      return std::string(part.name) + " (was " + part.then + ", now " + part.now + ")";
  return {};
}

}  // namespace headrace
