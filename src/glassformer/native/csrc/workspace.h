// Buffers of a thread, reused from call to call: new pages cost more than the arithmetic on them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#define LARGE_PAGE (2 << 20)

// clang-format off: it would take a line for each
enum Buffer {
    WEIGHTS, OUTER_WEIGHTS, ROUNDED_WEIGHTS, STREAM, MEMORY, CONTEXT, BLOCK_INPUT, BLOCK_HIDDEN, BLOCK_RESULT,
    ROW, NORM_SUMS, PACKED_INPUT, ACTIVATED, TRANSPOSED, D_RESULT, D_INNER, D_CONTEXT, D_QUERIES,
    D_KEYS, D_QUERY_PANELS, D_KEY_PANELS, D_STREAM, D_MEMORY, LOGITS, D_LOGITS, QUANTIZED, QUANTIZED_SCALES,
    QUANTIZED_SUMS, NORMALIZED, PROJECTED, HEAD_OUTPUTS, NEWEST, GROUP_ROWS, SCORES, KEY_ROWS, LOG_SUMS, ATTENTION_HEAD,
    SPLIT_ROWS, PARTIAL_SUMS, SELECTED, SELECTED_CONTEXT, BUFFERS
};
// clang-format on

struct FreeMemory {
    void operator()(char* memory) const { free(memory); }
};

// Memory for `size` bytes, in large pages if the system has them: products read panels of several megabytes, and where
// the system is virtual, each look-up of a small page takes several reads.
static inline std::unique_ptr<char[], FreeMemory> buffer_of(size_t size) {
    void* memory;
    const bool large = size >= LARGE_PAGE;
    if (posix_memalign(&memory, large ? LARGE_PAGE : 64, size)) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (large) madvise(memory, size / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE);  // a wish: an error changes nothing
#endif
    return std::unique_ptr<char[], FreeMemory>(static_cast<char*>(memory));
}

// Buffer for `size` bytes. It is allocated an eighth larger: batches differ a little, and many blocks of nearly equal
// size fragment the heap.
inline char* bytes_of(Buffer which, size_t size) {
    struct Block {
        std::unique_ptr<char[], FreeMemory> data;
        size_t size;
    };
    thread_local Block buffers[BUFFERS];
    Block& buffer = buffers[which];
    if (buffer.size < size) {
        buffer = {};  // freed before the larger allocation
        buffer = {buffer_of(size + size / 8), size + size / 8};
    }
    return buffer.data.get();
}

// Buffer for `count` numbers, valid until the next call for the same buffer.
template <class X>
inline X* workspace(Buffer which, int64_t count) {
    return reinterpret_cast<X*>(bytes_of(which, count * sizeof(X)));
}

// Consecutive buffers, aligned to 64 bytes, in a block of memory.
struct Arena {
    char* memory;  // null: sizes are counted alone
    int64_t bytes = 0;

    template <class X>
    X* next(int64_t count) {
        char* const result = memory ? memory + bytes : nullptr;
        bytes += static_cast<int64_t>((count * sizeof(X) + 63) / 64 * 64);
        return reinterpret_cast<X*>(result);
    }
};
