# Sourced by the scripts next to it: the root of the sources, and mpirun with what this machine
# needs.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Sets the array `mpirun` for N ranks: as root Open MPI wants to be told twice, and more ranks than
# cores have to be allowed.
choose_mpirun() {
  mpirun=(mpirun)
  command -v mpirun.openmpi >/dev/null && mpirun=(mpirun.openmpi)
  if [[ $("${mpirun[0]}" --version 2>/dev/null) == *@(Open MPI|OpenRTE)* ]]; then
    ((EUID == 0)) && mpirun+=(--allow-run-as-root)
    (($1 > $(nproc))) && mpirun+=(--oversubscribe)
  fi
  mpirun+=(-n "$1")
}

# Configures DIRECTORY if it is not a build directory yet, then builds it.
build_in() {
  local directory=$1
  shift
  [[ -e $directory/build.ninja ]] || meson setup "$directory" "$root" "$@"
  ninja -C "$directory"
}
