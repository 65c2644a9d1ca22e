import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

/** Curator on a ZooKeeper ensemble: InterProcessMutex. All locks of a process hang on one session. */
final class CuratorLocks implements Locks {
    private static final int CONNECT_MS = 15_000;

    private final CuratorFramework client;

    CuratorLocks(String nodes) throws InterruptedException {
        String members = nodes.replaceFirst("^[a-z]+://", "");
        client = CuratorFrameworkFactory.newClient(
                members, (int) Main.TTL_MS, CONNECT_MS, new RetryNTimes(1, 100));
        client.start();
        if (!client.blockUntilConnected(CONNECT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("no connection to " + members);
        }
    }

    @Override
    public Lock lock(String name) {
        return new Adapter(new InterProcessMutex(client, "/" + name));
    }

    private record Adapter(InterProcessMutex mutex) implements Lock {
        @Override
        public boolean acquire(long waitMs) throws Exception {
            return mutex.acquire(waitMs, TimeUnit.MILLISECONDS);
        }

        @Override
        public void release() throws Exception {
            mutex.release();
        }
    }
}
