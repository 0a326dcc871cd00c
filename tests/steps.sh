# shellcheck shell=bash
# For test programs that run step by step: `steps NAME...` calls each function, counts it as a test, and prints the sum.
steps() {
  local name passed=0 failed=0
  for name in "$@"; do
    if "$name"; then passed=$((passed + 1)); echo "ok      ${name//_/ }"
    else failed=$((failed + 1)); echo "FAILED  ${name//_/ }"; fi
  done
  echo "$passed passed, $failed failed"
  ((failed == 0))
}
