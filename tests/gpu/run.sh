#!/usr/bin/env bash
# Builds Headrace where there is a GPU and no package registry, runs every test and bench that needs the GPU, and writes
# results/<GPU>.json and .md. Ends with 1 if anything failed. tests/gpu/README.md
#   tests/gpu/run.sh [--debs DIR | --prefix DIR] [--wheels DIR] [--jpegs DIR] [--steps NAMES] [--out DIR] [--jobs N]
#     --debs    Debian packages, as gather_debs.sh downloads them: unpacked into build/gpu/prefix
#     --prefix  a folder with usr/include and usr/lib, as those packages lie
#     --wheels  Python packages that this machine lacks (kornia, torchvision): installed into build/gpu/venv alone
#     --jpegs   a folder per class, for the scaling; else pictures are made up
#     --steps   only these, comma-separated, of a tree that an earlier call has built; the report is of all that have run
# shellcheck disable=SC2317  # functions are called by name: step NAME FUNCTION
set -uo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." || exit 1
steps='gpu configure build twin cuda memcheck racecheck copies wheel torch residence trainer transforms overlap scaling'
debs='' prefix='' wheels='' jpegs='' only='' out=tests/gpu/results jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --debs) debs=$2 ;; --prefix) prefix=$2 ;; --wheels) wheels=$2 ;; --jpegs) jpegs=$2 ;; --steps) only=$2 ;;
    --out) out=$2 ;; --jobs) jobs=$2 ;;
    *) sed -n '2,10p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift 2
done
for each in ${only//,/ }; do
  if [[ " $steps " != *" $each "* ]]; then echo "run.sh: --steps $each: there are $steps" >&2; exit 2; fi
done
build=build/gpu logs=build/gpu/logs failed=0
most=900  # seconds of a program: a kernel that hangs must not keep the report
[ -n "$only" ] || rm -rf "$logs"
mkdir -p "$logs"

# step NAME COMMAND...: output to the log, status beside it. A step whose needs are not there is one that was not run.
step() {
  local name=$1 status=0 begun=$SECONDS limit=(); shift
  wanted "$name" || return 0
  if [ "$(type -t "$1")" = file ]; then limit=(timeout -k 10 "$most"); fi
  "${limit[@]}" "$@" >"$logs/$name.log" 2>&1 </dev/null || status=$?
  echo "$status" >"$logs/$name.rc"
  printf '%-12s %s, %d s\n' "$name" "$([ $status = 0 ] && echo passed || echo "FAILED ($status): $logs/$name.log")" $((SECONDS - begun))
  grep -E '^\[(figure|not run)\]' "$logs/$name.log"
  if ((status)); then failed=1; tail -n 20 "$logs/$name.log" >&2; fi
  return $status
}
wanted() { [[ -z $only || ,$only, == *,$1,* ]]; }
not_run() { wanted "$1" || return 0; printf '%-12s not run: %s\n' "$1" "$2"; echo "not run" >"$logs/$1.rc"; echo "$2" >"$logs/$1.log"; }
finish() { python3 tests/gpu/report.py "$out" "$logs"; exit $failed; }

# Packages are made for /: their links are pointed into the prefix, and what is in /lib goes where the rest is. What a .pc file names for
# static linking is not there.
unpack() {
  local deb link target
  mkdir -p "$prefix"
  for deb in "$debs"/*.deb; do dpkg -x "$deb" "$prefix" || return 1; done
  if [ -d "$prefix/lib" ]; then cp -a "$prefix/lib/." "$prefix/usr/lib/" && rm -r "${prefix:?}/lib" || return 1; fi
  while IFS=$'\t' read -r link target; do
    ln -sfnr "$prefix/usr/lib/${target#*/lib/}" "$link"
  done < <(find "$prefix/usr/lib" -type l -lname '/*' -printf '%p\t%l\n')
  find "$prefix/usr" -name '*.pc' -exec sed -i '/^Requires\.private:/d' {} +
}
if [ -n "$debs" ]; then
  prefix=$PWD/$build/prefix
  unpack || { echo "run.sh: cannot unpack $debs/*.deb into $prefix" >&2; exit 1; }
fi
if [ -n "$prefix" ]; then
  prefix=$(readlink -f "$prefix")
  triplet=$(uname -m)-linux-gnu
  libraries=$prefix/usr/lib/$triplet
  export CMAKE_PREFIX_PATH=$prefix/usr PKG_CONFIG_SYSROOT_DIR=$prefix
  export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$prefix/usr/lib/pkgconfig:$prefix/usr/share/pkgconfig
  export CPATH=$prefix/usr/include:$prefix/usr/include/$triplet LIBRARY_PATH=$libraries
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PATH=$PATH:$prefix/usr/bin  # pkg-config, where there is none
fi

gpu() { nvidia-smi -L; }
configure() { cmake -S . -B "$build/tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHEADRACE_WERROR=OFF; }
build_tree() { cmake --build "$build/tree" --parallel "$jobs"; }
# The twin's tests here, too: what the GPU is compared with must be right on this machine.
ctest_of() { timeout -k 10 "$most" ctest --no-tests=error --timeout 300 --test-dir "$build/tree" -L "$1" -R "$2" --output-on-failure -j "$3"; }
# python3 may be a virtual environment's own: one on top of it would see what that one's base has, not torch.
wheel() {
  local python=$build/venv/bin/python
  python3 -m venv --system-site-packages --without-pip "$build/venv" &&
    python3 -c 'import site; print(*site.getsitepackages(), sep="\n")' \
      >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth" &&
    python3 -m pip --python "$python" install --no-build-isolation --no-deps --no-index --force-reinstall \
      --config-settings build-dir="$build/wheel" . || return
  if [ -n "$wheels" ]; then python3 -m pip --python "$python" install --no-deps --no-index "$wheels"/*.whl; fi
}
# Programs of the tree, by name; a glob that finds nothing is nothing to check.
program() { find "$build/tree" -name "$1" -type f -perm -u+x 2>/dev/null | head -1; }
sanitized() {
  local test
  for test in cuda_transform_test cuda_resident_test; do
    HEADRACE_ROUNDS=20 timeout -k 10 "$most" compute-sanitizer --error-exitcode 9 --tool "$1" \
      "$(program "$test")" --gtest_filter='-*Bandwidth*:*Epoch*:*NoRoom*' || return
  done
}
trainer() {
  timeout -k 10 "$most" "$build/venv/bin/python" tests/gpu/run_trainer.py "$(program device_trainer)"
}

scaling() {
  timeout -k 10 "$most" "$build/venv/bin/python" tests/bench/scaling.py --headrace "$(program headrace)" --out "$out" \
    --seconds 1 --rounds 2 ${jpegs:+--data "imagenet=$jpegs"}
}

step gpu gpu || finish
step configure configure || finish
step build build_tree || finish
step twin ctest_of '^(unit|property)$' 'gpu_|device_|picture_|resident_|gather_' "$jobs"
step cuda ctest_of '^gpu$' . 1
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do step "$tool" sanitized "$tool"; done
else
  for tool in memcheck racecheck; do not_run "$tool" "no compute-sanitizer on this machine"; done
fi
step copies "$(program copy_bench)"
if step wheel wheel; then
  step torch "$build/venv/bin/python" tests/gpu/check_torch.py
  step residence "$build/venv/bin/python" tests/gpu/residence_bench.py
  step trainer trainer
  step transforms "$build/venv/bin/python" tests/gpu/compare_transforms.py "$(program transform_bench)"
  step overlap "$build/venv/bin/python" tests/gpu/overlap.py --out "$out"
  step scaling scaling
else
  for each in torch residence trainer transforms overlap scaling; do not_run "$each" "no wheel"; done
fi
finish
