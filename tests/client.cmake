if(TARGET headrace_wire)
  headrace_test(unit/wire_codec_test.cpp headrace::wire)
endif()
