"""What docs/howto/omq.md shows: the session with nc, and its OCaml client, as the page prints them."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Block, blocks
from tests.docs.quick_commands import quick_commands
from tests.docs.test_snippets import RUN, Reader
from tests.integration.conditions import running
from tests.interop.omq import LENGTH, PING, VERSION, OmqBroker, need_ocaml

pytestmark = pytest.mark.slow

PAGE = DOCS / "howto" / "omq.md"
SHOWN = list(blocks(PAGE))
WAIT_S = 60


def block_after(block: Block, nth: int = 1) -> Block:
    return SHOWN[SHOWN.index(block) + nth]


def the_block(language: str, words: str) -> Block:
    [found] = [block for block in SHOWN if block.words == (language,) and words in block.text]
    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OmqBroker]:
    """With the queues and messages of the page. It closes a client that is silent for eight seconds, as nc will be."""
    place = tmp_path_factory.mktemp("howto")
    broker = OmqBroker(place, listener="ping_interval_ms = 7999\nack_timeout_ms = 8000")
    folder = place / "reader"
    folder.mkdir()
    with running(broker), tempfile.TemporaryDirectory(prefix="vmq-") as short, quick_commands(Path(short)) as commands:
        reader = Reader(folder, broker, commands, superuser="")
        for block in SHOWN:
            if block.words in RUN:
                reader.follow(block)
        yield broker


def at(broker: OmqBroker, text: str) -> str:
    """The page's text with the port of this broker."""
    assert "7460" in text
    return text.replace("7460", str(broker.omq_port))


def dumped(text: str) -> bytes:
    """The bytes of a dump, which `od -t x1z` shows on the left."""
    return b"".join(bytes.fromhex(re.split(r"  +>", line)[0]) for line in text.splitlines())


def frames(dump: str) -> list[tuple[int, bytes]]:
    """(type, payload) of what stands behind the version."""
    stream, found = dumped(dump), []
    assert stream.startswith(VERSION)
    place = len(VERSION)
    while place < len(stream):
        (size,) = LENGTH.unpack_from(stream, place)
        place += LENGTH.size + size
        found.append((stream[place - size], stream[place - size + 1 : place]))
    assert place == len(stream)
    return found


def without_pings(found: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [frame for frame in found if frame[0] != PING]


def test_the_session_with_nc(broker: OmqBroker) -> None:
    if shutil.which("nc") is None:
        pytest.skip("nc is not installed (apt-get install netcat-openbsd)")
    command = the_block("sh", " nc ")
    typed, shown = block_after(command), block_after(command, 2)
    done = subprocess.run(
        ["bash", "-c", at(broker, command.text)], input=typed.text, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    expected, came = frames(shown.text), frames(done.stdout)
    assert [kind for kind, _ in expected].count(PING) == 1
    assert PING in [kind for kind, _ in came]
    # The page's reader types line by line, and so meets the ping first; here the lines come at once. The last frame
    # says why the broker closed.
    assert without_pings(came)[:-1] == without_pings(expected)
    assert b"heartbeat timeout" in came[-1][1]


def test_the_ocaml_client(broker: OmqBroker, tmp_path: Path) -> None:
    need_ocaml()
    source = the_block("ocaml", "let version")
    (tmp_path / "watch.ml").write_text(at(broker, source.text))
    building = the_block("sh", "ocamlfind")
    [compiling] = [line for line in building.text.splitlines() if line.startswith("ocamlfind")]
    subprocess.run(compiling.split(), cwd=tmp_path, check=True, capture_output=True)
    expected = block_after(building).text.splitlines()
    with subprocess.Popen([tmp_path / "watch"], stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None
            printed = [client.stdout.readline().rstrip("\n") for _ in expected]
        finally:
            client.kill()
    assert printed == expected


def test_the_client_is_as_short_as_it_looks() -> None:
    assert len(the_block("ocaml", "let version").text.splitlines()) <= 30
