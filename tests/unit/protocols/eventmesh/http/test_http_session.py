"""One HTTP session of EventMesh without a server."""

import gc
import weakref

from vibemq.model.commands import Publish
from vibemq.protocols.eventmesh.http import EventMeshHttpSession, EventMeshHttpSettings
from vibemq.protocols.session import Authenticate, Principal
from vibemq.testing.session_conformance import context


def test_a_session_that_is_gone_frees_its_memory_at_once() -> None:
    session = EventMeshHttpSession.alone(context(), EventMeshHttpSettings())
    session.receive_data(b"GET /?code=104&topic=t&content=x HTTP/1.1\r\n\r\n")
    [login] = session.commands()
    assert isinstance(login, Authenticate)
    session.authenticated(login.token, Principal("anonymous", superuser=True))
    [publish] = session.commands()
    assert isinstance(publish, Publish)
    gone = weakref.ref(session)
    gc.disable()
    try:
        del session
        assert gone() is None
        publish.token(None)
    finally:
        gc.enable()
