// Bind functions to versions of glibc 2.28 or earlier, so that a library built on a newer system loads there. Later
// versions of log() and pow() differ in errno alone; the thread functions moved from libpthread to libc.
#pragma once
#include <cmath>
#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#define OLDEST_AFFINITY "GLIBC_2.3.4"
#else
#define OLDEST "GLIBC_2.17"
#define OLDEST_AFFINITY OLDEST
#endif
__asm__(".symver log, log@" OLDEST);
__asm__(".symver pow, pow@" OLDEST);
__asm__(".symver pthread_create, pthread_create@" OLDEST);
__asm__(".symver pthread_join, pthread_join@" OLDEST);
__asm__(".symver pthread_sigmask, pthread_sigmask@" OLDEST);
__asm__(".symver pthread_setaffinity_np, pthread_setaffinity_np@" OLDEST_AFFINITY);
#undef OLDEST
#undef OLDEST_AFFINITY
#endif
