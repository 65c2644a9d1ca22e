import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.ToLongFunction;

/**
 * The peers in Java. How the runner talks with them: see ../README.md. One at a time and while
 * waiting they are used blocking, in a thread for each; many at a time by their futures if they have
 * any, since a thread for each of a thousand would cost more than the locks.
 */
public final class Main {
    static final long TTL_MS = 10_000;
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private static Locks locks;

    public static void main(String[] arguments) throws Exception {
        Map<String, String> args = parse(Arrays.asList(arguments));
        String nodes = args.get("nodes");
        locks = switch (args.get("system")) {
            case "redisson" -> new RedissonLocks(nodes);
            case "curator" -> new CuratorLocks(nodes);
            default -> throw new IllegalArgumentException("there is no system " + args.get("system"));
        };
        String first = cycle("bench/ready/" + ProcessHandle.current().pid(), 1, 0, 1, 60);
        if (!first.endsWith("null}")) {
            throw new IllegalStateException("the first lock: " + first);
        }
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            List<String> words = Arrays.asList(line.split(" "));
            Map<String, String> round = parse(words.subList(1, words.size()));
            System.out.println(round.get("workload").equals("contend") ? contend(round) : cycle(round));
        }
        System.exit(0);
    }

    private static Map<String, String> parse(List<String> words) {
        Map<String, String> parsed = new HashMap<>();
        for (String word : words) {
            String[] parts = word.split("=", 2);
            parsed.put(parts[0], parts[1]);
        }
        return parsed;
    }

    private static String cycle(Map<String, String> round) throws InterruptedException {
        return cycle(
                round.get("name"),
                Integer.parseInt(round.get("concurrency")),
                Integer.parseInt(round.getOrDefault("names", "0")),
                Long.parseLong(round.get("count")),
                Double.parseDouble(round.get("seconds")));
    }

    private static final class Failures {
        private int count;
        private String first;

        synchronized void add(Throwable error) {
            count++;
            if (first == null) {
                first = error.toString();
            }
        }

        /** The end of a report. */
        synchronized String json() {
            String text = first == null ? "null" : quoted(first);
            return "\"failed\":" + count + ",\"error\":" + text + "}";
        }

        private static String quoted(String text) {
            StringBuilder quoted = new StringBuilder("\"");
            for (char c : text.toCharArray()) {
                if (c == '"' || c == '\\') {
                    quoted.append('\\').append(c);
                } else {
                    quoted.append(c < ' ' ? ' ' : c);
                }
            }
            return quoted.append('"').toString();
        }
    }

    /** What one cycle took, until it had the lock and until that was released. */
    private record Sample(long lock, long both) {
        long release() {
            return both - lock;
        }
    }

    /** The cycles of one round, whoever does them. */
    private static final class Cycles {
        final String prefix;
        final int names;
        final long count;
        final long start = System.nanoTime();
        final long end;
        final AtomicLong begun = new AtomicLong();
        final List<Sample> samples = Collections.synchronizedList(new ArrayList<>());
        final Failures failures = new Failures();

        Cycles(String prefix, int names, long count, double seconds) {
            this.prefix = prefix;
            this.names = names;
            this.count = count;
            this.end = start + (long) (seconds * 1e9);
        }

        boolean goesOn() {
            return System.nanoTime() < end && begun.getAndIncrement() < count;
        }

        /** Each worker has so many names, which it uses in turn; zero of them are a new one each time. */
        Locks.Lock lock(int worker, int serial) {
            int which = names == 0 ? serial : serial % names;
            return locks.lock(prefix + "/" + worker + "/" + which);
        }

        void blocking(int worker) {
            for (int serial = 0; goesOn(); serial++) {
                Locks.Lock lock = lock(worker, serial);
                long from = System.nanoTime();
                try {
                    if (!lock.acquire(0)) {
                        throw new IllegalStateException("not acquired");
                    }
                    long locked = System.nanoTime() - from;
                    lock.release();
                    samples.add(new Sample(locked, System.nanoTime() - from));
                } catch (Exception error) {
                    failures.add(error);
                }
            }
        }

        /** One worker's cycles, one after the other. */
        void async(int worker, int serial, CompletableFuture<Void> done) {
            if (!goesOn()) {
                done.complete(null);
                return;
            }
            Locks.Lock lock = lock(worker, serial);
            long from = System.nanoTime();
            long[] locked = new long[1];
            lock.acquireAsync(worker)
                    .thenCompose(acquired -> {
                        locked[0] = System.nanoTime() - from;
                        return acquired
                                ? lock.releaseAsync(worker)
                                : CompletableFuture.failedStage(
                                        new IllegalStateException("not acquired"));
                    })
                    .whenComplete((nothing, error) -> {
                        if (error == null) {
                            samples.add(new Sample(locked[0], System.nanoTime() - from));
                        } else {
                            failures.add(error);
                        }
                        async(worker, serial + 1, done);
                    });
        }

        void inThreads(int count) throws InterruptedException {
            List<Thread> workers = new ArrayList<>();
            for (int worker = 0; worker < count; worker++) {
                int index = worker;
                Thread thread = new Thread(() -> blocking(index));
                thread.start();
                workers.add(thread);
            }
            for (Thread worker : workers) {
                worker.join();
            }
        }

        void inFutures(int count) {
            CompletableFuture<?>[] workers = new CompletableFuture<?>[count];
            for (int worker = 0; worker < count; worker++) {
                CompletableFuture<Void> done = new CompletableFuture<>();
                workers[worker] = done;
                async(worker, 0, done);
            }
            CompletableFuture.allOf(workers).join();
        }

        /** p50 and p99 of some part of all samples. */
        double[] quantiles(ToLongFunction<Sample> part) {
            long[] sorted = samples.stream().mapToLong(part).toArray();
            Arrays.sort(sorted);
            return new double[] {at(sorted, 0.5), at(sorted, 0.99)};
        }
    }

    private static String cycle(String prefix, int concurrency, int names, long count, double seconds)
            throws InterruptedException {
        double cpu = cpuSeconds();
        Cycles cycles = new Cycles(prefix, names, count, seconds);
        if (concurrency == 1) {
            cycles.blocking(0);
        } else if (locks.hasFutures()) {
            cycles.inFutures(concurrency);
        } else {
            cycles.inThreads(concurrency);
        }
        double took = (System.nanoTime() - cycles.start) / 1e9;
        cpu = cpuSeconds() - cpu;
        double[] both = cycles.quantiles(Sample::both);
        double[] lock = cycles.quantiles(Sample::lock);
        double[] release = cycles.quantiles(Sample::release);
        return String.format(
                        Locale.ROOT,
                        "{\"cycles\":%d,\"seconds\":%f,\"cpu_seconds\":%f,\"p50_us\":%f,\"p99_us\":%f,"
                                + "\"lock_us\":[%f,%f],\"release_us\":[%f,%f],",
                        cycles.samples.size(), took, cpu, both[0], both[1], lock[0], lock[1], release[0], release[1])
                + cycles.failures.json();
    }

    private static double at(long[] sorted, double quantile) {
        return sorted.length == 0 ? 0 : sorted[(int) ((sorted.length - 1) * quantile)] / 1e3;
    }

    private static String contend(Map<String, String> round) throws InterruptedException {
        double cpu = cpuSeconds();
        Failures failures = new Failures();
        List<String> turns = Collections.synchronizedList(new ArrayList<>());
        List<Thread> waiters = new ArrayList<>();
        int first = Integer.parseInt(round.get("first"));
        for (int waiter = first; waiter < first + Integer.parseInt(round.get("waiters")); waiter++) {
            int index = waiter;
            Thread thread = new Thread(() -> takeTurns(index, round, turns, failures));
            thread.start();
            waiters.add(thread);
        }
        for (Thread thread : waiters) {
            thread.join();
        }
        String report = String.format(Locale.ROOT, "\"cpu_seconds\":%f,", cpuSeconds() - cpu);
        return "{\"turns\":[" + String.join(",", turns) + "]," + report + failures.json();
    }

    private static void takeTurns(
            int waiter, Map<String, String> round, List<String> turns, Failures failures) {
        Locks.Lock lock = locks.lock(round.get("name"));
        long from = Long.parseLong(round.get("from_ns"));
        long to = Long.parseLong(round.get("to_ns"));
        long hold = Long.parseLong(round.get("hold_us")) * 1_000;
        LockSupport.parkNanos(from - System.nanoTime());
        while (true) {
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(2_500_000, 7_500_000));
            // On Linux this is CLOCK_MONOTONIC.
            long asked = System.nanoTime();
            if (asked >= to) {
                return;
            }
            long acquired = 0;
            long released = 0;
            try {
                long wait = Math.max(1, (to - asked) / 1_000_000);
                if (lock.acquire(wait)) {
                    acquired = System.nanoTime();
                    LockSupport.parkNanos(hold);
                    released = System.nanoTime();
                    lock.release();
                }
            } catch (Exception error) {
                failures.add(error);
            }
            turns.add("[" + waiter + "," + asked + "," + acquired + "," + released + "]");
        }
    }

    private static double cpuSeconds() {
        return SYSTEM.getProcessCpuTime() / 1e9;
    }
}
