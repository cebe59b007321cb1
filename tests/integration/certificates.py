"""An authority of our own for tests: what it signs is valid for localhost and 127.0.0.1."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Signed:
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    folder: Path
    ca: Path

    @classmethod
    def made_in(cls, folder: Path, name: str = "ca") -> "Authority":
        ca = folder / f"{name}.pem"
        _openssl("req", "-x509", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", ca)
        return cls(folder, ca)

    def sign(self, name: str, *, names: str = "DNS:localhost,IP:127.0.0.1") -> Signed:
        """`names`: the alternative ones, as openssl writes them."""
        certificate, key, request = (self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        _openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions = self.folder / "extensions"
        extensions.write_text(f"subjectAltName={names}\n")
        signer = ("-CA", self.ca, "-CAkey", self.ca.with_suffix(".key"), "-CAcreateserial")
        _openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", certificate)
        return Signed(certificate, key)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, stdin=subprocess.DEVNULL)
