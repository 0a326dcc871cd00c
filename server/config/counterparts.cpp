#include "server/config/counterparts.h"

namespace headrace::server::config {

std::string counterpart(const Counterparts& known, const std::string& name) {
  const auto found = known.find(name);
  return found == known.end() ? "" : found->second;
}

const Counterparts& loader_arguments() {
  static const Counterparts all{{"dataset", "write `source`, with the name of a source"},
                                {"drop_last", "write `last: drop` if it is true, else leave it out"},
                                {"num_workers", "set `server.threads`: one pool works for all streams"},
                                {"workers", "set `server.threads`: one pool works for all streams"},
                                {"prefetch_factor", "set `ring.prefetch`"},
                                {"pin_memory", "leave it out: Loader(device=\"cuda:0\") pins the ring"},
                                {"persistent_workers", "leave it out: the server's workers stay"},
                                {"collate_fn", "leave it out: the server makes the batches"}};
  return all;
}

const Counterparts& torchvision_words() {
  static constexpr const char* kToTensor =
      "leave it out: `output: {dtype: float32}` gives floats from 0 to 1";
  static constexpr const char* kToImage = "leave it out: rows are arrays of bytes without it";
  static const Counterparts all{
      {"ToTensor", kToTensor},
      {"to_tensor", kToTensor},
      {"ToImage", kToImage},
      {"to_image", kToImage},
      {"ToDtype", kToTensor},
      {"to_dtype", kToTensor},
      {"float", "write float32"},
      {"half", "write float16"},
      {"random", "write shuffled"},
      {"antialias", "leave it out: images are resized as PIL does, with antialiasing"}};
  return all;
}

const Counterparts& path_words() {
  static const Counterparts all{{"root", "path"},   {"data_dir", "path"},  {"dir", "path"},
                                {"folder", "path"}, {"directory", "path"}, {"file", "path"},
                                {"url", "path"},    {"source", "of"},      {"sources", "of"}};
  return all;
}

}  // namespace headrace::server::config
