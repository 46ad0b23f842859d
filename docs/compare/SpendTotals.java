import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigDecimal;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/** What each user spends in five minutes: java SpendTotals SERVERS STATE. Topics: spend, totals, dead. */
public class SpendTotals {
  static final ObjectMapper JSON = new ObjectMapper();

  static boolean isGood(String user, String value) {
    try {
      JsonNode record = JSON.readTree(value);
      Instant.parse(record.get("event_time").asText());
      new BigDecimal(record.get("amount").asText());
      return user != null;
    } catch (Exception e) {
      return false;
    }
  }

  static BigDecimal amount(String value) {
    try {
      return new BigDecimal(JSON.readTree(value).get("amount").asText()).setScale(2);
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  static long eventTime(String value, long logTime) {
    try {
      return Instant.parse(JSON.readTree(value).get("event_time").asText()).toEpochMilli();
    } catch (Exception e) {
      return logTime;
    }
  }

  public static void main(String[] args) {
    var text = Serdes.String();
    var builder = new StreamsBuilder();
    var input = Consumed.with(text, text)
        .withTimestampExtractor((record, newest) -> eventTime((String) record.value(), newest));
    var records = builder.stream("spend", input);
    records.filterNot(SpendTotals::isGood).to("dead", Produced.with(text, text));
    records.filter(SpendTotals::isGood)
        .groupByKey(Grouped.with(text, text))
        .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(5), Duration.ofMinutes(11)))
        .aggregate(
            () -> "0.00",
            (user, value, total) -> new BigDecimal(total).add(amount(value)).toPlainString(),
            Materialized.with(text, text))
        .toStream((window, total) -> Instant.ofEpochMilli(window.window().start()) + " " + window.key())
        .to("totals", Produced.with(text, text));

    var settings = new Properties();
    settings.putAll(Map.of(
        StreamsConfig.APPLICATION_ID_CONFIG, "spend-totals",
        StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0],
        StreamsConfig.STATE_DIR_CONFIG, args[1],
        StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
        StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0, // each record's result, not one a commit
        "auto.offset.reset", "earliest"));
    var streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }
}
