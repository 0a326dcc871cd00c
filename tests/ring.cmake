# The ring: unit, stress and death tests, the protocol model, the micro benchmark.
headrace_test(unit/ring_test.cpp headrace::ring)
