#!/usr/bin/env bash
# Downloads the Debian packages that tests/gpu/from_debs.sh OUT unpacks: libraries and headers of docker/packages-build.txt, with what
# they load. On a machine with apt, for one without a registry.    tests/gpu/gather_debs.sh OUT
#
# Left out: the compiler and the programs that build (that machine's own), what the shell and dpkg of any Debian or Ubuntu load, headers
# of others that nothing here includes, and documentation.
set -euo pipefail
[ $# = 1 ] || { sed -n '2,3p' "${BASH_SOURCE[0]}" >&2; exit 2; }
list=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../docker/packages-build.txt
most=40000000  # bytes: what is carried to such a machine has its limits
mkdir -p "$1"
cd "$1"
if compgen -G '*.deb' >/dev/null; then
  echo "gather_debs: $1 has packages in it already, and the unpacked would be a mixture: name an empty folder" >&2
  exit 1
fi

own='^(ca-certificates|ccache|cmake|g\+\+|mold|ninja-build|python3-dev|python3-venv)$'
mapfile -t listed < <(sed 's/#.*//' "$list" | grep . | grep -vE "$own")
listed+=(pkgconf pkgconf-bin)  # small, and not everywhere
base=$(apt-get -s -o Dir::State::status=/dev/null install --no-install-recommends bash coreutils dpkg perl-base tar util-linux |
  awk '$1 == "Inst" {print $2}')

# PACKAGE NEED of many packages at once; of alternatives the first, and no virtual ones.
needs() {
  apt-cache depends --important "$@" |
    awk '!/^ / {name = $1} /Depends:/ {if (!rest && $2 !~ /^</) print name, $2; rest = /^ \|/}'
}
declare -A taken
queue=("${listed[@]}")
while [ ${#queue[@]} -gt 0 ]; do
  asked=()
  for name in "${queue[@]}"; do
    if [ -z "${taken[$name]:-}" ]; then taken[$name]=1 asked+=("$name"); fi
  done
  queue=()
  [ ${#asked[@]} -gt 0 ] || break
  while read -r name need; do
    case $need in
      libc6 | libgcc-s1 | libstdc++6 | *-common | *-data | *-doc | libjs-*) continue ;;
      libboost*-dev) ;;   # what libboost-dev names
      *-dev) continue ;;  # listed, or for linking statically, or valijson's other parsers
      lib* | zlib1g | civetweb) ;;  # the last is a program that its own CMake files name
      *) continue ;;      # programs
    esac
    # Of the base, too, what a listed package's links lead to: libz.so to zlib1g's file.
    if [[ $name != *-dev ]] && grep -qxF "$need" <<<"$base"; then continue; fi
    queue+=("$need")
  done < <(needs "${asked[@]}")
done
apt-get download -q "${!taken[@]}"
bytes=$(cat ./*.deb | wc -c)
printf '%d packages, %d.%d MB in %s\n' "${#taken[@]}" $((bytes / 1000000)) $((bytes / 100000 % 10)) "$1"
((bytes <= most)) || { echo "gather_debs: these are over $((most / 1000000)) MB: leave out what the build does not need" >&2; exit 1; }
