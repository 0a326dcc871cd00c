// Preloaded into server and clients of a chaos run: the time of day is off by the seconds that a mapped file says.
// Steps of the real clock would hit every other process of the machine. Monotonic clocks stay as they are.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* seconds;
static int (*real_clock_gettime)(clockid_t, struct timespec*);

__attribute__((constructor)) static void map_file(void) {
  real_clock_gettime = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const char* path = getenv("HEADRACE_CHAOS_CLOCK");
  const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void* mapped = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped != MAP_FAILED) seconds = mapped;
  close(fd);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  if (!real_clock_gettime) map_file();  // called by another library's constructor
  const int result = real_clock_gettime(clock, now);
  if (result == 0 && seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *seconds;
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec precise;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (out) *out = precise.tv_sec;
  return precise.tv_sec;
}
