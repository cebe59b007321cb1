"""schemathesis asks the HTTP API what its description allows and what it does not, as one user: `make fuzz-api` does so
for minutes, `test_http_schema.py` for seconds."""

import argparse
import base64
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.integration.access import EVERYBODY, PASSWORD
from tests.integration.conditions import running
from tests.interop.omq import OmqBroker

NOT_CHECKED = ("positive_data_acceptance", "ensure_resource_availability", "missing_required_header")
"""What is allowed by the description may be refused for the state of the broker: names that nobody has made. The one
header that is required is answered with 428 where it is missing, which the check does not know."""
SETTINGS = (
    "".join(f"[checks.{name}]\nenabled = false\n\n" for name in NOT_CHECKED)
    + """
# 431 is a refusal, too.
[checks.negative_data_rejection]
expected-statuses = ["4xx", "5xx"]

# With the longest connection_id the header is too long, which is found before its method is looked at.
[[operations]]
include-path = "/connections"
phases.coverage.unexpected-methods = []

# An application that has committed nothing, or was forgotten, has no version: the answer says null.
[[operations]]
include-path = "/transactions/{app}"
checks.use_after_free.enabled = false
"""
)
"""All checks but these are made. One that is named on the command line is made for every path, whatever stands here."""
LEFT_OUT = r"/(events|tail|backups|reload|session|deliveries|redirect)$"
"""Answers without an end, what writes folders, and what logs the user out."""


def broker_of(folder: Path) -> OmqBroker:
    folder.mkdir(parents=True, exist_ok=True)
    return OmqBroker(folder, toml=f"{EVERYBODY}\n[http]\nrequests_per_second = 0\n")


def look(broker: OmqBroker, user: str, *, examples: int, seed: int, phases: str, seconds: int = 0) -> str:
    """What schemathesis has to say; "" when it has found nothing."""
    credentials = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        *("run", f"http://127.0.0.1:{broker.http_port}/api/v1/openapi.json"),
        *("--header", f"Authorization: Basic {credentials}"),
        *("--exclude-path-regex", LEFT_OUT),
        *("--phases", phases, "--max-examples", str(examples), "--seed", str(seed)),
        *("--request-timeout", "30", "--generation-database", "none", "--no-color", "--warnings", "off"),
    ]
    if seconds:
        command += ["--max-time", str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "schemathesis.toml").write_text(SETTINGS)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout[-20_000:] + done.stderr[-2_000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = ""
    with tempfile.TemporaryDirectory() as folder, running(broker_of(Path(folder))) as broker:
        assert isinstance(broker, OmqBroker)
        for user in ("root", "owner"):
            found += look(
                broker,
                user,
                examples=1_000,
                seed=options.seed,
                phases="examples,coverage,fuzzing,stateful",
                seconds=round(options.minutes * 30),
            )
            assert broker.is_alive
    print(found or "nothing was found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
