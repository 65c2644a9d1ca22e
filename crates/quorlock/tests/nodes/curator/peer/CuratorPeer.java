import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

/**
 * A service that locks with Curator, for tests of who else may hold the lock.
 *
 * <p>It is started with the servers and the milliseconds that its session outlives it, and reads one command a line:
 *
 * <pre>
 * try PATH     locks PATH if it is free: "locked PATH FENCE", or "refused PATH"
 * lock PATH    waits for PATH, and goes on reading meanwhile: "locked PATH FENCE" once it has it
 * unlock PATH  "unlocked PATH"
 * </pre>
 *
 * FENCE is the transaction that made its node.
 */
public final class CuratorPeer {
    /** A lock, and the thread that takes it: only that one may release it. */
    private static final class Lock extends InterProcessMutex {
        private final CuratorFramework client;
        private final String path;
        private final ExecutorService thread = Executors.newSingleThreadExecutor(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });

        Lock(CuratorFramework client, String path) {
            super(client, path);
            this.client = client;
            this.path = path;
        }

        void attempt(String command) {
            try {
                switch (command) {
                    case "try":
                        if (acquire(0, TimeUnit.MILLISECONDS)) {
                            sayLocked();
                        } else {
                            say("refused " + path);
                        }
                        break;
                    case "lock":
                        acquire();
                        sayLocked();
                        break;
                    case "unlock":
                        release();
                        say("unlocked " + path);
                        break;
                    default:
                        throw new IllegalArgumentException("an unknown command: " + command);
                }
            } catch (Exception error) {
                error.printStackTrace();
                System.exit(1);
            }
        }

        private void sayLocked() throws Exception {
            say("locked " + path + " " + client.checkExists().forPath(getLockPath()).getCzxid());
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        int session = Integer.parseInt(args[1]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], session, session, new RetryNTimes(3, 100));
        client.start();
        client.blockUntilConnected();
        say("ready");
        Map<String, Lock> locks = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 2);
            Lock lock = locks.computeIfAbsent(words[1], path -> new Lock(client, path));
            lock.thread.execute(() -> lock.attempt(words[0]));
        }
        // Its locks are given back with its session.
        client.close();
    }
}
