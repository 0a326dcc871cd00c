#!/bin/sh
# Checks the protocol models, and that the check can fail: each mutant must be caught.
#   run.sh [model ...]     default: ring sleep pool
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# verify MODEL [-DMACRO]: prints "clean", or the violation
verify() {
  # shellcheck disable=SC2086  # no macro: no argument
  spin -a ${2:-} "$here/$1.pml" >spin.log 2>&1 || { cat spin.log >&2; exit 2; }
  # COLLAPSE keeps memory small; SAFETY: assertions and invalid end states, no cycles.
  ${CC:-cc} -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=1800 -o pan pan.c
  ./pan -m1000000 >pan.log 2>&1 || { cat pan.log >&2; exit 2; }
  if ! grep -q '^pan:1:' pan.log && grep -q 'out of memory\|max search depth too small\|Search not completed' pan.log; then
    cat pan.log >&2
    exit 2
  fi
  sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' pan.log | head -n 1 >found
  [ -s found ] && cat found || echo clean
}

failed=0
[ $# -gt 0 ] || set -- ring sleep pool
for model in "$@"; do
  result=$(verify "$model")
  states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log | head -n 1)
  memory=$(sed -n 's/ *\([0-9.]*\)[[:space:]]*total actual memory usage/\1/p' pan.log)
  echo "$model: $result ($states states, $memory MB)"
  [ "$result" = clean ] || failed=1
  # shellcheck disable=SC2013  # names without spaces
  for mutant in $(grep -o 'MUTANT_[A-Z]*' "$here/$model.pml" | sort -u); do
    result=$(verify "$model" "-D$mutant")
    echo "$model with $mutant: $result"
    [ "$result" != clean ] || { echo "$model: $mutant was not caught"; failed=1; }
  done
done
exit $failed
