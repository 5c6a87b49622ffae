// Loops that several threads compute together, on a machine that they may share with other processes.
//
// A loop is cut into chunks, and whichever thread is free takes the next one: a thread that does not get a processor
// holds nobody up, unless it has begun a chunk. Threads that wait spin for a moment and then sleep, so that the system
// can give their processor to others. Where other processes take processors away, small work is done by the calling
// thread alone for a while, and the others sleep. Results do not depend on which thread computes a chunk: helpers take
// over the floating-point mode of the calling thread.
#pragma once
#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <pthread.h>
#include <signal.h>
#include <vector>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif
#include <unistd.h>

// An integer whose changes threads can sleep for.
class WaitableWord {
public:
    std::atomic<uint32_t> value{0};

    // Return when the value may have changed from `seen`.
    void wait_while(uint32_t seen) {
        sleepers_.fetch_add(1);
#if defined(__linux__)
        if (value.load() == seen) syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
#else
        pthread_mutex_lock(&mutex_);
        if (value.load() == seen) pthread_cond_wait(&changed_, &mutex_);
        pthread_mutex_unlock(&mutex_);
#endif
        sleepers_.fetch_sub(1);
    }

    // After a change of the value.
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

// The threads that help one calling thread.
class ThreadPool {
public:
    ThreadPool() = default;
    ThreadPool(const ThreadPool&) = delete;
    ~ThreadPool() {
        if (forked()) return;  // the threads are the parent process's
        closing_.store(true);
        started_.value.fetch_add(1);
        started_.wake(static_cast<int>(threads_.size()));
        for (pthread_t thread : threads_) pthread_join(thread, nullptr);
    }

    // True while other processes seem to need the processors.
    bool contended() const { return contended_until_ && nanoseconds() < contended_until_; }

    bool forked() const { return process_ != getpid(); }

    // run(work, index) for each of `chunks`, by at most `threads` threads, the calling one included.
    void compute(int64_t threads, uint32_t chunks, void (*run)(const void*, int64_t), const void* work) {
        const int64_t begin = nanoseconds();
        start_threads(threads - 1);
        run_ = run, work_ = work, chunks_ = chunks;
        fegetenv(&floating_point_);
        failed_.store(false, std::memory_order_relaxed);
        unfinished_.value.store(chunks, std::memory_order_relaxed);
        const uint64_t number = (unclaimed_.load(std::memory_order_relaxed) >> 32) + 1;
        unclaimed_.store(number << 32 | chunks);
        const auto helpers = static_cast<int>(std::min<int64_t>(threads - 1, chunks - 1));
        places_.store(helpers);
        started_.value.fetch_add(1);
        started_.wake(helpers);
        uint32_t own = 0;
        while (claim_and_run()) own++;
        const int64_t worked = nanoseconds() - begin;
        wait_for_others();
        const int64_t duration = nanoseconds() - begin;
        watch(duration, own == chunks ? duration : duration - worked);
        if (failed_.load()) throw std::bad_alloc();
    }

private:
    static constexpr int SPINS = 12000;  // 150 to 300 µs on x86
    // If more than LOST hundredths of this time in loops had no help, or were spent waiting for it, the processors are
    // contended: first for a short time and, while half as much is lost, for twice as long each time. Nanoseconds.
    static constexpr int64_t WINDOW = 4'000'000, LOST = 30, FIRST = 20'000'000, LAST = 160'000'000;

    pid_t process_ = getpid();
    std::vector<pthread_t> threads_;
    // Written by the caller while no chunk is claimed; read by those who have claimed one.
    void (*run_)(const void*, int64_t) = nullptr;
    const void* work_ = nullptr;
    uint32_t chunks_ = 0;
    fenv_t floating_point_{};
    int64_t looped_ = 0, lost_ = 0, contended_until_ = 0, contended_for_ = FIRST;
    std::atomic<uint64_t> unclaimed_{0};  // number of the loop · 2^32 + chunks that nobody has claimed
    WaitableWord unfinished_;             // chunks
    WaitableWord started_;                // changes with every loop
    std::atomic<int> places_{0};          // for helpers that are of use to the present loop
    std::atomic<bool> failed_{false}, closing_{false};

    // `adopt`: take over the calling thread's floating-point mode before.
    bool claim_and_run(bool adopt = false) {
        uint64_t left = unclaimed_.load();
        do {
            if (!static_cast<uint32_t>(left)) return false;
        } while (!unclaimed_.compare_exchange_weak(left, left - 1));
        if (adopt) fesetenv(&floating_point_);
        try {
            run_(work_, chunks_ - static_cast<uint32_t>(left));
        } catch (const std::bad_alloc&) {
            failed_.store(true);
        }
        if (unfinished_.value.fetch_sub(1) == 1) unfinished_.wake(1);
        return true;
    }

    void wait_for_others() {
        for (int spin = 0; spin < SPINS; spin++) {
            if (!unfinished_.value.load(std::memory_order_acquire)) return;
            pause_briefly();
        }
        while (const uint32_t seen = unfinished_.value.load()) unfinished_.wait_while(seen);
    }

    void watch(int64_t duration, int64_t lost) {
        looped_ += duration, lost_ += lost;
        if (looped_ < WINDOW) return;
        if (100 * lost_ > (contended_for_ > FIRST ? LOST / 2 : LOST) * looped_) {
            contended_until_ = nanoseconds() + contended_for_;
            contended_for_ = std::min(2 * contended_for_, LAST);
        } else {
            contended_for_ = std::max(contended_for_ / 2, FIRST);
        }
        looped_ = lost_ = 0;
    }

    // As many as the system gives; the calling thread does what is left.
    void start_threads(int64_t count) {
        if (static_cast<int64_t>(threads_.size()) >= count) return;
        threads_.reserve(count);
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the host's
        pthread_t thread;
        while (static_cast<int64_t>(threads_.size()) < count && !pthread_create(&thread, nullptr, help, this))
            threads_.push_back(thread);
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    bool take_place() {
        int left = places_.load();
        while (left > 0 && !places_.compare_exchange_weak(left, left - 1)) {}
        return left > 0;
    }

    static void* help(void* pool) {
        static_cast<ThreadPool*>(pool)->help();
        return nullptr;
    }

    void help() {
        for (uint32_t seen = started_.value.load();; seen = started_.value.load()) {
            if (closing_.load()) return;
            if (take_place() && claim_and_run(true))
                while (claim_and_run()) {}
            for (int spin = 0; spin < SPINS && started_.value.load(std::memory_order_relaxed) == seen; spin++)
                pause_briefly();
            while (started_.value.load() == seen) started_.wait_while(seen);
        }
    }
};

// True while this thread computes a chunk: a loop in a loop runs on the thread that reaches it.
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

// For work that one thread does nearly as fast: a thread without a processor would hold it up.
static inline int64_t threads_for_small_work(int64_t threads) {
    return threads > 1 && pool_of_this_thread().contended() ? 1 : threads;
}

// work(from, to) for ranges of `size` of `count`. The result must not depend on which thread computes a range.
template <class Work>
struct Loop {
    int64_t count, size;
    Work work;

    int64_t chunks() const { return (count + size - 1) / size; }
    // Compute chunk `index` if it is one of this loop; else what is left of the index for the loops behind it.
    bool take(int64_t& index) const {
        if (index >= chunks()) return index -= chunks(), false;
        work(index * size, std::min((index + 1) * size, count));
        return true;
    }
};

template <class Work>
static Loop<Work> loop(int64_t count, int64_t size, Work work) { return {count, size, work}; }

// Compute loops that do not need each other's results, each chunk on whichever of `threads` threads is free.
template <class... Loops>
static void parallel(int64_t threads, const Loops&... loops) {
    const int64_t chunks = (loops.chunks() + ...);
    auto compute = [&](int64_t index) { (loops.take(index) || ...); };
    if (threads <= 1 || chunks <= 1 || chunks > INT32_MAX || within_a_loop()) {
        for (int64_t index = 0; index < chunks; index++) compute(index);
        return;
    }
    pool_of_this_thread().compute(threads, static_cast<uint32_t>(chunks), [](const void* work, int64_t index) {
        within_a_loop() = true;
        struct Leave {
            ~Leave() { within_a_loop() = false; }
        } leave;
        (*static_cast<decltype(compute)*>(const_cast<void*>(work)))(index);
    }, &compute);
}

template <class Work>
static void parallel_for(int64_t threads, int64_t count, int64_t size, const Work& work) {
    parallel(threads, loop(count, size, std::cref(work)));
}

// The size of chunks of `count` small pieces of equal work: several for each thread, lest one waits for another.
static inline int64_t chunk_size(int64_t threads, int64_t count) {
    return std::max<int64_t>(1, (count + 4 * threads - 1) / (4 * threads));
}
