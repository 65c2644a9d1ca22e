/* Prints what a program is shown, in nanoseconds: a line for each way to ask. For the tests. */
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

static void print(const char *name, clockid_t id)
{
    struct timespec time;
    clock_gettime(id, &time);
    printf("%s %ld%09ld\n", name, (long)time.tv_sec, time.tv_nsec);
}

int main(void)
{
    struct timeval day;
    print("realtime", CLOCK_REALTIME);
    print("realtime_coarse", CLOCK_REALTIME_COARSE);
    gettimeofday(&day, NULL);
    printf("gettimeofday %ld%06ld000\n", (long)day.tv_sec, (long)day.tv_usec);
    printf("time %ld000000000\n", (long)time(NULL));
    print("monotonic", CLOCK_MONOTONIC);
    print("monotonic_coarse", CLOCK_MONOTONIC_COARSE);
    print("boottime", CLOCK_BOOTTIME);
    return 0;
}
