/* A clock of its own for one server process, which a test can set while the server runs.
 *
 * Loaded with LD_PRELOAD, this stands in for the C library's clock_gettime, gettimeofday and time.
 * Each asks the kernel for the true time and moves it along a line that the test has written into
 * a file, the control page. Its path is in QUORLOCK_TEST_CLOCK.
 *
 * A server's allocator asks for the time while it allocates, so nothing here may allocate. That
 * rules out looking up the functions of the C library that are stood in for: the kernel is asked
 * itself. The page is mapped before the server's main runs, so nothing has to be locked either.
 *
 * Not moved: CPU clocks, CLOCK_MONOTONIC_RAW, a processor's counter that is read directly, and what
 * the kernel itself waits for (poll, timers, sleeps).
 *
 * The control page, in the machine's own byte order; src/clock/page.rs writes it:
 *
 *   offset  type        what
 *        0  uint8       turn: counts the settings that were made. Its lowest bit says which of the
 *                       two below holds. The other is written first, then the turn goes up.
 *        4  int32       pid: written here, to say that this process goes by the page
 *        8  setting[2]
 *
 *   A setting is a line for each clock: CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME.
 *   A line is three int64: anchor_ns, offset_ns, drift_ppb. It shows
 *
 *       true + offset_ns + (true - anchor_ns) * drift_ppb / 1,000,000,000
 *
 *   so that a line of zeros shows the true time.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000

/* Elsewhere the kernel may write a smaller timespec than the C library reads. */
_Static_assert(sizeof(long) == 8 && sizeof(time_t) == 8, "only for 64-bit systems");

enum { REALTIME, MONOTONIC, BOOTTIME, CLOCKS };

struct line {
    int64_t anchor_ns, offset_ns, drift_ppb;
};

struct page {
    uint8_t turn;
    int32_t pid;
    struct line settings[2][CLOCKS];
};

_Static_assert(offsetof(struct page, pid) == 4, "as described above");
_Static_assert(offsetof(struct page, settings) == 8, "as described above");

static volatile struct page *page;

/* A server that went by the true time after all would make its test worthless: better none. */
static void give_up(const char *why)
{
    ssize_t written = write(STDERR_FILENO, why, strlen(why));
    (void)written;
    _exit(125);
}

__attribute__((constructor)) static void map_page(void)
{
    const char *path = getenv("QUORLOCK_TEST_CLOCK");
    if (path == NULL)
        give_up("QUORLOCK_TEST_CLOCK does not name the control page of the clock\n");
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        give_up("the control page of the clock cannot be opened\n");
    void *mapped = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        give_up("the control page of the clock cannot be mapped\n");
    page = mapped;
    page->pid = getpid();
}

static int64_t shown_ns(struct line line, int64_t true_ns)
{
    /* Years in nanoseconds times parts in a billion do not fit into 64 bits. */
    __int128 drifted = (__int128)(true_ns - line.anchor_ns) * line.drift_ppb / BILLION;
    __int128 shown = true_ns + line.offset_ns + drifted;
    return shown < 0 ? 0 : (int64_t)shown;
}

/* The clock's place in a setting, or CLOCKS if it has none. */
static int place_of(clockid_t id)
{
    switch (id) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return REALTIME;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
        return MONOTONIC;
    case CLOCK_BOOTTIME:
        return BOOTTIME;
    default:
        return CLOCKS;
    }
}

int clock_gettime(clockid_t id, struct timespec *time)
{
    int place = place_of(id);
    struct line line;
    uint8_t turn;
    /* The constructors of other libraries may run before the page is mapped. */
    if (place == CLOCKS || page == NULL)
        return syscall(SYS_clock_gettime, id, time);
    /* The time and the line belong together: a time from before a change does not lie on the line
     * from after it, and a line that was changed meanwhile may be half of another. */
    do {
        turn = __atomic_load_n(&page->turn, __ATOMIC_ACQUIRE);
        if (syscall(SYS_clock_gettime, id, time) != 0)
            return -1;
        volatile struct line *from = &page->settings[turn & 1][place];
        line = (struct line){from->anchor_ns, from->offset_ns, from->drift_ppb};
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (turn != __atomic_load_n(&page->turn, __ATOMIC_RELAXED));

    int64_t shown = shown_ns(line, time->tv_sec * BILLION + time->tv_nsec);
    time->tv_sec = shown / BILLION;
    time->tv_nsec = shown % BILLION;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds != NULL)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
