"""Every method of the proof, by name; the modules are imported when they are asked for."""

from importlib import import_module

from tests.proof.contract import Method

MODULES = {
    "sim-disk": "sim_disk",
    "bit-rot": "bit_rot",
    "engine-sim": "engine_sim",
    "syscalls": "syscalls",
    "power-cut": "power_cut",
    "kill-9": "kills",
    "users": "user_kills",
    "inject": "inject",
    "network": "network",
    "blazingmq": "blazingmq_chaos",
    "eventmesh": "mesh_chaos",
    "slow-peers": "slow_peers",
    "idle": "idle",
    "fuzz": "fuzz",
    "session-fuzz": "session_fuzz",
    "mutants": "mutants",
}
"""Name on the command line -> module here, in the order of the table."""


def find(name: str) -> Method:
    method = import_module(f"tests.proof.{MODULES[name]}").METHOD
    assert isinstance(method, Method), name
    return method
