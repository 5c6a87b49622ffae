// Parallel loops on a machine that may be shared with other processes.
//
// A loop is cut into chunks, and each thread has a range of them. It claims those of its own range first, so that loops
// over the same rows find them in its caches, and then those of the others: a descheduled thread delays the others by
// at most its own chunk. Waiting threads spin briefly and then sleep, which frees their processor. If other processes
// occupy processors, the calling thread does small work alone for a while. Results do not depend on which thread
// computes a chunk: helpers use the floating-point mode of the calling thread.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <pthread.h>
#include <signal.h>
#include <stdexcept>
#include <vector>
#if defined(__linux__)
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#endif
#include <unistd.h>

// An integer; threads can sleep until it changes.
class WaitableWord {
public:
    std::atomic<uint32_t> value{0};

    // Return when the value may differ from `expected`.
    void wait_while(uint32_t expected) {
        sleepers_.fetch_add(1);
#if defined(__linux__)
        if (value.load() == expected) syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
#else
        pthread_mutex_lock(&mutex_);
        if (value.load() == expected) pthread_cond_wait(&changed_, &mutex_);
        pthread_mutex_unlock(&mutex_);
#endif
        sleepers_.fetch_sub(1);
    }

    // Wake threads after a change of the value.
    void wake(int count) {
        if (!sleepers_.load()) return;
#if defined(__linux__)
        syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
#else
        (void)count;
        pthread_mutex_lock(&mutex_);
        pthread_cond_broadcast(&changed_);
        pthread_mutex_unlock(&mutex_);
#endif
    }

private:
    std::atomic<int> sleepers_{0};
#if !defined(__linux__)
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
#endif
};

static inline void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

static inline int64_t nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// The helper threads of one calling thread.
class ThreadPool {
public:
    static constexpr int64_t MAX_RANGES = 64;
    // Compute the chunk with this index in a range.
    typedef void (*Run)(const void* work, int64_t range, int64_t index);

    ThreadPool() = default;
    ThreadPool(const ThreadPool&) = delete;
    ~ThreadPool() {
        if (forked()) return;  // the threads belong to the parent process
        closing_.store(true);
        generation_.value.fetch_add(1);
        generation_.wake(static_cast<int>(threads_.size()));
        for (pthread_t thread : threads_) pthread_join(thread, nullptr);
    }

    // True while other processes seem to occupy the processors.
    bool contended() const { return contended_until_ && nanoseconds() < contended_until_; }

    bool forked() const { return process_ != getpid(); }

    // Compute `sizes[range]` chunks of each range, `chunks` in all, on at most `threads` threads, including the calling
    // one.
    void compute(int64_t threads, uint32_t chunks, int ranges, const int64_t* sizes, Run run, const void* work) {
        const int64_t begin = nanoseconds();
        const auto helpers = static_cast<int>(std::min({threads - 1, int64_t{chunks} - 1, most_helpers()}));
        start_threads(helpers, begin);
        separate_processors();
        run_ = run, work_ = work;
        fegetenv(&floating_point_);
        failure_.store(NO_FAILURE, std::memory_order_relaxed);
        unfinished_.value.store(chunks, std::memory_order_relaxed);
        used_ranges_.store(ranges, std::memory_order_relaxed);
        loop_++;
        for (int range = 0; range < ranges; range++) {
            ranges_[range].size = static_cast<uint32_t>(sizes[range]);
            ranges_[range].unclaimed.store(
                static_cast<uint64_t>(loop_) << 32 | ranges_[range].size, std::memory_order_release
            );
        }
        helper_slots_.store(helpers);
        if (begin - ended_ > PAUSE) woken_ = begin;
        generation_.value.fetch_add(1);
        generation_.wake(helpers);
        uint32_t own_chunks = 0;
        uint32_t loop = loop_;
        while (claim_and_run(0, &loop)) own_chunks++;
        const int64_t busy = nanoseconds() - begin;
        wait_for_others();
        const int64_t duration = nanoseconds() - begin;
        const bool alone = own_chunks == chunks;
        // A thread that wakes up is no sign of other processes: decoding pauses for longer than threads spin.
        ended_ = begin + duration;
        if (!alone || ended_ - woken_ > WAKING) update_contention(duration, alone ? duration : duration - busy);
        if (failure_.load() == OUT_OF_MEMORY) throw std::bad_alloc();
        if (failure_.load() == OTHER) throw std::runtime_error("a thread of the kernels failed");
    }

private:
    static constexpr int SPINS = 12000;  // 150 to 300 µs on x86
    // The processors count as contended if LOST_PERCENT of WINDOW, a time spent in loops, had no help or waited for it.
    // This lasts FIRST and then, while half as much time is lost, twice as long, up to LAST. In nanoseconds.
    static constexpr int64_t WINDOW = 4'000'000, LOST_PERCENT = 30, FIRST = 20'000'000, LAST = 160'000'000;
    static constexpr int64_t PAUSE = 100'000;          // time between loops after which helpers may sleep
    static constexpr int64_t WAKING = 200'000;         // time that a sleeping thread may need to begin
    static constexpr int64_t REFUSED = 1'000'000'000;  // time without new threads after the system refused one

    pid_t process_ = getpid();
    std::vector<pthread_t> threads_;
    int avoided_processor_ = -1;  // helpers do not run on it
    // Chunks that a thread claims first. In a cache line of its own.
    struct alignas(64) ChunkRange {
        std::atomic<uint64_t> unclaimed{0};  // number of the loop · 2^32 + unclaimed chunks
        uint32_t size = 0;                   // written before `unclaimed`, read by threads with a claimed chunk
    };

    // The caller writes these while no chunk is claimed; threads with a claimed chunk read them.
    Run run_ = nullptr;
    const void* work_ = nullptr;
    fenv_t floating_point_{};
    std::array<ChunkRange, MAX_RANGES> ranges_;
    std::atomic<int> used_ranges_{0};
    uint32_t loop_ = 0;                  // number of the loop, from 1 on
    std::atomic<int> begun_threads_{0};  // helpers, which take their ranges in this order
    int64_t refused_until_ = 0;
    int64_t ended_ = 0, woken_ = 0;  // end of the last loop; beginning of the first one after a pause
    int64_t loop_time_ = 0, lost_time_ = 0, contended_until_ = 0, contended_for_ = FIRST;
    WaitableWord unfinished_;           // chunks
    WaitableWord generation_;           // incremented by every loop
    std::atomic<int> helper_slots_{0};  // helpers that the current loop can use
    enum Failure { NO_FAILURE, OUT_OF_MEMORY, OTHER };
    std::atomic<Failure> failure_{NO_FAILURE};  // of a chunk of the current loop
    std::atomic<bool> closing_{false};

    // Claim a chunk of the range `first`, or of the next one that has any. A helper copies the floating-point mode of
    // the calling thread in each loop, whose number it keeps in `loop`: it may claim its next chunk from a later loop
    // than its last one.
    bool claim_and_run(int first, uint32_t* loop) {
        const int ranges = used_ranges_.load(std::memory_order_relaxed);
        int range = first < ranges ? first : 0;
        for (int i = 0; i < ranges; i++) {
            std::atomic<uint64_t>& unclaimed = ranges_[range].unclaimed;
            uint64_t left = unclaimed.load();
            while (static_cast<uint32_t>(left) && !unclaimed.compare_exchange_weak(left, left - 1)) {}
            if (static_cast<uint32_t>(left)) return run_chunk(range, left, loop), true;
            if (++range == ranges) range = 0;
        }
        return false;
    }

    void run_chunk(int range, uint64_t left, uint32_t* loop) {
        const auto number = static_cast<uint32_t>(left >> 32);
        if (*loop != number) {
            fesetenv(&floating_point_);
            *loop = number;
        }
        try {
            run_(work_, range, ranges_[range].size - static_cast<uint32_t>(left));
        } catch (const std::bad_alloc&) {
            failure_.store(OUT_OF_MEMORY);
        } catch (...) {  // std::exception_ptr would need a later library than glibc 2.28 has beside it
            failure_.store(OTHER);
        }
        if (unfinished_.value.fetch_sub(1) == 1) unfinished_.wake(1);
    }

    void wait_for_others() {
        for (int spin = 0; spin < SPINS; spin++) {
            if (!unfinished_.value.load(std::memory_order_acquire)) return;
            pause_briefly();
        }
        while (const uint32_t remaining = unfinished_.value.load()) unfinished_.wait_while(remaining);
    }

    void update_contention(int64_t duration, int64_t lost) {
        loop_time_ += duration, lost_time_ += lost;
        if (loop_time_ < WINDOW) return;
        if (100 * lost_time_ > (contended_for_ > FIRST ? LOST_PERCENT / 2 : LOST_PERCENT) * loop_time_) {
            contended_until_ = nanoseconds() + contended_for_;
            contended_for_ = std::min(2 * contended_for_, LAST);
        } else {
            contended_for_ = std::max(contended_for_ / 2, FIRST);
        }
        loop_time_ = lost_time_ = 0;
    }

    // Helpers for every range, or for every processor if those are more.
    static int64_t most_helpers() {
        static const int64_t processors = sysconf(_SC_NPROCESSORS_ONLN);
        return std::max(MAX_RANGES, processors) - 1;
    }

    // Start up to `count` threads in all; if the system refuses, fewer threads do the work, for REFUSED at least.
    void start_threads(int64_t count, int64_t now) {
        if (static_cast<int64_t>(threads_.size()) >= count || now < refused_until_) return;
        threads_.reserve(count);
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);  // the host process handles signals
        pthread_t thread;
        while (static_cast<int64_t>(threads_.size()) < count && !pthread_create(&thread, nullptr, help, this))
            threads_.push_back(thread);
        refused_until_ = static_cast<int64_t>(threads_.size()) < count ? now + REFUSED : 0;
        avoided_processor_ = -1;
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    // Keep helpers off the processor of the calling thread. Linux often wakes a thread that has slept for long on the
    // processor of the thread that wakes it, where it waits until the loop is over: in a virtual machine with two
    // processors, nine of ten loops after a pause of 20 ms took as long as on one thread.
    void separate_processors() {
#if defined(__linux__)
        const int processor = sched_getcpu();
        cpu_set_t others;
        if (processor == avoided_processor_) return;
        avoided_processor_ = processor;
        if (sched_getaffinity(0, sizeof others, &others)) return;  // more processors than a cpu_set_t has
        if (processor >= 0 && processor < CPU_SETSIZE && CPU_COUNT(&others) > 1) CPU_CLR(processor, &others);
        for (pthread_t thread : threads_) pthread_setaffinity_np(thread, sizeof others, &others);
#endif
    }

    bool claim_slot() {
        int left = helper_slots_.load();
        while (left > 0 && !helper_slots_.compare_exchange_weak(left, left - 1)) {}
        return left > 0;
    }

    static void* help(void* pool) {
        static_cast<ThreadPool*>(pool)->help();
        return nullptr;
    }

    void help() {
        const int number = begun_threads_.fetch_add(1);
        uint32_t loop = 0;
        for (uint32_t generation = generation_.value.load();; generation = generation_.value.load()) {
            if (closing_.load()) return;
            if (claim_slot()) {
                const int others = used_ranges_.load() - 1;  // the first range is the caller's
                while (claim_and_run(others > 0 ? 1 + number % others : 0, &loop)) {}
            }
            for (int spin = 0; spin < SPINS && generation_.value.load(std::memory_order_relaxed) == generation; spin++)
                pause_briefly();
            while (generation_.value.load() == generation) generation_.wait_while(generation);
        }
    }
};

// True while this thread computes a chunk: nested loops run on one thread.
inline bool& within_a_loop() {
    thread_local bool within = false;
    return within;
}

inline ThreadPool& pool_of_this_thread() {
    thread_local std::unique_ptr<ThreadPool> pool;
    if (!pool || pool->forked()) {
        pool.release();
        pool = std::make_unique<ThreadPool>();
    }
    return *pool;
}

// Number of threads for work that one thread does nearly as fast: 1 if the processors are contended.
static inline int64_t threads_for_small_work(int64_t threads) {
    return threads > 1 && pool_of_this_thread().contended() ? 1 : threads;
}

// A loop of work(from, to) over chunks of `size` out of `count`. Results must not depend on the thread of a chunk.
template <class Work>
struct Loop {
    int64_t count, size;
    Work work;

    // Chunks of one of `ranges` nearly equal ranges.
    int64_t chunks_of(int64_t range, int64_t ranges) const {
        return first_chunk(range + 1, ranges) - first_chunk(range, ranges);
    }
    void run_chunk(int64_t range, int64_t ranges, int64_t index) const {
        const int64_t from = (first_chunk(range, ranges) + index) * size;
        work(from, std::min(from + size, count));
    }

private:
    int64_t first_chunk(int64_t range, int64_t ranges) const { return range * ((count + size - 1) / size) / ranges; }
};

template <class Work>
static Loop<Work> loop(int64_t count, int64_t size, Work work) {
    return {count, size, work};
}

// Compute independent loops on `threads` threads. The range of a thread has a part of each loop.
template <class... Loops>
static void parallel(int64_t threads, const Loops&... loops) {
    const int64_t useful = within_a_loop() ? 1 : std::min<int64_t>(threads, (loops.chunks_of(0, 1) + ...));
    const int64_t ranges = std::clamp<int64_t>(useful, 1, ThreadPool::MAX_RANGES);
    int64_t sizes[ThreadPool::MAX_RANGES], chunks = 0;
    for (int64_t range = 0; range < ranges; range++) {
        sizes[range] = (loops.chunks_of(range, ranges) + ...);
        chunks += sizes[range];
    }
    auto compute = [&](int64_t range, int64_t index) {
        const auto run_if_within = [&](const auto& one) {
            const int64_t count = one.chunks_of(range, ranges);
            if (index < count) one.run_chunk(range, ranges, index);
            return (index -= count) < 0;
        };
        (run_if_within(loops) || ...);
    };
    if (ranges == 1 || chunks > INT32_MAX) {
        for (int64_t range = 0; range < ranges; range++)
            for (int64_t index = 0; index < sizes[range]; index++) compute(range, index);
        return;
    }
    pool_of_this_thread().compute(
        threads, static_cast<uint32_t>(chunks), static_cast<int>(ranges), sizes,
        [](const void* work, int64_t range, int64_t index) {
            within_a_loop() = true;
            struct Leave {
                ~Leave() { within_a_loop() = false; }
            } leave;
            (*static_cast<decltype(compute)*>(const_cast<void*>(work)))(range, index);
        },
        &compute
    );
}

template <class Work>
static void parallel_for(int64_t threads, int64_t count, int64_t size, const Work& work) {
    parallel(threads, loop(count, size, std::cref(work)));
}

// Chunk size for `count` small units of equal work: four chunks for each thread, for an even end.
static inline int64_t chunk_size(int64_t threads, int64_t count) {
    return std::max<int64_t>(1, (count + 4 * threads - 1) / (4 * threads));
}

// The same for units of `numbers` numbers each, but no chunk has fewer than ENOUGH numbers if they are only copied or
// scaled: one thread does that before another one begins.
static inline int64_t chunk_size(int64_t threads, int64_t count, int64_t numbers) {
    constexpr int64_t ENOUGH = 1 << 14;
    return std::max(ENOUGH / std::max<int64_t>(1, numbers), chunk_size(threads, count));
}
