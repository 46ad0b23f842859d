"""A clock that is set back, as one run and its processes see it: a library that is loaded before the others.

Python, Java and the libraries of both ask the C library for the time; ours adds the seconds that a file of eight bytes
holds, and takes them off the times until which threads wait. The clocks that only measure spans of time stay as they
are, as they do when an administrator sets a clock.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t nothing = 0, *seconds = &nothing;
static int (*ask)(clockid_t, struct timespec *);
static int (*wait_for)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*wait_in_c)(cnd_t *, mtx_t *, const struct timespec *);
static int (*take)(sem_t *, const struct timespec *);

static void *find(const char *name, const char *version) {
    void *found = dlvsym(RTLD_NEXT, name, version);
    return found ? found : dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WINDROW_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) seconds = page;
    if (file >= 0) close(file);
    ask = dlsym(RTLD_NEXT, "clock_gettime");
    wait_for = find("pthread_cond_timedwait", "GLIBC_2.3.2");
    wait_in_c = dlsym(RTLD_NEXT, "cnd_timedwait");
    take = find("sem_timedwait", "GLIBC_2.34");
}

/* Threads wait until a time of the machine's clock, or of one that began when the machine was started. */
static struct timespec machine_time(const struct timespec *at) {
    struct timespec found = *at;
    if (at->tv_sec > 1000000000) found.tv_sec -= *seconds;
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *at) {
    struct timespec until = machine_time(at);
    return wait_for(condition, mutex, &until);
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *at) {
    struct timespec until = machine_time(at);
    return wait_in_c(condition, mutex, &until);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *at) {
    struct timespec until = machine_time(at);
    return take(semaphore, &until);
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    int failed = ask ? ask(clock, found) : syscall(SYS_clock_gettime, clock, found);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += *seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The clock of the processes that are started with `environment`. Raise FileNotFoundError without a C compiler."""

    def __init__(self, folder: Path) -> None:
        self._file, library, source = folder / "clock", folder / "clock.so", folder / "clock.c"
        compiler = shutil.which("cc")
        if compiler is None:
            msg = "no C compiler (cc), which builds the library that sets the clock"
            raise FileNotFoundError(msg)
        source.write_text(_SOURCE)
        self.set(0)
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "WINDROW_TEST_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """Let the clock be so many seconds ahead of the machine's."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))
