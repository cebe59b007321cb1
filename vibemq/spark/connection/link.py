"""One connection to one broker: connect, log in, send and receive frames. Blocking; does not reconnect."""

import os
import select
import socket
import ssl
from collections.abc import Iterator

from vibemq.spark.connection import wire
from vibemq.spark.errors import ConnectionLost, Refused, SourceError, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.values import Endpoint

DIAL_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 60.0
PING_AFTER_S = 20.0
"""Silence after which a peer that owes an answer is asked for a sign of life. The answer itself may take longer: the
commit of a large transaction is answered when all of its messages are in their queues."""
PINGS = 2
"""Without a sign of life since the first of them, the peer is given up."""
EXTENSIONS = ("batch/1", "cursor/1")
"""Needed."""
ADMIN_EXTENSION = "admin/1"
"""For lists in pages."""
FRAME_BYTES_MAX = 1 << 28
COPIED_BYTES_MAX = 1 << 16


class Link:
    """Raises ConnectionLost wherever the connection ends or its peer falls silent."""

    def __init__(self, endpoint: Endpoint, settings: SourceOptions, timeout_s: float = DIAL_TIMEOUT_S) -> None:
        """Dial and log in; `timeout_s` is for each of both.

        Raises:
            ConnectionLost: nobody answers.
            Refused: the broker does not let us in.
            SourceError: a file or variable of the options cannot be read, or this is no broker with cursors.
        """
        secrets = _credentials(settings)
        self._silence_s, self._pings = timeout_s, 0
        try:
            self._socket = _dial(endpoint, settings, timeout_s)
        except ssl.SSLCertVerificationError as error:
            # Waiting would not help.
            where = f"{endpoint.host}:{endpoint.port}"
            raise SourceError(f"{where}: {error.verify_message}; see tls.ca and tls.serverName") from None
        except ssl.SSLError as error:
            if error.reason in (
                "WRONG_VERSION_NUMBER",
                "HTTP_REQUEST",
                "PACKET_LENGTH_TOO_LONG",
                "RECORD_LAYER_FAILURE",
            ):
                where = f"{endpoint.host}:{endpoint.port}"
                raise SourceError(f"{where} does not speak TLS; write vibemq:// in the option endpoint") from None
            raise ConnectionLost(f"{endpoint.host}:{endpoint.port}: {_reason(error)}") from None
        except (OSError, ValueError) as error:
            raise ConnectionLost(f"{endpoint.host}:{endpoint.port}: {_reason(error)}") from None
        try:
            self._log_in(secrets)
        except ConnectionLost as lost:
            self.close()
            where, silent = f"{endpoint.host}:{endpoint.port}", isinstance(lost.__context__, TimeoutError)
            if not silent and not isinstance(self._socket, ssl.SSLSocket) and _speaks_tls(endpoint, timeout_s):
                raise SourceError(f"{where} speaks TLS; write vibemqs:// in the option endpoint") from None
            hint = "is this the native listener of a VibeMQ, usually port 2925?"
            raise ConnectionLost(f"no answer to the login ({lost}); {hint}") from None
        except BaseException:
            self.close()
            raise
        self._silence_s, self._pings = PING_AFTER_S, PINGS

    def send(self, frame: wire.Frame) -> None:
        try:
            self._socket.settimeout(SEND_TIMEOUT_S)
            for piece in _for_sending(frame):
                self._socket.sendall(piece)
        except OSError as error:
            raise ConnectionLost(_reason(error)) from None

    def receive(self) -> wire.WireReply:
        """What comes next, however long it takes a peer that shows signs of life."""
        self._socket.settimeout(self._silence_s)
        answer = self._frame()
        while answer.kind == wire.PONG:
            answer = self._frame()
        if answer.kind == wire.DISCONNECT:
            raise ConnectionLost(f"the broker said goodbye: {wire.headers(answer).get('reason', 'no reason given')}")
        return answer

    @property
    def is_quiet(self) -> bool:
        """Whether it is still open, with nothing to read: a peer that has said goodbye has said something."""
        try:
            return not select.select([self._socket], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        try:
            self._socket.close()
        except OSError:
            pass  # It is gone either way.

    def __del__(self) -> None:
        # Nobody tells a reader that its query is over.
        if hasattr(self, "_socket"):
            self.close()

    def _frame(self) -> wire.WireReply:
        size = wire.frame_size(bytes(self._exactly(wire.HEAD_BYTES)), most=FRAME_BYTES_MAX)
        return wire.reply(self._exactly(size))

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, got = memoryview(data), 0
        try:
            while got < size:
                count = self._some(view[got:])
                if not count:
                    raise ConnectionLost("the broker closed the connection")
                got += count
        except OSError as error:
            raise ConnectionLost(_reason(error)) from None
        return data

    def _some(self, room: memoryview) -> int:
        for _ in range(self._pings):
            try:
                return self._socket.recv_into(room)
            except TimeoutError:
                self._socket.sendall(b"".join(wire.plain(wire.PING, "ping")))
        return self._socket.recv_into(room)

    def _log_in(self, secrets: dict[str, str]) -> None:
        about = {"client-name": f"spark {socket.gethostname()} {os.getpid()}"}
        about["supported-extensions"] = ",".join((*EXTENSIONS, ADMIN_EXTENSION))
        self.send(wire.plain(wire.CONNECT, "connect", headers=secrets | about))
        answer = self.receive()
        if answer.kind == wire.ERROR:
            raise explained(Refused(*wire.error(answer)), "")
        granted = wire.headers(answer).get("negotiated-extensions", "").split(",")
        missing = [name for name in EXTENSIONS if name not in granted]
        if answer.kind != wire.CONNECT_ACK or missing:
            raise SourceError(f"this broker does not offer {' and '.join(missing)}; it must be a VibeMQ with cursors")


def _for_sending(frame: wire.Frame) -> Iterator[wire.Blob]:
    """Small pieces together, large ones as they are: a copy costs more than a system call."""
    small: list[wire.Blob] = []
    for piece in frame:
        if len(piece) < COPIED_BYTES_MAX:
            small.append(piece)
            continue
        if small:
            yield b"".join(small)
        yield piece
        small = []
    if small:
        yield b"".join(small)


def _dial(endpoint: Endpoint, settings: SourceOptions, timeout_s: float) -> socket.socket:
    connection = socket.create_connection((endpoint.host, endpoint.port), timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if endpoint.tls or settings.tls:
            name = settings.tls_server_name or endpoint.host
            return _tls_context(settings).wrap_socket(connection, server_hostname=name)
    except BaseException:
        connection.close()
        raise
    return connection


def _speaks_tls(endpoint: Endpoint, timeout_s: float) -> bool:
    """A broker that wants TLS hangs up without a word on a client that does not begin with it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout_s) as connection:
            context.wrap_socket(connection).close()
    except (OSError, ValueError):
        return False
    return True


def _need_readable(settings: SourceOptions) -> None:
    """The operating system does not say which file it means."""
    files = (("ca", settings.tls_ca), ("certificate", settings.tls_certificate), ("key", settings.tls_key))
    for key, file in files:
        try:
            if file:
                open(file, "rb").close()
        except OSError as error:
            raise SourceError(
                f"option tls.{key}: the file {file} cannot be read on {socket.gethostname()} ({error.strerror}); "
                "correct the path, or the file's owner or mode"
            ) from None


def _tls_context(settings: SourceOptions) -> ssl.SSLContext:
    _need_readable(settings)
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
        if settings.tls_certificate:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise SourceError(f"the files of tls.ca, tls.certificate and tls.key cannot be used here: {error}") from None
    if not settings.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _credentials(settings: SourceOptions) -> dict[str, str]:
    password = _secret(settings.password_file, settings.password_env, "password")
    token = _secret(settings.token_file, settings.token_env, "token")
    found = {"authUsername": settings.username, "authPassword": password, "authToken": token}
    return {key: value for key, value in found.items() if value}


def _secret(path: str, variable: str, what: str) -> str:
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"option {what}File: {error} (on {socket.gethostname()})") from None
    if not variable:
        return ""
    if not os.environ.get(variable):
        raise SourceError(
            f"option {what}Env: {variable} is not set on {socket.gethostname()}; for executors set"
            f" spark.executorEnv.{variable}"
        )
    return os.environ[variable]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
