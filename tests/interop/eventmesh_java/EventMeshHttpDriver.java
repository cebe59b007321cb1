import io.cloudevents.CloudEvent;
import io.cloudevents.core.builder.CloudEventBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import org.apache.eventmesh.client.http.conf.EventMeshHttpClientConfig;
import org.apache.eventmesh.client.http.consumer.EventMeshHttpConsumer;
import org.apache.eventmesh.client.http.producer.EventMeshHttpProducer;
import org.apache.eventmesh.common.EventMeshMessage;
import org.apache.eventmesh.common.protocol.SubscriptionItem;
import org.apache.eventmesh.common.protocol.SubscriptionMode;
import org.apache.eventmesh.common.protocol.SubscriptionType;

/** HTTP clients of the SDK. A command is a line of tab-separated words; each is answered by `done` or `failed`. */
public final class EventMeshHttpDriver {

    private static EventMeshHttpClientConfig config(String port, String user, String password) {
        return EventMeshHttpClientConfig.builder().liteEventMeshAddr("127.0.0.1:" + port)
            .producerGroup("java-producers").consumerGroup("java-consumers").env("P").idc("FT").ip("127.0.0.1")
            .sys("1234").pid("4321").userName(user).password(password).build();
    }

    private static List<SubscriptionItem> items(String topic) {
        return Collections.singletonList(
            new SubscriptionItem(topic, SubscriptionMode.CLUSTERING, SubscriptionType.ASYNC));
    }

    public static void main(String[] words) throws Exception {
        EventMeshHttpProducer producer = new EventMeshHttpProducer(config(words[0], words[1], words[2]));
        EventMeshHttpConsumer consumer = new EventMeshHttpConsumer(config(words[0], words[1], words[2]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                obey(producer, consumer, line.split("\t"));
                System.out.println("done");
            } catch (Throwable error) {
                System.out.println("failed " + error);
            }
        }
        System.exit(0);
    }

    private static void obey(EventMeshHttpProducer producer, EventMeshHttpConsumer consumer, String[] words)
        throws Exception {
        switch (words[0]) {
            case "publish":
                producer.publish(EventMeshMessage.builder().topic(words[1]).content(words[2])
                    .bizSeqNo("123456789012345678901234567890").uniqueId("098765432109876543210987654321").build()
                    .addProp("ttl", "60000"));
                break;
            case "event":
                CloudEvent event = CloudEventBuilder.v1().withId("java-1").withSubject(words[1])
                    .withSource(URI.create("/java")).withType("cloudevents")
                    .withDataContentType("application/cloudevents+json")
                    .withData(words[2].getBytes(StandardCharsets.UTF_8)).withExtension("ttl", "60000").build();
                producer.publish(event);
                break;
            case "subscribe":
                consumer.subscribe(items(words[1]), words[2]);
                break;
            case "heartbeat":
                consumer.heartBeat(items(words[1]), words[2]);
                break;
            case "unsubscribe":
                consumer.unsubscribe(Collections.singletonList(words[1]), words[2]);
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
