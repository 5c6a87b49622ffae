// Buffers of a thread, reused from call to call: new pages cost more than the arithmetic on them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

// clang-format off: it would take a line for each
enum Buffer {
    WEIGHTS, OUTER_WEIGHTS, ROUNDED_WEIGHTS, STREAM, MEMORY, CONTEXT, BLOCK_INPUT, BLOCK_HIDDEN, BLOCK_ACTIVATED,
    BLOCK_RESULT, ROW, NORM_SUMS, PACKED_INPUT, ACTIVATED, TRANSPOSED, D_RESULT, D_INNER, D_CONTEXT, D_QUERIES,
    D_KEYS, D_QUERY_PANELS, D_KEY_PANELS, D_STREAM, D_MEMORY, LOGITS, D_LOGITS, QUANTIZED, QUANTIZED_SCALES,
    QUANTIZED_SUMS, NORMALIZED, PROJECTED, HEAD_OUTPUTS, NEWEST, SCORES, KEY_ROWS, LOG_SUMS, BUFFERS
};
// clang-format on

// Buffer for `count` numbers, valid until the next call for the same buffer. It is allocated an eighth larger: batches
// differ a little, and many blocks of nearly equal size fragment the heap.
template <class X>
inline X* workspace(Buffer which, int64_t count) {
    struct Block {
        std::unique_ptr<char[]> data;
        size_t size;
    };
    thread_local Block buffers[BUFFERS];
    Block& buffer = buffers[which];
    const size_t needed = count * sizeof(X) + 64;
    if (buffer.size < needed) {
        buffer = {};  // freed before the larger allocation
        buffer = {std::unique_ptr<char[]>(new char[needed + needed / 8]), needed + needed / 8};
    }
    return reinterpret_cast<X*>((reinterpret_cast<uintptr_t>(buffer.data.get()) + 63) / 64 * 64);
}
