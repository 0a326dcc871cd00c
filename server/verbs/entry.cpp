#include "server/verbs/program.h"

int main(int argc, char** argv) {
  return headrace_run(argc, argv);
}
