#!/usr/bin/env bash
# Downloads the Debian packages that tests/gpu/from_debs.sh unpacks: the libraries and headers of docker/packages-build.txt, and the
# libraries that these load. Run it on a machine with apt, for a machine without a registry:  tests/gpu/gather_debs.sh OUT
#
# It skips the compiler and build programs, which the other machine must have; libraries that the shell and dpkg of every Debian or Ubuntu
# need; headers that nothing here includes; and documentation.
set -euo pipefail
[ $# = 1 ] || { sed -n '2,3p' "${BASH_SOURCE[0]}" >&2; exit 2; }
list=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../docker/packages-build.txt
most=40000000  # bytes: uploads to the GPU machine may be limited
mkdir -p "$1"
cd "$1"
if compgen -G '*.deb' >/dev/null; then
  echo "gather_debs: $1 already has packages, which from_debs.sh would unpack, too: name an empty folder" >&2
  exit 1
fi

own='^(ca-certificates|ccache|cmake|g\+\+|mold|ninja-build|python3-dev|python3-venv)$'
mapfile -t listed < <(sed 's/#.*//' "$list" | grep . | grep -vE "$own")
listed+=(pkgconf pkgconf-bin)  # small, and not everywhere
base=$(apt-get -s -o Dir::State::status=/dev/null install --no-install-recommends bash coreutils dpkg perl-base tar util-linux |
  awk '$1 == "Inst" {print $2}')

# Prints a line "PACKAGE NEED" for each dependency of the packages: the first of alternatives, and no virtual packages.
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
      libboost*-dev) ;;   # libboost-dev depends on these
      *-dev) continue ;;  # listed already, or for static linking
      lib* | zlib1g | civetweb) ;;  # civetweb is a program that its own CMake files name
      *) continue ;;      # programs
    esac
    # Skip the base, except for files that links in a -dev package point to, such as libz.so in zlib1g.
    if [[ $name != *-dev ]] && grep -qxF "$need" <<<"$base"; then continue; fi
    queue+=("$need")
  done < <(needs "${asked[@]}")
done
apt-get download -q "${!taken[@]}"
bytes=$(cat ./*.deb | wc -c)
printf '%d packages, %d.%d MB in %s\n' "${#taken[@]}" $((bytes / 1000000)) $((bytes / 100000 % 10)) "$1"
((bytes <= most)) || { echo "gather_debs: expected at most $((most / 1000000)) MB: skip packages that the build does not need" >&2; exit 1; }
