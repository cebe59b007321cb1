import subprocess
import sys

import pytest

from vibemq.cli.entry import run_app
from vibemq.cli.main import application


@pytest.mark.parametrize("verb", ["serve", "pub", "sub", "ping", "bench", "demo"])
def test_each_verb_is_there_alone_and_among_all(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([verb, "--help"], ["--help"]):
        assert run_app(application(words), "vibemq", words) == 0
        assert verb in capsys.readouterr().out


def test_a_mistyped_verb_is_told_of_a_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["srve"]
    assert run_app(application(words), "vibemq", words) != 0
    assert "'serve'" in capsys.readouterr().err


def test_a_broker_loads_neither_the_client_nor_what_draws_tables() -> None:
    code = (
        "import sys; from vibemq.cli.main import application; application(['serve']); import vibemq.server.app;"
        "print([name for name in sys.modules if name.startswith(('vibemq.client', 'rich.table', 'rich.progress'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
