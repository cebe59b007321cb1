import com.fasterxml.jackson.databind.ObjectMapper;
import io.cloudevents.CloudEvent;
import io.cloudevents.core.builder.CloudEventBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import org.apache.eventmesh.client.tcp.EventMeshTCPClient;
import org.apache.eventmesh.client.tcp.EventMeshTCPClientFactory;
import org.apache.eventmesh.client.tcp.common.AsyncRRCallback;
import org.apache.eventmesh.client.tcp.common.ReceiveMsgHook;
import org.apache.eventmesh.client.tcp.conf.EventMeshTCPClientConfig;
import org.apache.eventmesh.common.protocol.SubscriptionMode;
import org.apache.eventmesh.common.protocol.SubscriptionType;
import org.apache.eventmesh.common.protocol.tcp.EventMeshMessage;
import org.apache.eventmesh.common.protocol.tcp.Package;
import org.apache.eventmesh.common.protocol.tcp.UserAgent;

/** Carries out commands of standard input with the real SDK; prints a line of JSON for each, and for each message. */
public final class EventMeshDriver {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final PrintStream OUT = System.out;
  private static final Map<String, Client<?>> CLIENTS = new ConcurrentHashMap<>();
  private static final long WAIT_MS = 20_000;

  /** What is done with the two kinds of messages. */
  private interface Kind<M> {
    M make(String topic, String body, String ttl);

    String topic(M message);

    String body(M message);

    Map<String, String> properties(M message);

    M answer(M message, String body);
  }

  private static final Kind<EventMeshMessage> MESSAGES =
      new Kind<>() {
        public EventMeshMessage make(String topic, String body, String ttl) {
          Map<String, String> properties = new HashMap<>();
          properties.put("msgtype", "persistent");
          properties.put("ttl", ttl);
          properties.put("keys", "0123456789");
          EventMeshMessage made = new EventMeshMessage(topic, properties, new HashMap<>(), body);
          made.getHeaders().put("datacontenttype", "text/plain");
          return made;
        }

        public String topic(EventMeshMessage message) {
          return message.getTopic();
        }

        public String body(EventMeshMessage message) {
          return message.getBody();
        }

        public Map<String, String> properties(EventMeshMessage message) {
          return message.getProperties();
        }

        public EventMeshMessage answer(EventMeshMessage message, String body) {
          message.setBody(body);
          return message;
        }
      };

  private static final Kind<CloudEvent> EVENTS =
      new Kind<>() {
        public CloudEvent make(String topic, String body, String ttl) {
          return CloudEventBuilder.v1()
              .withId(UUID.randomUUID().toString())
              .withSubject(topic)
              .withSource(URI.create("/driver"))
              .withDataContentType("application/cloudevents+json")
              .withType("cloudevents")
              .withData(body.getBytes(StandardCharsets.UTF_8))
              .withExtension("ttl", ttl)
              .build();
        }

        public String topic(CloudEvent event) {
          return event.getSubject();
        }

        public String body(CloudEvent event) {
          return event.getData() == null ? "" : new String(event.getData().toBytes(), StandardCharsets.UTF_8);
        }

        public Map<String, String> properties(CloudEvent event) {
          Map<String, String> found = new HashMap<>();
          for (String name : event.getExtensionNames()) {
            found.put(name, String.valueOf(event.getExtension(name)));
          }
          return found;
        }

        public CloudEvent answer(CloudEvent event, String body) {
          return CloudEventBuilder.from(event).withData(body.getBytes(StandardCharsets.UTF_8)).build();
        }
      };

  /** The SDK never calls it. */
  private static final AsyncRRCallback CALLBACK = answered -> {};

  /** One client object of the SDK, which is two connections. */
  private static final class Client<M> {
    final String name;
    final Kind<M> kind;
    final EventMeshTCPClient<M> client;
    final Semaphore allowed = new Semaphore(Integer.MAX_VALUE);
    volatile String answer;
    volatile long pauseMs;

    Client(String name, Kind<M> kind, Class<M> type, String purpose, String group, int port, String password)
        throws Exception {
      this.name = name;
      this.kind = kind;
      UserAgent agent =
          UserAgent.builder()
              .env("test").host("localhost").port(8362).group(group).path("/data").pid(4711).username("driver")
              .password(password).subsystem("5023").version("2.1").idc("FT").purpose(purpose).build();
      EventMeshTCPClientConfig config =
          EventMeshTCPClientConfig.builder().host("127.0.0.1").port(port).userAgent(agent).build();
      client = EventMeshTCPClientFactory.createEventMeshTCPClient(config, type);
      ReceiveMsgHook<M> hook =
          message -> {
            say("message", name, "topic", kind.topic(message), "body", kind.body(message),
                "properties", kind.properties(message));
            allowed.acquireUninterruptibly();
            pause(pauseMs);
            String text = answer;
            return text == null ? Optional.empty() : Optional.of(kind.answer(message, text + kind.body(message)));
          };
      client.registerSubBusiHandler(hook);
      client.registerPubBusiHandler(
          message -> {
            say("late", name, "body", kind.body(message));
            return Optional.empty();
          });
      client.init();
    }

    private static void pause(long pauseMs) {
      try {
        Thread.sleep(pauseMs);
      } catch (InterruptedException closed) {
        Thread.currentThread().interrupt();
      }
    }

    void obey(String[] words) throws Exception {
      switch (words[0]) {
        case "subscribe":
          client.subscribe(words[2], SubscriptionMode.valueOf(words[3]), SubscriptionType.valueOf(words[4]));
          break;
        case "listen":
          client.listen();
          break;
        case "unsubscribe":
          client.unsubscribe();
          break;
        case "publish":
          said(client.publish(kind.make(words[2], words[3], "60000"), WAIT_MS));
          return;
        case "many":
          for (int number = 0; number < Integer.parseInt(words[4]); number++) {
            Package sent = client.publish(kind.make(words[2], words[3] + number, "60000"), WAIT_MS);
            if (sent.getHeader().getCode() != 0) {
              said(sent);
              return;
            }
          }
          break;
        case "broadcast":
          client.broadcast(kind.make(words[2], words[3], "60000"), WAIT_MS);
          break;
        case "request":
          said(client.rr(kind.make(words[2], words[3], words[4]), Long.parseLong(words[4]) + 2000));
          return;
        case "ask":
          client.asyncRR(kind.make(words[2], words[3], words[4]), CALLBACK, Long.parseLong(words[4]));
          break;
        case "slow":
          pauseMs = Long.parseLong(words[2]);
          break;
        case "answer":
          answer = words.length > 2 ? words[2] : null;
          break;
        case "hold":
          allowed.drainPermits();
          break;
        case "go":
          allowed.release(1_000_000);
          break;
        case "close":
          client.close();
          CLIENTS.remove(name);
          Thread.interrupted();
          break;
        default:
          throw new IllegalArgumentException(words[0]);
      }
      say("done", name, "command", words[0]);
    }

    private void said(Package answered) {
      say("answered", name, "code", answered.getHeader().getCode(), "desc", answered.getHeader().getDesc(),
          "body", String.valueOf(answered.getBody()));
    }
  }

  static synchronized void say(String event, String client, Object... facts) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("event", event);
    line.put("client", client);
    for (int at = 0; at < facts.length; at += 2) {
      line.put((String) facts[at], facts[at + 1]);
    }
    try {
      OUT.println(JSON.writeValueAsString(line));
      OUT.flush();
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split("\t", -1);
      try {
        if (words[0].equals("client")) {
          int port = Integer.parseInt(words[5]);
          String password = words.length > 6 ? words[6] : "secret";
          CLIENTS.put(
              words[1],
              words[2].equals("ce")
                  ? new Client<>(words[1], EVENTS, CloudEvent.class, words[3], words[4], port, password)
                  : new Client<>(words[1], MESSAGES, EventMeshMessage.class, words[3], words[4], port, password));
          say("done", words[1], "command", "client");
        } else {
          CLIENTS.get(words[1]).obey(words);
        }
      } catch (Exception error) {
        Thread.interrupted();
        say("failed", words[1], "command", words[0], "error", String.valueOf(error));
      }
    }
    System.exit(0);
  }
}
