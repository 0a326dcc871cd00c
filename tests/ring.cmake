# The ring: unit, stress and death tests, the protocol model, the micro benchmark.
foreach(name ring segment fd_passing layout ring_futex)
  headrace_test(unit/${name}_test.cpp headrace::ring)
endforeach()
headrace_test(stress/ring_stress_test.cpp headrace::ring)
headrace_test(death/ring_death_test.cpp headrace::ring)
