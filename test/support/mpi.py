"""Starts programs under MPI on this machine, with what a test machine needs: as root Open MPI wants
to be told so, and more ranks than cores have to be allowed."""
import os
import shutil
import subprocess


def open_mpi(ranks, env=None):
    """The words before the program. `env`: variables for the ranks."""
    command = [shutil.which("mpirun.openmpi") or "mpirun", "-n", str(ranks), "--oversubscribe"]
    command += ["--mca", "btl_base_warn_component_unused", "0"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    for name, value in (env or {}).items():
        command += ["-x", f"{name}={value}"]
    return command


def run(ranks, command, env=None, timeout=300, cwd=None):
    """Runs to the end; both outputs are text. Time-out: the whole job is stopped, and it raises."""
    return subprocess.run(
        [*open_mpi(ranks, env), *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        check=False,
    )
