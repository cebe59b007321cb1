"""What the parts of one TCP session share: who the client is, its dialect, and its answers."""

from dataclasses import dataclass

from vibemq.errors import VibeMQError
from vibemq.model.commands import CreateQueue
from vibemq.protocols.base_session import SharedState
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.settings import EventMeshSettings
from vibemq.protocols.eventmesh.tcp.bodies import UserAgent
from vibemq.protocols.eventmesh.tcp.errors import status_of, text_of
from vibemq.protocols.eventmesh.tcp.frames import EventMeshDialect
from vibemq.protocols.eventmesh.tcp.package import ANSWERS, Cmd, OPStatus, Package, answer_frame
from vibemq.protocols.eventmesh.topics import topic_options


@dataclass(slots=True)
class EventMeshState(SharedState[EventMeshSettings]):
    dialect: EventMeshDialect = EventMeshDialect.EM13
    """Of the first frame, for ever."""
    agent: UserAgent | None = None
    """What the peer said in its HELLO_REQUEST, once it is welcome."""
    leaving: bool = False
    """The client has said goodbye: nothing more is handed out to it."""
    before_1_3: bool = False
    """Knows one form of a message."""
    form: Form | None = None
    """In which the session itself has published or replied."""

    @property
    def with_headers(self) -> bool:
        """Whether the client knows the field `headers` of a message, since 1.9."""
        return self.dialect is EventMeshDialect.EM13 and not self.before_1_3

    @property
    def session(self) -> int:
        return self.context.session

    def answer(self, cmd: Cmd, seq: bytes, code: int = 0, text: str = "") -> None:
        self.out.append(answer_frame(self.dialect, cmd, seq, code, text))

    def refuse(self, package: Package, error: VibeMQError) -> None:
        """Under the name of the command's answer, where it has one."""
        self.answer(ANSWERS.get(package.cmd, package.cmd), package.seq, status_of(error), text_of(error))

    def create_topic(self, topic: str) -> None:
        """Have a topic created that does not exist. Whoever may not create is told so by what comes next."""
        if self.settings.create_topics:
            options = topic_options(self.context, self.settings.durability)
            self.ask(CreateQueue(self.session, None, topic, options, implied=True))

    def say_goodbye(self, code: OPStatus, text: str) -> None:
        """Without a seq, so that every client takes it seriously: Java closes, C reconnects."""
        self.send(answer_frame(self.dialect, Cmd.SERVER_GOODBYE_REQUEST, b"", code, text))

    def give_up(self, error: VibeMQError) -> None:
        """The connection ends with this error."""
        if not self.failed:
            self.failed = True
            self.say_goodbye(OPStatus.FAIL, text_of(error))
        self.closing = True
