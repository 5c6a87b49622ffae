// Dropout (section 5.4). Its mask is a function of a seed and of an element's index: the backward pass recomputes it.
#pragma once
#include "simd.h"
#include "thread_pool.h"

// 32 hashed bits for each counter (multiply and shift, as in the finalizer of MurmurHash3).
// `low` is one number for all counters or one for each.
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
template <class Low>
static inline Ints mix_bits(Ints counter, Low low, uint32_t high) {
    Words x = (Words)counter * 0x9e3779b9u + low;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    x = (x ^ (x >> 16)) + high;
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    x = (x ^ (x >> 12)) * 0x297a2d39u;
    return (Ints)(x ^ (x >> 15));
}

// Bits for the weights of attention of `keys` in the rows `row` + `row_lanes`.
static inline Ints weight_bits(uint64_t seed, int64_t row, Ints row_lanes, Ints keys) {
    const Words rows = ((Words)row_lanes + static_cast<uint32_t>(row)) * 0x9e3779b1u;
    const auto high = static_cast<uint32_t>(seed >> 32) + static_cast<uint32_t>(row >> 32);
    return mix_bits(keys, static_cast<uint32_t>(seed) ^ rows, high);
}

struct Dropout {
    uint64_t seed;
    int32_t threshold;  // rate · 256: bytes below it drop their element
    float scale;        // of the others

    Dropout(uint64_t seed, int32_t threshold) : seed(seed), threshold(threshold), scale(256.0f / (256 - threshold)) {}
};

// One byte for each of 4 · LANES elements from `start` on; those of vector `byte` are in bits 8 · byte to 8 · byte + 7.
static inline Ints dropout_bytes(int64_t start, const Dropout& dropout) {
    const auto block = static_cast<uint32_t>(start / 4);
    const auto high = static_cast<uint32_t>(static_cast<uint64_t>(start) >> 34);
    return mix_bits(
        lane_numbers() + static_cast<int32_t>(block), static_cast<uint32_t>(dropout.seed),
        static_cast<uint32_t>(dropout.seed >> 32) ^ high
    );
}

static inline Floats apply_dropout(Floats values, Ints bytes, int byte, const Dropout& dropout) {
    return (bytes >> (8 * byte) & 255) >= dropout.threshold ? values * dropout.scale : Floats{};
}

template <class T>
static inline void drop_vectors(const T* x, int64_t start, const Dropout& dropout, T* y) {
    const Ints bytes = dropout_bytes(start, dropout);
    for (int byte = 0; byte < 4; byte++)
        write(y + byte * LANES, apply_dropout(read(x + byte * LANES), bytes, byte, dropout));
}

template <class T>
static void drop(const T* x, int64_t count, const Dropout& dropout, T* y, int64_t threads) {
    const int64_t full = count / (4 * LANES) * (4 * LANES);
    const int64_t size = padded(chunk_size(threads, full, 1), 4 * LANES);
    parallel_for(threads, full, size, [&](int64_t from, int64_t to) {
        for (int64_t start = from; start < to; start += 4 * LANES) drop_vectors(x + start, start, dropout, y + start);
    });
    if (full < count) {
        T rest[4 * LANES] = {}, dropped[4 * LANES];
        memcpy(rest, x + full, (count - full) * sizeof(T));
        drop_vectors(rest, full, dropout, dropped);
        memcpy(y + full, dropped, (count - full) * sizeof(T));
    }
}

// to = x + dropout(y) of one row; `start` is the index of its first element.
template <class T>
static void add_dropped(const T* x, const float* y, int64_t start, const Dropout& dropout, int64_t size, T* to) {
    for (int64_t i = 0; i < size; i += 4 * LANES) {
        const Ints bytes = dropout.threshold ? dropout_bytes(start + i, dropout) : Ints{};
        for (int byte = 0; byte < 4; byte++) {
            const int64_t j = i + byte * LANES;
            const Floats dropped = dropout.threshold ? apply_dropout(load(y + j), bytes, byte, dropout) : load(y + j);
            write(to + j, read(x + j) + dropped);
        }
    }
}

// Gradient of dropout: d scaled, 0 for dropped elements.
template <class T>
static void drop_row(const float* d, int64_t start, const Dropout& dropout, int64_t size, T* to) {
    for (int64_t i = 0; i < size; i += 4 * LANES) {
        const Ints bytes = dropout.threshold ? dropout_bytes(start + i, dropout) : Ints{};
        for (int byte = 0; byte < 4; byte++) {
            const Floats values = load(d + i + byte * LANES);
            write(to + i + byte * LANES, dropout.threshold ? apply_dropout(values, bytes, byte, dropout) : values);
        }
    }
}
