import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson: RLock on one node, RedissonRedLock on several. */
final class RedissonLocks implements Locks {
    private final List<RedissonClient> clients = new ArrayList<>();

    RedissonLocks(String nodes) {
        for (String url : nodes.split(",")) {
            Config config = new Config();
            config.useSingleServer().setAddress(url);
            clients.add(Redisson.create(config));
        }
    }

    @Override
    public Lock lock(String name) {
        if (clients.size() == 1) {
            return new Adapter(clients.get(0).getLock(name));
        }
        RLock[] all = clients.stream().map(client -> client.getLock(name)).toArray(RLock[]::new);
        return new Adapter(new RedissonRedLock(all));
    }

    @Override
    public boolean hasFutures() {
        return true;
    }

    private record Adapter(RLock lock) implements Lock {
        @Override
        public boolean acquire(long waitMs) throws InterruptedException {
            return lock.tryLock(waitMs, Main.TTL_MS, TimeUnit.MILLISECONDS);
        }

        @Override
        public void release() {
            lock.unlock();
        }

        @Override
        public CompletionStage<Boolean> acquireAsync(long worker) {
            return lock.tryLockAsync(0, Main.TTL_MS, TimeUnit.MILLISECONDS, worker);
        }

        @Override
        public CompletionStage<Void> releaseAsync(long worker) {
            return lock.unlockAsync(worker);
        }
    }
}
