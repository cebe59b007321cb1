"""The TLS context of a client: what it trusts and what it shows, read from files once while they stay as they are."""

import functools
import os
import ssl
from pathlib import Path
from typing import NamedTuple

from vibemq.client.address import ClientSettings
from vibemq.errors import ConfigInvalid


def tls_context(settings: ClientSettings) -> ssl.SSLContext:
    """
    One for all attempts with the same files while these stay as they are: the authorities of the system take 20 to 40
    ms to read, in which nothing else of the program runs. A renewed file is read anew.

    Raises:
        ConfigInvalid: a file cannot be used.
    """
    _need_readable(settings)
    defaults = ssl.get_default_verify_paths()
    files = (settings.tls_ca, settings.tls_certificate, settings.tls_key, defaults.cafile, defaults.capath)
    seen = tuple(_state_of(file) for file in files)
    return _context_of(_Tls(settings.verify_certificate, *files[:3]), seen)


class _Tls(NamedTuple):
    verify_certificate: bool
    tls_ca: str
    tls_certificate: str
    tls_key: str


def _state_of(file: str | None) -> tuple[int, ...] | None:
    try:
        found = os.stat(file) if file else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found else None


@functools.lru_cache(maxsize=8)
def _context_of(settings: _Tls, seen: tuple[tuple[int, ...] | None, ...]) -> ssl.SSLContext:
    """seen: the state of the files, for the cache alone."""
    file = settings.tls_ca
    try:
        if settings.verify_certificate or settings.tls_ca:
            context = ssl.create_default_context(cafile=settings.tls_ca or None)
        else:
            # The authorities of the system would not be asked.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if settings.tls_certificate:
            file = settings.tls_certificate
            # Without a password to give, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(file, settings.tls_key or None, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"the TLS file {file} cannot be used: {_file_sentence(error, settings)}") from error
    if not settings.verify_certificate:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _need_readable(settings: ClientSettings) -> None:
    """The operating system does not say which file it means."""
    for key, file in (
        ("tlsCa", settings.tls_ca),
        ("tlsCertificate", settings.tls_certificate),
        ("tlsKey", settings.tls_key),
    ):
        try:
            if file:
                Path(file).open("rb").close()
        except OSError as error:
            raise ConfigInvalid(
                f"{key}: the file {file} cannot be read ({error.strerror}); correct the path, or the file's owner or "
                "mode"
            ) from error


def _no_password() -> str:
    raise ValueError("its key is encrypted; give one without a password")


def _file_sentence(error: Exception, settings: _Tls) -> str:
    if isinstance(error, ssl.SSLError):
        if not settings.tls_certificate:
            return f"it is not a PEM file of this kind ({error.reason or error})"
        key = (
            "its key does not belong to it"
            if settings.tls_key
            else "it holds no key; name the file of its key in tlsKey"
        )
        return f"it is not a PEM file of this kind, or {key} ({error.reason or error})"
    return getattr(error, "strerror", None) or str(error)
