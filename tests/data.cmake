# Sampler, sources and configuration.
if(TARGET headrace_sampler)
  headrace_test(unit/philox_test.cpp headrace::sampler)
  headrace_test(unit/order_test.cpp headrace::sampler)
  headrace_test(property/order_property_test.cpp headrace::sampler)
  headrace_test(property/permutation_property_test.cpp headrace::sampler)
endif()
