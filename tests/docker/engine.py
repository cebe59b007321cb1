"""The docker command, one container of the image, and one run of the compose file."""

import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
IMAGE = "vibemq:docker-test"
HARDENING = ("--read-only", "--tmpfs", "/tmp:noexec", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
PASSED_ON = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
"""A package mirror that pip is told of here is told to the build as well."""


def docker(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """Standard output of one docker command; its failure fails the test with what it said."""
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, cwd=REPOSITORY, env=os.environ | (environment or {})
    )
    assert done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def why_no_engine() -> str:
    """A sentence when there is no working engine, else nothing."""
    if shutil.which("docker") is None:
        return "there is no docker command; install Docker Engine with Buildx and Compose, or put it on the PATH"
    for command in (["docker", "version"], ["docker", "buildx", "version"], ["docker", "compose", "version"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"`{' '.join(command)}` fails: {done.stderr.strip() or done.stdout.strip()}"
    return ""


def build() -> str:
    """Build the image as a user would; its name."""
    arguments = [word for name in PASSED_ON if os.environ.get(name) for word in ("--build-arg", name)]
    docker("build", "--file", "docker/Dockerfile", "--tag", IMAGE, *arguments, ".")
    return IMAGE


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Container:
    """A broker whose ports stay the same when it is started again."""

    name: str
    port: int

    @property
    def url(self) -> str:
        return f"vibemq://127.0.0.1:{self.port}"

    def kill(self) -> None:
        docker("kill", self.name)

    def start(self) -> None:
        docker("start", self.name)

    def stop(self, grace_s: int) -> float:
        """Seconds that it took; docker sends SIGTERM, and SIGKILL once the grace is over."""
        began = time.monotonic()
        docker("stop", "--time", str(grace_s), self.name)
        return time.monotonic() - began

    def inspect(self, template: str) -> str:
        return docker("inspect", "--format", template, self.name)

    def execute(self, *command: str) -> str:
        return docker("exec", self.name, *command)

    def refuses(self, *command: str) -> str:
        """Run a command that must fail; what it said."""
        done = subprocess.run(["docker", "exec", self.name, *command], capture_output=True, text=True)
        assert done.returncode != 0, f"{command} succeeded: {done.stdout}"
        return done.stdout + done.stderr

    def logs(self) -> str:
        done = subprocess.run(["docker", "logs", self.name], capture_output=True, text=True)
        return done.stdout + done.stderr

    def wait_until_healthy(self) -> None:
        wait_until(lambda: self.inspect("{{.State.Health.Status}}") == "healthy", self.logs)


@contextmanager
def container(image: str, options: Sequence[str] = HARDENING) -> Iterator[Container]:
    """Run the image as docker/compose.yaml does, on a named volume; container and volume go afterwards."""
    name = f"vibemq-test-{uuid.uuid4().hex[:12]}"
    port = free_port()
    docker(
        *("run", "--detach", "--name", name, "--volume", f"{name}:/var/lib/vibemq"),
        *("--publish", f"127.0.0.1:{port}:2925", *options, image),
    )
    try:
        yield Container(name, port)
    finally:
        docker("rm", "--force", name)
        docker("volume", "rm", "--force", name)


@dataclass(frozen=True)
class Composition:
    """The compose files, with ports, token and project name of this test's own."""

    project: str
    port: int
    environment: dict[str, str]

    @property
    def url(self) -> str:
        return f"vibemq://127.0.0.1:{self.port}"

    def __call__(self, *arguments: str) -> str:
        files = ("--file", "docker/compose.yaml", "--file", "docker/compose.auth.yaml")
        return docker("compose", "--project-name", self.project, *files, *arguments, environment=self.environment)

    def state(self) -> dict[str, object]:
        listed = json.loads(self("ps", "--all", "--format", "json"))
        found: dict[str, object] = listed[0] if isinstance(listed, list) else listed
        return found


@contextmanager
def composition(image: str, token_file: Path) -> Iterator[Composition]:
    """The image is the one given, so that the test leaves no other behind."""
    port, http_port = free_port(), free_port()
    environment = {
        "BROKER_IMAGE": image,
        "BROKER_PORT": str(port),
        "BROKER_HTTP_PORT": str(http_port),
        "BROKER_TOKEN_FILE": str(token_file),
    }
    compose = Composition(f"vibemq-test-{uuid.uuid4().hex[:12]}", port, environment)
    try:
        yield compose
    finally:
        compose("down", "--volumes", "--timeout", "10")
