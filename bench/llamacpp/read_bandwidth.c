// usage: read_bandwidth THREADS MIB: read bandwidth over one working set, each thread its own share
// of it; the median and the best of nine passes as one JSON line. Plain C: the compiler chooses the
// vectors (build it with -O3 -march=native).
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kPasses = 9, kMaxThreads = 256, kWords = 64 };  // words a step: 512 bytes

static size_t share_words;
static int rounds;
static pthread_barrier_t gate;

static double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t read_all(const uint64_t* from) {
  uint64_t sum[kWords] = {0};
  for (size_t i = 0; i < share_words; i += kWords) {
    for (int k = 0; k < kWords; ++k) sum[k] ^= from[i + k];
  }
  uint64_t all = 0;
  for (int k = 0; k < kWords; ++k) all ^= sum[k];
  return all;
}

static void* work(void* unused) {
  (void)unused;
  volatile uint64_t sink = 0;
  uint64_t* memory = aligned_alloc(2 << 20, (share_words * 8 + (2 << 20) - 1) >> 21 << 21);
  if (memory == NULL) exit(1);
  memset(memory, 1, share_words * 8);
  sink ^= read_all(memory);
  for (int pass = 0; pass < kPasses; ++pass) {
    pthread_barrier_wait(&gate);
    for (int r = 0; r < rounds; ++r) sink ^= read_all(memory);
    pthread_barrier_wait(&gate);
  }
  free(memory);
  return NULL;
}

static int ascending(const void* a, const void* b) {
  return *(const double*)a < *(const double*)b ? -1 : 1;
}

int main(int argc, char** argv) {
  const int threads = argc == 3 ? atoi(argv[1]) : 0;
  if (threads < 1 || threads > kMaxThreads || atof(argv[2]) <= 0) {
    fprintf(stderr, "usage: read_bandwidth THREADS MIB\n");
    return 2;
  }
  share_words = (size_t)(atof(argv[2]) * 131072 / threads) / kWords * kWords;
  const double bytes = 8.0 * (double)share_words * threads;
  rounds = (int)(1e9 / bytes) + 1;
  pthread_t workers[kMaxThreads];
  double gb_per_second[kPasses];
  pthread_barrier_init(&gate, NULL, (unsigned)threads + 1);
  for (int i = 0; i < threads; ++i) pthread_create(&workers[i], NULL, work, NULL);
  for (int pass = 0; pass < kPasses; ++pass) {
    pthread_barrier_wait(&gate);
    const double begin = now_seconds();
    pthread_barrier_wait(&gate);
    gb_per_second[pass] = 1e-9 * bytes * rounds / (now_seconds() - begin);
  }
  for (int i = 0; i < threads; ++i) pthread_join(workers[i], NULL);
  qsort(gb_per_second, kPasses, sizeof *gb_per_second, ascending);
  printf("{\"mib\": %s, \"median\": %.1f, \"best\": %.1f}\n", argv[2], gb_per_second[kPasses / 2],
         gb_per_second[kPasses - 1]);
  return 0;
}
