// Rotary positions: each pair of dimensions is rotated by the angle of its position (Su et al. 2021, arXiv:2104.09864,
// section 3.2).
#pragma once
#include "heads.h"

struct Rotation {
    int64_t batch, heads, length, size;
    Sequences from, to;
    const float* cosines;  // [length, size], each pair has its cosine twice
    const float* sines;    // likewise, the first sine of a pair is negated
    int32_t bfloat16;
    int64_t threads;
    const int64_t* cu_seqlens;  // first position of each sequence in unpadded rows, or null
};

// Rotate one position of one head; y may be x.
template <class T>
static inline void rotate_head(const T* x, const float* cosines, const float* sines, int64_t size, T* y) {
    int64_t d = 0;
    for (; d + LANES <= size; d += LANES) {
        const Floats values = read(x + d);
        write(y + d, values * load(cosines + d) + neighbors_swapped(values) * load(sines + d));
    }
    for (; d < size; d += 2) {
        const float first = single(x[d]), second = single(x[d + 1]);
        put_single(y + d, first * cosines[d] + second * sines[d]);
        put_single(y + d + 1, second * cosines[d + 1] + first * sines[d + 1]);
    }
}

template <class T>
static void rotate(const Rotation& r) {
    auto rotate_position = [&](int64_t index) {
        const int64_t b = index / r.length, i = index % r.length;
        const float *cosines = r.cosines + i * r.size, *sines = r.sines + i * r.size;
        if (r.cu_seqlens && i >= r.cu_seqlens[b + 1] - r.cu_seqlens[b]) return;
        auto offset_of = [&](const Sequences& rows) {
            return r.cu_seqlens ? (r.cu_seqlens[b] + i) * rows.position : b * rows.batch + i * rows.position;
        };
        for (int64_t h = 0; h < r.heads; h++) {
            auto x = static_cast<const T*>(r.from.data) + offset_of(r.from) + h * r.from.head;
            auto y = static_cast<T*>(r.to.data) + offset_of(r.to) + h * r.to.head;
            rotate_head(x, cosines, sines, r.size, y);
        }
    };
    const int64_t positions = r.batch * r.length;
    parallel_for(r.threads, positions, chunk_size(r.threads, positions), [&](int64_t from, int64_t to) {
        for (int64_t index = from; index < to; index++) rotate_position(index);
    });
}
