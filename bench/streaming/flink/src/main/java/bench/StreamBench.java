package bench;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.DoubleAdder;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.minicluster.RpcServiceSharing;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * The stream benchmarks on Flink: two task managers with a network between them, sources in one, operators in the other.
 *
 * <p>Arguments: workload (identity, wordcount), parallelism, records per source, records per second and source
 * (0: as many as go), buffer timeout in ms, guarantee (none, at_least_once, exactly_once), words. Prints one line of JSON.
 *
 * <p>A record is 20 bytes: when it was made (System.nanoTime, in every {@link #SAMPLE}th record, else 0), its number, four more.
 * An operator measures its speed after its first third: without start and warm-up.
 */
public final class StreamBench {
    static final int SAMPLE = 16;
    static final int IN = 20;
    static final int OUT = 50;
    static final int JSON = 150;
    static final int TABLE = 8192;
    static final int MOST_SAMPLES = 1 << 22;

    // Both ends run in this process: what the operators saw, for the one line at the end.
    static final DoubleAdder RATE = new DoubleAdder();
    static final AtomicLong RECORDS = new AtomicLong();
    static final AtomicLong SUM = new AtomicLong();
    static final AtomicLong WINDOWS = new AtomicLong();
    static final long[] LATENCIES = new long[MOST_SAMPLES];
    static final AtomicLong SAMPLES = new AtomicLong();

    private StreamBench() {}

    /** When an operator had its share of warm-up, and how fast it was from then on. */
    static final class Speed implements java.io.Serializable {
        private final long share;
        private long records;
        private long warmAt;
        private long warmRecords;

        Speed(long share) {
            this.share = share;
        }

        void took(long more) {
            records += more;
            if (warmAt == 0 && records >= share) {
                warmAt = System.nanoTime();
                warmRecords = records;
            }
        }

        void end() {
            RECORDS.addAndGet(records);
            if (warmAt != 0) {
                RATE.add((records - warmRecords) * 1e9 / (System.nanoTime() - warmAt));
            }
        }
    }

    /** 20 bytes in, 50 bytes out: the record, when it was made, when it was here. */
    static final class Identity extends ProcessFunction<byte[], byte[]> {
        private final Speed speed;
        private long sum;

        Identity(long share) {
            this.speed = new Speed(share);
        }

        @Override
        public void processElement(byte[] in, Context context, Collector<byte[]> out) throws Exception {
            ByteBuffer record = ByteBuffer.wrap(in);
            long made = record.getLong(0);
            long seen = made == 0 ? 0 : System.nanoTime();
            sum += record.getLong(8);
            speed.took(1);
            // After a third, so that the sample is one of the warm part.
            if (made != 0 && speed.warmAt != 0) {
                long at = SAMPLES.getAndIncrement();
                if (at < MOST_SAMPLES) {
                    LATENCIES[(int) at] = seen - made;
                }
            }
            byte[] answer = new byte[OUT];
            System.arraycopy(in, 0, answer, 0, IN);
            ByteBuffer.wrap(answer).putLong(IN, made).putLong(IN + 8, seen);
            out.collect(answer);
        }

        @Override
        public void close() {
            SUM.addAndGet(sum);
            speed.end();
        }
    }

    /** JSON to (word, 1). */
    static final class Parse extends ProcessFunction<byte[], Tuple2<String, Integer>> {
        private transient ObjectMapper mapper;

        @Override
        public void processElement(byte[] in, Context context, Collector<Tuple2<String, Integer>> out) throws Exception {
            if (mapper == null) {
                mapper = new ObjectMapper();
            }
            out.collect(Tuple2.of(mapper.readTree(in).get("word").asText(), 1));
        }
    }

    /** Counts the windows, and the records in them. */
    static final class Windows extends ProcessFunction<Tuple2<String, Integer>, byte[]> {
        private final Speed speed;
        private long windows;

        Windows(long share) {
            this.speed = new Speed(share);
        }

        @Override
        public void processElement(Tuple2<String, Integer> window, Context context, Collector<byte[]> out) {
            windows++;
            speed.took(window.f1);
        }

        @Override
        public void close() {
            WINDOWS.addAndGet(windows);
            speed.end();
        }
    }

    static byte[] record(long number) {
        byte[] record = new byte[IN];
        ByteBuffer.wrap(record).putLong(number % SAMPLE == 0 ? System.nanoTime() : 0).putLong(number);
        return record;
    }

    /** The lines that sources repeat: made once, so that making them costs little. */
    static final class Lines implements GeneratorFunction<Long, byte[]> {
        private final long words;
        private transient byte[][] table;

        Lines(long words) {
            this.words = words;
        }

        @Override
        public byte[] map(Long number) {
            if (table == null) {
                table = new byte[TABLE][];
                for (int n = 0; n < TABLE; n++) {
                    table[n] = line(n, words);
                }
            }
            return table[(int) (number % TABLE)];
        }

        private static byte[] line(long number, long words) {
            String text = String.format("{\"number\": %12d, \"word\": \"word%06d\", \"text\": \"", number, number * 7919 % words);
            byte[] line = Arrays.copyOf(text.getBytes(StandardCharsets.US_ASCII), JSON);
            Arrays.fill(line, text.length(), JSON - 2, (byte) 'x');
            line[JSON - 2] = '"';
            line[JSON - 1] = '}';
            return line;
        }
    }

    public static void main(String[] given) throws Exception {
        String workload = given[0];
        int parallelism = Integer.parseInt(given[1]);
        long records = Long.parseLong(given[2]);
        double rate = Double.parseDouble(given[3]);
        long timeout = Long.parseLong(given[4]);
        String guarantee = given[5];
        long words = Long.parseLong(given[6]);

        Configuration conf = new Configuration();
        conf.setString("taskmanager.memory.network.min", "256m");
        conf.setString("taskmanager.memory.network.max", "256m");
        MiniClusterConfiguration cluster = new MiniClusterConfiguration.Builder()
                .setConfiguration(conf)
                .setNumTaskManagers(2)
                .setNumSlotsPerTaskManager(parallelism)
                .setRpcServiceSharing(RpcServiceSharing.DEDICATED)
                .build();
        try (MiniCluster running = new MiniCluster(cluster)) {
            running.start();
            StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(conf);
            env.setBufferTimeout(timeout);
            env.getConfig().enableObjectReuse();
            env.setParallelism(parallelism);
            if (!guarantee.equals("none")) {
                boolean exactly = guarantee.equals("exactly_once");
                env.enableCheckpointing(1000, exactly ? CheckpointingMode.EXACTLY_ONCE : CheckpointingMode.AT_LEAST_ONCE);
            }
            build(env, workload, records, parallelism, rate, words);
            running.executeJobBlocking(env.getStreamGraph().getJobGraph());
        }
        int samples = (int) Math.min(SAMPLES.get(), MOST_SAMPLES);
        long[] sorted = Arrays.copyOf(LATENCIES, samples);
        Arrays.sort(sorted);
        String latency = samples == 0
                ? ""
                : String.format(
                        Locale.ROOT,
                        "\"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f",
                        sorted[samples / 2] / 1e6,
                        sorted[(int) (samples * 0.99)] / 1e6,
                        sorted[samples - 1] / 1e6);
        System.out.printf(
                Locale.ROOT,
                "{\"records\": %d, \"number_sum\": %d, \"windows\": %d, \"records_s\": %.0f, \"latency_ms\": {%s}}%n",
                RECORDS.get(), SUM.get(), WINDOWS.get(), RATE.sum(), latency);
    }

    private static void build(
            StreamExecutionEnvironment env, String workload, long records, int parallelism, double rate, long words) {
        GeneratorFunction<Long, byte[]> maker =
                workload.equals("wordcount") ? new Lines(words) : StreamBench::record;
        DataStream<byte[]> source = env.fromSource(
                        new DataGeneratorSource<>(
                                maker,
                                records * parallelism,
                                rate > 0 ? RateLimiterStrategy.perSecond(rate * parallelism) : RateLimiterStrategy.noOp(),
                                PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO),
                        WatermarkStrategy.noWatermarks(),
                        "source")
                .slotSharingGroup("sources");
        DataStream<byte[]> answers;
        if (workload.equals("wordcount")) {
            ReduceFunction<Tuple2<String, Integer>> add =
                    (one, other) -> Tuple2.of(one.f0, one.f1 + other.f1);
            answers = source.process(new Parse())
                    .returns(Types.TUPLE(Types.STRING, Types.INT))
                    .slotSharingGroup("sources")
                    .keyBy(word -> word.f0)
                    .countWindow(10)
                    .reduce(add)
                    .slotSharingGroup("operators")
                    .process(new Windows(records / 3));
        } else {
            answers = source.rebalance().process(new Identity(records / 3)).slotSharingGroup("operators");
        }
        answers.sinkTo(new DiscardingSink<>()).slotSharingGroup("operators");
    }
}
