# Other users of the machine.
headrace_test(unit/trust_test.cpp headrace::base)
