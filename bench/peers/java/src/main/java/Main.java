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
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson: RLock on one node, RedissonRedLock on several. How the runner talks with it: see
 * ../README.md. One at a time and while waiting it is used blocking, in a thread for each; many at a
 * time by its futures, since a thread for each of a thousand would cost more than the locks.
 */
public final class Main {
    private static final long TTL_MS = 10_000;
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private static final List<RedissonClient> clients = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        Map<String, String> args = parse(Arrays.asList(arguments));
        for (String url : args.get("nodes").split(",")) {
            Config config = new Config();
            config.useSingleServer().setAddress(url);
            clients.add(Redisson.create(config));
        }
        String first = cycle("bench/ready/" + ProcessHandle.current().pid(), 1, 1, 60);
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

    private static String cycle(Map<String, String> round) {
        return cycle(
                round.get("name"),
                Integer.parseInt(round.get("concurrency")),
                Long.parseLong(round.get("count")),
                Double.parseDouble(round.get("seconds")));
    }

    private static RLock lock(String name) {
        if (clients.size() == 1) {
            return clients.get(0).getLock(name);
        }
        return new RedissonRedLock(clients.stream().map(c -> c.getLock(name)).toArray(RLock[]::new));
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

    /** The cycles of one round, whoever does them. */
    private static final class Cycles {
        final String prefix;
        final long count;
        final long start = System.nanoTime();
        final long end;
        final AtomicLong begun = new AtomicLong();
        final List<Long> samples = Collections.synchronizedList(new ArrayList<>());
        final Failures failures = new Failures();

        Cycles(String prefix, long count, double seconds) {
            this.prefix = prefix;
            this.count = count;
            this.end = start + (long) (seconds * 1e9);
        }

        boolean goesOn() {
            return System.nanoTime() < end && begun.getAndIncrement() < count;
        }

        void blocking() {
            for (int serial = 0; goesOn(); serial++) {
                RLock lock = lock(prefix + "/" + serial);
                long from = System.nanoTime();
                try {
                    if (!lock.tryLock(0, TTL_MS, TimeUnit.MILLISECONDS)) {
                        throw new IllegalStateException("not acquired");
                    }
                    lock.unlock();
                    samples.add(System.nanoTime() - from);
                } catch (Exception error) {
                    failures.add(error);
                }
            }
        }

        /** One worker's cycles, one after the other. Locks belong to a thread: to one by this number. */
        void async(int worker, int serial, CompletableFuture<Void> done) {
            if (!goesOn()) {
                done.complete(null);
                return;
            }
            RLock lock = lock(prefix + "/" + worker + "/" + serial);
            long from = System.nanoTime();
            CompletionStage<Void> cycle =
                    lock.tryLockAsync(0, TTL_MS, TimeUnit.MILLISECONDS, worker)
                            .thenCompose(acquired -> acquired
                                    ? lock.unlockAsync(worker)
                                    : CompletableFuture.failedStage(
                                            new IllegalStateException("not acquired")));
            cycle.whenComplete((nothing, error) -> {
                if (error == null) {
                    samples.add(System.nanoTime() - from);
                } else {
                    failures.add(error);
                }
                async(worker, serial + 1, done);
            });
        }
    }

    private static String cycle(String prefix, int concurrency, long count, double seconds) {
        double cpu = cpuSeconds();
        Cycles cycles = new Cycles(prefix, count, seconds);
        if (concurrency == 1) {
            cycles.blocking();
        } else {
            CompletableFuture<?>[] workers = new CompletableFuture<?>[concurrency];
            for (int worker = 0; worker < concurrency; worker++) {
                CompletableFuture<Void> done = new CompletableFuture<>();
                workers[worker] = done;
                cycles.async(worker, 0, done);
            }
            CompletableFuture.allOf(workers).join();
        }
        double took = (System.nanoTime() - cycles.start) / 1e9;
        cpu = cpuSeconds() - cpu;
        long[] sorted = cycles.samples.stream().mapToLong(Long::longValue).toArray();
        Arrays.sort(sorted);
        return String.format(
                        Locale.ROOT,
                        "{\"cycles\":%d,\"seconds\":%f,\"cpu_seconds\":%f,\"p50_us\":%f,\"p99_us\":%f,",
                        sorted.length, took, cpu, at(sorted, 0.5), at(sorted, 0.99))
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
        RLock lock = lock(round.get("name"));
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
                if (lock.tryLock(wait, TTL_MS, TimeUnit.MILLISECONDS)) {
                    acquired = System.nanoTime();
                    LockSupport.parkNanos(hold);
                    released = System.nanoTime();
                    lock.unlock();
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
