// Dropout (section 5.4). Its mask is never stored: it is a function of a seed and of an element's index, made anew in
// the backward pass.
#pragma once
#include "simd.h"
#include "thread_pool.h"

// Thirty-two well mixed bits for each counter: multiply and fold, as in hash functions (finalizer of MurmurHash3).
static inline Ints mixed(Ints counter, uint32_t low, uint32_t high) {
    typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
    Words x = (Words)counter * 0x9e3779b9u + low;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    x = (x ^ (x >> 16)) + high;
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    x = (x ^ (x >> 12)) * 0x297a2d39u;
    return (Ints)(x ^ (x >> 15));
}

struct Dropout {
    uint64_t seed;
    int32_t threshold;  // of 256: how many values of a byte drop their element
    float scale;
};

// A byte for each of 4 · LANES elements from `start` on; `part` of them is in bits 8 · part and on.
static inline Ints dropout_bytes(int64_t start, const Dropout& by) {
    Ints lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    const auto block = static_cast<uint32_t>(start / 4);
    const auto above = static_cast<uint32_t>(static_cast<uint64_t>(start) >> 34);
    return mixed(lane + static_cast<int32_t>(block), static_cast<uint32_t>(by.seed),
                 static_cast<uint32_t>(by.seed >> 32) ^ above);
}

static inline Floats apply_dropout(Floats values, Ints bytes, int part, const Dropout& by) {
    return (bytes >> (8 * part) & 255) >= by.threshold ? values * by.scale : Floats{};
}

template <class T>
static inline void drop_some(const T* x, int64_t start, const Dropout& by, T* y) {
    const Ints bytes = dropout_bytes(start, by);
    for (int part = 0; part < 4; part++)
        write(y + part * LANES, apply_dropout(read(x + part * LANES), bytes, part, by));
}

template <class T>
static void drop(const T* x, int64_t count, const Dropout& by, T* y, int64_t threads) {
    const int64_t whole = count / (4 * LANES) * (4 * LANES);
    const int64_t size = padded(chunk_size(threads, whole), 4 * LANES);
    parallel_for(threads, whole, size, [&](int64_t from, int64_t to) {
        for (int64_t start = from; start < to; start += 4 * LANES) drop_some(x + start, start, by, y + start);
    });
    if (whole < count) {
        T rest[4 * LANES] = {}, dropped[4 * LANES];
        memcpy(rest, x + whole, (count - whole) * sizeof(T));
        drop_some(rest, whole, by, dropped);
        memcpy(y + whole, dropped, (count - whole) * sizeof(T));
    }
}

// to = x + dropped y of one row, whose first element is number `start` of all.
template <class T>
static void add_dropped(const T* x, const float* y, int64_t start, const Dropout& by, int64_t size, T* to) {
    for (int64_t i = 0; i < size; i += 4 * LANES) {
        const Ints bytes = by.threshold ? dropout_bytes(start + i, by) : Ints{};
        for (int part = 0; part < 4; part++) {
            const int64_t j = i + part * LANES;
            const Floats dropped = by.threshold ? apply_dropout(load(y + j), bytes, part, by) : load(y + j);
            write(to + j, read(x + j) + dropped);
        }
    }
}

// to = d where the element was not dropped, scaled.
template <class T>
static void drop_row(const float* d, int64_t start, const Dropout& by, int64_t size, T* to) {
    for (int64_t i = 0; i < size; i += 4 * LANES) {
        const Ints bytes = by.threshold ? dropout_bytes(start + i, by) : Ints{};
        for (int part = 0; part < 4; part++) {
            const Floats values = load(d + i + part * LANES);
            write(to + i + part * LANES, by.threshold ? apply_dropout(values, bytes, part, by) : values);
        }
    }
}
