"""S16: what is installed with VibeMQ, and under which licence."""

from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata, requires

from packaging.requirements import Requirement

KNOWN = {
    "annotated-doc": "MIT",
    "annotated-types": "MIT",
    "anyio": "MIT",
    "argon2-cffi": "MIT",
    "argon2-cffi-bindings": "MIT",
    "bcrypt": "Apache-2.0",
    "brotli": "MIT",
    "cffi": "MIT",
    "click": "BSD",
    "google-crc32c": "Apache",
    "h11": "MIT",
    "httptools": "MIT",
    "idna": "BSD",
    "lmdb": "OLDAP-2.8",
    "markdown-it-py": "MIT",
    "mdurl": "MIT",
    "orjson": "Apache-2.0",
    "pycparser": "BSD",
    "pydantic": "MIT",
    "pydantic-core": "MIT",
    "pydantic-settings": "MIT",
    "pygments": "BSD",
    "python-dotenv": "BSD",
    "rich": "MIT",
    "shellingham": "ISC",
    "starlette": "BSD",
    "typer": "MIT",
    "typing-extensions": "PSF",
    "typing-inspection": "MIT",
    "uvicorn": "BSD",
    "uvloop": "MIT",
}
"""Everything that `pip install vibemq[speed]` installs; what comes new is looked at by somebody first."""


def installed(package: str, extras: tuple[str, ...], found: dict[str, PackageMetadata]) -> dict[str, PackageMetadata]:
    for text in requires(package) or []:
        wanted = Requirement(text)
        name = wanted.name.lower().replace("_", "-")
        applies = wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if not applies or name in found:
            continue
        try:
            found[name] = metadata(name)
        except PackageNotFoundError:
            continue  # an extra that is not installed here
        installed(name, tuple(wanted.extras), found)
    return found


def licence_of(about: PackageMetadata) -> str:
    fields = (*about.get_all("License-Expression", []), *about.get_all("License", []))
    return " ".join((*fields, *(line for line in about.get_all("Classifier", []) if line.startswith("License"))))


def test_every_dependency_is_known() -> None:
    found = installed("vibemq", ("speed",), {})
    assert set(found) - set(KNOWN) == set(), "look at the package and its licence, then name it here"
    assert len(found) > 20
    for name, about in found.items():
        licence = licence_of(about)
        assert KNOWN[name].lower() in licence.lower() or "OSI Approved" in licence, (name, licence)
        assert "GNU" not in licence, (name, licence)
