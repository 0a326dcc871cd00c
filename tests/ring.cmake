# The ring: unit, stress and death tests, the protocol model, the micro benchmark.
foreach(name ring segment fd_passing layout ring_futex)
  headrace_test(unit/${name}_test.cpp headrace::ring)
endforeach()
headrace_test(stress/ring_stress_test.cpp headrace::ring)
headrace_test(death/ring_death_test.cpp headrace::ring)

# The protocol model and its mutants (tests/spin): apt install spin.
find_program(HEADRACE_SPIN spin)
if(HEADRACE_SPIN)
  foreach(model ring sleep)
    add_test(NAME property/spin_${model} COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/spin/run.sh" ${model})
    set_tests_properties(property/spin_${model} PROPERTIES LABELS "property" TIMEOUT 300)
  endforeach()
else()
  message(STATUS "spin not found: the ring's protocol model is not checked")
endif()

add_executable(ring_bench bench/ring_bench.cpp)
target_include_directories(ring_bench PRIVATE "${headrace_SOURCE_DIR}")
target_link_libraries(ring_bench PRIVATE headrace::ring fmt::fmt headrace_flags)
