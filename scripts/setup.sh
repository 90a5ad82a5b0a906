#!/usr/bin/env bash
# Installs what building, testing and the demo need and is not there yet (Debian packages).
# As root with apt, otherwise with sudo, otherwise it prints the line to run and stops.
set -euo pipefail

packages=(g++ cmake ninja-build make pkg-config ccache
          python3 libhwy-dev libtbb-dev libcli11-dev nlohmann-json3-dev libgtest-dev python3)
for extra in "$@"; do
  case "$extra" in
    lint) packages+=(clang-format-14 clang-tidy-14) ;;
    python) packages+=(python3 python3-venv python3-dev) ;;
    aarch64) packages+=(g++-aarch64-linux-gnu qemu-user-static libhwy-dev:arm64 libtbb-dev:arm64
                        libgtest-dev:arm64) ;;
    *) echo "setup.sh: unknown group '$extra', expected lint, python or aarch64" >&2; exit 2 ;;
  esac
done

missing=()
native=$(dpkg --print-architecture)
for package in "${packages[@]}"; do
  # One line for each architecture that the package is there for.
  status=$(dpkg-query -W -f='${Architecture} ${Status}\n' "$package" 2>/dev/null || true)
  grep -Eqx "($native|all) install ok installed" <<<"$status" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

foreign=""
case " ${missing[*]} " in *:arm64*) foreign="dpkg --add-architecture arm64 && " ;; esac
line="${foreign}apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" = 0 ]; then
  sh -c "DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; $line"
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  sudo sh -c "DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; $line"
else
  echo "These packages are missing and cannot be installed without root. Run:" >&2
  echo "  sudo sh -c '$line'" >&2
  exit 1
fi
