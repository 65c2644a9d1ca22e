import java.util.concurrent.CompletionStage;

/** What a library has to offer. */
interface Locks {
    Lock lock(String name);

    /** Whether many locks at a time are taken by futures, and not by a thread for each. */
    default boolean hasFutures() {
        return false;
    }

    /** A lock of one name. */
    interface Lock {
        /** Tries for so long. */
        boolean acquire(long waitMs) throws Exception;

        void release() throws Exception;

        /** Tries once. A lock belongs to a thread: here to one of this number. */
        default CompletionStage<Boolean> acquireAsync(long worker) {
            throw new UnsupportedOperationException();
        }

        default CompletionStage<Void> releaseAsync(long worker) {
            throw new UnsupportedOperationException();
        }
    }
}
