if(TARGET headrace_session)
  headrace_test(property/ledger_test.cpp headrace::publish)
  headrace_test(property/engine_test.cpp headrace::exec)
endif()
