"""TLS of a listener, from files that may be replaced while the broker runs."""

import asyncio
import hashlib
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from vibemq.config import Tls
from vibemq.errors import ConfigInvalid
from vibemq.server.access.certificates import users_in
from vibemq.settings import Loaded, place_of

log = logging.getLogger("vibemq.listener")


class TlsContext(ssl.SSLContext):
    """Knows from what it was made."""

    files: Tls


@dataclass(frozen=True, slots=True)
class NewerTls:
    """For `ServerTls.take`."""

    context: TlsContext
    digests: dict[Path, bytes]
    changed: tuple[Path, ...]
    """Files that are others, or hold something else."""


class ServerTls:
    """`context` is for the listener's whole life; which files a handshake uses is decided when it begins.

    A certificate loaded into a context cannot be taken out again, nor can a client CA. So a reload makes a new context,
    and the listener's own hands each handshake over to the newest. Connections that exist are left alone.

    Raises:
        ConfigInvalid: a file cannot be used; it is named.
    """

    def __init__(self, files: Tls, place: str) -> None:
        """`place`: the name of the settings, for errors."""
        self._place = place
        # Before the files are read: what changes in between is found to have changed.
        self._digests = _digests(files)
        self._newest = self.context = _load(files, place)
        # Called in every handshake, whether or not the client names a server.
        self.context.sni_callback = self._hand_over

    @property
    def certificate(self) -> Path:
        """The file of the certificate that handshakes use now."""
        return self._newest.files.certificate

    def newer(self, files: Tls) -> NewerTls | None:
        """What to take so that handshakes use the files as they are now; None when nothing has changed. Blocking.

        Raises:
            ConfigInvalid: as the constructor.
        """
        digests = _digests(files)
        changed = tuple(path for path, digest in digests.items() if self._digests.get(path) != digest)
        if files == self._newest.files and not changed and digests:
            return None
        return NewerTls(_load(files, self._place), digests, changed)

    def take(self, newer: NewerTls) -> None:
        """Handshakes that begin from now on use it."""
        self._newest, self._digests = newer.context, newer.digests

    def _hand_over(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        if connection.context is not self._newest:
            connection.context = self._newest


def rule_of(connection: ssl.SSLObject | None) -> Tls | None:
    """The settings that the handshake of a connection went by; None without TLS."""
    context = connection.context if connection is not None else None
    return context.files if isinstance(context, TlsContext) else None


def certified_users(transport: asyncio.BaseTransport) -> tuple[str, ...]:
    """Users, known or not, for whom the certificate of the peer stands."""
    return users_in(transport.get_extra_info("peercert"), rule_of(transport.get_extra_info("ssl_object")))


def _digests(files: Tls) -> dict[Path, bytes]:
    """Of what the files hold; {} when one cannot be read."""
    paths = [path for path in (files.certificate, files.key, files.client_ca) if path is not None]
    try:
        return {path: hashlib.sha256(path.read_bytes()).digest() for path in paths}
    except OSError:
        return {}


class _Handshaking(ssl.SSLObject):
    """Tells the log why a handshake failed; asyncio drops such a connection without a word."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            log.info("TLS handshake failed: %s", _why(error.reason or ""), extra={"event": "conn.rejected"})
            raise


def _why(reason: str) -> str:
    if reason == "HTTP_REQUEST":
        return "an HTTP request came to a TLS listener; write https:// for the HTTP port"
    if reason in ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "UNSUPPORTED_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
        return "a client without TLS came to a TLS listener; it should write vibemqs://, or https:// for HTTP"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client presented no certificate, which this listener asks for (client_ca)"
    return reason.lower().replace("_", " ") or "the client gave up"


def unusable_file(files: Tls) -> tuple[str, str] | None:
    """The first setting whose file cannot be used, and why not; None when all can be."""
    try:
        _context(files)
    except (OSError, ValueError) as error:
        return _fault(files, error)
    return None


def _fault(files: Tls, error: OSError | ValueError) -> tuple[str, str]:
    """The setting whose file is at fault for the error, and what is wrong with it."""
    for key in ("certificate", "key", "client_ca"):
        path: Path | None = getattr(files, key)
        try:
            if path is not None:
                path.open("rb").close()
        except OSError as unread:
            why = f"the file {path} cannot be read ({unread.strerror}); correct the path, or the file's owner or mode"
            return key, why
    key = _wrong_content(files)
    if key == "key":
        return key, _wrong_key(files, error)
    return key, f"the file {getattr(files, key)} is not a PEM file of this kind ({error}); give another one"


_OF_ANOTHER_KEY = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""OpenSSL's reasons; the last one when the key is of another algorithm than that of the certificate."""


def _wrong_key(files: Tls, error: OSError | ValueError) -> str:
    path = files.key or files.certificate
    if getattr(error, "reason", None) in _OF_ANOTHER_KEY:
        return (
            f"the key in {path} does not belong to the first certificate in {files.certificate}; give the key of that "
            "certificate, or put its own certificate before those of its chain"
        )
    if files.key is None:
        return f"the file {path} holds no key that can be used ({error}); name the file of the certificate's key"
    return f"the file {path} is not a PEM file of this kind ({error}); give another one"


def check_tls_files(loaded: Loaded) -> None:
    """Raise ConfigInvalid for a file that cannot be used; names the setting and where it comes from."""
    places: list[tuple[tuple[str | int, ...], Tls | None]] = [
        (("listeners", number), listener.tls) for number, listener in enumerate(loaded.settings.listeners)
    ]
    for place, tls in [*places, (("http",), loaded.settings.http.tls)]:
        wrong = None if tls is None else unusable_file(tls)
        if wrong is not None:
            key, why = wrong
            raise ConfigInvalid(f"{place_of((*place, 'tls', key), loaded.origins)} is not valid: {why}")


def _wrong_content(files: Tls) -> str:
    """OpenSSL does not say which of the files it means."""
    if not _holds_certificates(files.certificate):
        return "certificate"
    return "client_ca" if files.client_ca is not None and not _holds_certificates(files.client_ca) else "key"


def _holds_certificates(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except OSError:
        # OpenSSL's errors are of this kind, too.
        return False
    return True


def _load(files: Tls, place: str) -> TlsContext:
    # Read once: between two looks a file may be replaced.
    try:
        return _context(files)
    except (OSError, ValueError) as error:
        key, why = _fault(files, error)
        raise ConfigInvalid(f"setting {place}.{key} is not valid: {why}") from None


def _context(files: Tls) -> TlsContext:
    """TLS 1.2 or newer."""
    context = TlsContext(ssl.PROTOCOL_TLS_SERVER)
    context.files = files
    context.sslobject_class = _Handshaking
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a password to give, OpenSSL would ask for one at the terminal.
    context.load_cert_chain(files.certificate, files.key, password=_no_password)
    if files.client_ca is not None:
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session shows no certificate: a CA that was taken away would go on being trusted.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one without a password")
