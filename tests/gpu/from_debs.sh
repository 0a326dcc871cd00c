#!/usr/bin/env bash
# Builds the kit on the GPU machine, from Debian packages that gather_debs.sh downloaded elsewhere. It installs nothing. The machine must
# have cmake, ninja, a compiler, the CUDA toolkit, and Python with torch, nanobind and scikit-build-core.
#   tests/gpu/from_debs.sh DEBS [--out FILE]
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,4p' "${BASH_SOURCE[0]}" >&2; exit 2; }
debs=$(readlink -f "$1"); shift
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
prefix=$PWD/build/kit/prefix
mkdir -p "$prefix"
for deb in "$debs"/*.deb; do dpkg -x "$deb" "$prefix"; done
# The packages are meant for /. So move /lib to usr/lib, point links into the prefix, and drop what .pc files need for static linking.
if [ -d "$prefix/lib" ]; then cp -a "$prefix/lib/." "$prefix/usr/lib/" && rm -r "${prefix:?}/lib"; fi
while IFS=$'\t' read -r link target; do
  ln -sfnr "$prefix/usr/lib/${target#*/lib/}" "$link"
done < <(find "$prefix/usr/lib" -type l -lname '/*' -printf '%p\t%l\n')
find "$prefix/usr" -name '*.pc' -exec sed -i '/^Requires\.private:/d' {} +
triplet=$(uname -m)-linux-gnu
libraries=$prefix/usr/lib/$triplet
export CMAKE_PREFIX_PATH=$prefix/usr PKG_CONFIG_SYSROOT_DIR=$prefix
export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$prefix/usr/lib/pkgconfig:$prefix/usr/share/pkgconfig
export CPATH=$prefix/usr/include:$prefix/usr/include/$triplet LIBRARY_PATH=$libraries
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PATH=$PATH:$prefix/usr/bin  # for pkg-config, if the machine has none
tests/gpu/kit build --offline "$@"
