# The ring: unit, stress and death tests, the protocol model, the micro benchmark.
foreach(name ring segment fd_passing layout ring_futex private_pages)
  headrace_test(unit/${name}_test.cpp headrace::ring)
endforeach()
headrace_test(stress/ring_stress_test.cpp headrace::ring)
headrace_test(death/ring_death_test.cpp headrace::ring)

# The protocol model and its mutants (tests/spin): apt install spin.
find_program(HEADRACE_SPIN spin)
if(HEADRACE_SPIN)
  foreach(model ring sleep pool)
    add_test(NAME model/spin_${model} COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/spin/run.sh" ${model})
    set_tests_properties(model/spin_${model} PROPERTIES LABELS "model" TIMEOUT 300)
  endforeach()
else()
  message(STATUS "spin not found: the ring's protocol model is not checked")
endif()

foreach(name ring_bench private_bench)
  add_executable(${name} bench/${name}.cpp)
  target_include_directories(${name} PRIVATE "${headrace_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE headrace::ring fmt::fmt headrace_flags)
endforeach()
