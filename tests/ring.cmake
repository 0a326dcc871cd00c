# The ring: unit, stress and death tests, the protocol model, the micro benchmark.
foreach(name ring segment fd_passing layout ring_futex)
  headrace_test(unit/${name}_test.cpp headrace::ring)
endforeach()
