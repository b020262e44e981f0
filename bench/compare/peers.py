"""The peers: which driver each one runs, and how its ranks are started."""
import dataclasses
import os
import re
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VCLUSTER = os.path.join(ROOT, "scripts", "vcluster")
UCX = "--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any"


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    driver: str
    about: str
    words: str = ""  # for Open MPI's mpirun
    arguments: str = ""  # for the driver
    variables: tuple = ()  # for the ranks
    role: str = "peer"  # or "hetccl", or "limit"


NODE = [
    Peer("ompi", "driver_ompi", "Open MPI as it comes"),
    Peer("ompi-ucx", "driver_ompi", "Open MPI over UCX", words=UCX),
    Peer("ompi-sm", "driver_ompi", "Open MPI with collectives in shared memory first",
         words="--mca coll_sm_priority 100"),
    Peer("ompi-nocma", "driver_ompi", "Open MPI without kernel-assisted copies",
         words="--mca btl_vader_single_copy_mechanism none"),
    Peer("ompi-yield", "driver_ompi", "Open MPI that yields while it waits",
         words="--mca mpi_yield_when_idle 1"),
    Peer("mpich", "driver_mpich", "MPICH as it comes"),
    Peer("gloo", "driver_gloo", "Gloo over TCP"),
    Peer("hetccl", "driver_hetccl", "hetccl on ordinary memory", role="hetccl"),
    Peer("hetccl-mem", "driver_hetccl", "hetccl on memory of hetcclMemAlloc",
         arguments="--memory host-lib", role="hetccl"),
    Peer("limit", "driver_limit", "each input read once, each output written once, one cache line "
         "exchanged", role="limit"),
]
RING = " --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4"
# UCX takes all network namespaces of a machine for one node, and would share memory.
ONLY_TCP = ("UCX_TLS=tcp,self", "UCX_NET_DEVICES=eth0")
# Between nodes: all of Open MPI's yield, since nodes share cores here.
CLUSTER = [
    Peer("ompi", "driver_ompi", "Open MPI over its own TCP"),
    Peer("ompi-ring", "driver_ompi", "the same, rings for all-reduce", words=RING),
    Peer("ompi-ucx", "driver_ompi", "Open MPI over UCX", words=UCX, variables=ONLY_TCP),
    Peer("ompi-ucx-ring", "driver_ompi", "the same, rings for all-reduce", words=UCX + RING,
         variables=ONLY_TCP),
    Peer("gloo", "driver_gloo", "Gloo over TCP", arguments="--interface eth0"),
    Peer("hetccl", "driver_hetccl", "hetccl on ordinary memory", role="hetccl"),
]


def cores():
    return len(os.sched_getaffinity(0))


def find(names):
    return next((path for path in map(shutil.which, names) if path), None)


class NodeLauncher:
    """Turns a peer and a number of ranks into a command, all ranks on this node."""

    peers = {peer.name: peer for peer in NODE}
    name = None

    def __init__(self, build):
        self.drivers = os.path.join(build, "bench", "compare")
        self.open_mpi = self._open_mpi()
        self.mpich = find(["mpiexec.mpich", "mpiexec.hydra"])

    @staticmethod
    def _open_mpi():
        program = find(["mpirun.openmpi", "mpirun"])
        if program is None:
            return None
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        return program if re.search("Open MPI|OpenRTE", done.stdout) else None

    def path(self, driver):
        return os.path.join(self.drivers, driver)

    def takes_mpich(self, peer):
        """Drivers that only need any MPI are built with Open MPI where there is one."""
        return peer.driver == "driver_mpich" or not os.path.exists(self.path("driver_ompi"))

    def lacks(self, peer):
        """Why the peer cannot be started, or ""."""
        if not os.path.exists(self.path(peer.driver)):
            return f"{peer.driver} was not built: its library was not found"
        if self.takes_mpich(peer):
            return "" if self.mpich else "MPICH's mpiexec is not installed"
        return "" if self.open_mpi else "Open MPI's mpirun is not installed"

    def driver(self, peer, directory, most_bytes):
        return [self.path(peer.driver), "--directory", directory, "--most", str(most_bytes),
                *peer.arguments.split()]

    def command(self, peer, ranks, directory, most_bytes):
        fits = ranks <= cores()
        if self.takes_mpich(peer):
            words = [self.mpich, "-n", str(ranks), *(["-bind-to", "core"] if fits else [])]
        else:
            words = [self.open_mpi, "-n", str(ranks), "--bind-to", "core" if fits else "none"]
            words += [] if fits else ["--oversubscribe"]
            words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
            words += peer.words.split()
        return words + self.driver(peer, directory, most_bytes)

    def open(self):
        """Makes what the ranks run on; "" or why it cannot be made."""
        return ""

    def close(self):
        pass


class ClusterLauncher(NodeLauncher):
    """Ranks on the nodes of scripts/vcluster, which are joined by links of these rates."""

    peers = {peer.name: peer for peer in CLUSTER}

    def __init__(self, build, nodes, rates):
        super().__init__(build)
        self.nodes, self.rates = nodes, rates

    def lacks(self, peer):
        if self.takes_mpich(peer):
            return "clusters are started by Open MPI"
        return super().lacks(peer)

    def open(self):
        done = subprocess.run([VCLUSTER, "up", "-k", str(self.nodes), "-r", self.rates],
                              capture_output=True, text=True, check=False)
        self.name = done.stdout.strip() or None
        return "" if self.name else f"no cluster: {done.stderr.strip()}"

    def close(self):
        if self.name:
            subprocess.run([VCLUSTER, "down", self.name], capture_output=True, check=False)

    def command(self, peer, ranks, directory, most_bytes):
        words = [VCLUSTER, "launch", self.name, "-p", str(ranks // self.nodes)]
        for variable in peer.variables:
            words += ["-v", variable]
        words += ["-m", peer.words] if peer.words else []
        return [*words, "--", *self.driver(peer, directory, most_bytes)]
