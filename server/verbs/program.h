// The `headrace` program, as a function: in the wheel it is in a library, which the Python module shares.
#pragma once

extern "C" int headrace_run(int argc, char** argv);
