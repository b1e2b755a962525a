/* A clock that runs faster than the real one, for programs that preload this library (record_slurm.py).

   CLOCK_REAL0 is a moment of the real clock, CLOCK_SHOWN0 the moment shown then, and CLOCK_RATE the factor, all in
   seconds. Reading the time of day, sleeping, and waiting until a moment are scaled; monotonic clocks and everything
   else are not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef struct timespec moment;

static double real0, shown0, rate = 1.0;
static int (*real_gettime)(clockid_t, moment *);
static int (*real_clock_nanosleep)(clockid_t, int, const moment *, moment *);
static int (*real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const moment *);
static int (*real_sem_timedwait)(sem_t *, const moment *);
static int (*real_sysinfo)(struct sysinfo *);

static double setting(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text ? atof(text) : otherwise;
}

/* Also called by the functions below: other constructors may ask for the time before this one runs. */
__attribute__((constructor)) static void prepare(void) {
    if (real_gettime) return;
    real_clock_nanosleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    real_cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_cond_timedwait) real_cond_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    real_sem_timedwait = dlsym(RTLD_NEXT, "sem_timedwait");
    real_sysinfo = dlsym(RTLD_NEXT, "sysinfo");
    real0 = setting("CLOCK_REAL0", 0.0);
    shown0 = setting("CLOCK_SHOWN0", 0.0);
    rate = setting("CLOCK_RATE", 1.0);
    real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
}

static double seconds(const moment *at) { return at->tv_sec + at->tv_nsec * 1e-9; }

static moment as_moment(double at) {
    moment result = {0, 0};
    if (at > 0) {
        result.tv_sec = (time_t)at;
        result.tv_nsec = (long)((at - result.tv_sec) * 1e9);
    }
    return result;
}

static double shown_now(void) {
    moment now;
    prepare();
    real_gettime(CLOCK_REALTIME, &now);
    return shown0 + (seconds(&now) - real0) * rate;
}

/* The real moment at which the shown clock says `at`. */
static moment really(const moment *at) {
    prepare();
    return as_moment(real0 + (seconds(at) - shown0) / rate);
}

int clock_gettime(clockid_t clock, moment *at) {
    prepare();
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return real_gettime(clock, at);
    *at = as_moment(shown_now());
    return 0;
}

time_t time(time_t *at) {
    time_t now = (time_t)shown_now();
    if (at) *at = now;
    return now;
}

int gettimeofday(struct timeval *at, void *zone) {
    (void)zone;
    if (at) {
        moment now = as_moment(shown_now());
        at->tv_sec = now.tv_sec;
        at->tv_usec = now.tv_nsec / 1000;
    }
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const moment *request, moment *rest) {
    moment scaled, left = {0, 0};
    prepare();
    if (flags & TIMER_ABSTIME) {
        if (clock != CLOCK_REALTIME) return real_clock_nanosleep(clock, flags, request, rest);
        scaled = really(request);
        return real_clock_nanosleep(clock, flags, &scaled, rest);
    }
    scaled = as_moment(seconds(request) / rate);
    int error = real_clock_nanosleep(clock, flags, &scaled, &left);
    if (error && rest) *rest = as_moment(seconds(&left) * rate);
    return error;
}

int nanosleep(const moment *request, moment *rest) {
    int error = clock_nanosleep(CLOCK_MONOTONIC, 0, request, rest);
    if (!error) return 0;
    errno = error;
    return -1;
}

unsigned sleep(unsigned whole) {
    moment request = {whole, 0}, rest = {0, 0};
    return nanosleep(&request, &rest) ? (unsigned)rest.tv_sec + 1 : 0;
}

int usleep(useconds_t micro) {
    moment request = {micro / 1000000, (micro % 1000000) * 1000L};
    return nanosleep(&request, NULL);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const moment *until) {
    moment scaled = really(until);
    return real_cond_timedwait(condition, mutex, &scaled);
}

int sem_timedwait(sem_t *semaphore, const moment *until) {
    moment scaled = really(until);
    return real_sem_timedwait(semaphore, &scaled);
}

/* A node states when it was booted as now minus its uptime. If that moved, slurmctld would take it for rebooted. */
int sysinfo(struct sysinfo *about) {
    prepare();
    int error = real_sysinfo(about);
    if (!error) about->uptime = 864000 + (long)(shown_now() - shown0);
    return error;
}
