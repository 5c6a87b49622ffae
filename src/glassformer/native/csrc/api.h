// Exported functions: linkage and error codes. The caller owns all memory that outlives a call.
#pragma once
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

// Bind functions to versions of glibc 2.28 or earlier, so that a library built on a newer system loads there. Later
// versions of log() and pow() differ in errno alone; the thread functions moved from libpthread to libc.
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

#define OUTSIDE_VOCABULARY "a token id is outside the vocabulary; encode the text with the model's tokenizer"
#define API extern "C" __attribute__((visibility("default")))

// Message of the last error of this thread.
inline std::string& error_text() {
    thread_local std::string text;
    return text;
}

// The code of an error with a message; that of a full memory if there is none for the message.
static int32_t error_code(const std::exception& error, int32_t code) {
    try {
        error_text() = error.what();
        return code;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

// An error code, 0 for success: no exception may reach a caller that is not C++.
template <class Work>
static int32_t guarded(Work work) {
    try {
        work();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    } catch (const std::out_of_range& error) {
        return error_code(error, 2);
    } catch (const std::exception& error) {
        return error_code(error, 3);
    }
}

// Indices [count] must be at least 0 and less than `rows`.
static inline void check_indices(const int64_t* indices, int64_t count, int64_t rows, const char* message) {
    for (int64_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= rows) throw std::out_of_range(message);
}
