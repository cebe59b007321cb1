"""Every decoder that reads what strangers, people or damaged disks provide. See `fuzz.py` for how they are run."""

from collections.abc import Iterator
from pathlib import Path

from tests.proof import (
    fuzz_blazingmq,
    fuzz_bmq_session,
    fuzz_eventmesh,
    fuzz_eventmesh_http,
    fuzz_journal,
    fuzz_omq,
    fuzz_session,
    fuzz_store,
    fuzz_text,
    fuzz_wire,
)
from tests.proof.fuzz_engine import Target

CORPUS = Path(__file__).parent / "corpus"

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (
        fuzz_wire,
        fuzz_session,
        fuzz_omq,
        fuzz_blazingmq,
        fuzz_bmq_session,
        fuzz_eventmesh,
        fuzz_eventmesh_http,
        fuzz_journal,
        fuzz_store,
        fuzz_text,
    )
    for target in module.TARGETS
}


def corpus(target: Target) -> Iterator[bytes]:
    """Seeds that are built from the code, then what earlier runs found worth keeping."""
    yield from target.seeds()
    folder = CORPUS / target.name
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        yield path.read_bytes()
