# Packed databases.
if(TARGET headrace_pack)
  headrace_test(unit/record_test.cpp headrace::store)
  headrace_test(unit/store_test.cpp headrace::source)
  headrace_test(unit/tree_check_test.cpp headrace::source)
  headrace_test(unit/basicsr_test.cpp headrace::pack headrace::source)
  headrace_test(unit/pack_test.cpp headrace::pack headrace::source pixels_make_jpeg)
  headrace_test(unit/record_input_test.cpp headrace::pack headrace::source)
endif()
