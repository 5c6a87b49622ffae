// Rotary positions: each pair of dimensions is rotated by the angle of its position (Su et al. 2021, arXiv:2104.09864,
// section 3.2).
#pragma once
#include "arguments.h"
#include "simd.h"
#include "thread_pool.h"

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
        const float *cosines = r.tables.cosines + i * r.size, *sines = r.tables.sines + i * r.size;
        if (r.cu_seqlens && i >= r.cu_seqlens[b + 1] - r.cu_seqlens[b]) return;
        auto offset_of = [&](const Sequences& rows) {
            return r.cu_seqlens ? (r.cu_seqlens[b] + i) * rows.position : b * rows.batch + i * rows.position;
        };
        for (int64_t h = 0; h < r.heads; h++) {
            auto x = static_cast<const T*>(r.x.data) + offset_of(r.x) + h * r.x.head;
            auto y = static_cast<T*>(r.y.data) + offset_of(r.y) + h * r.y.head;
            rotate_head(x, cosines, sines, r.size, y);
        }
    };
    const int64_t positions = r.batch * r.length, size = chunk_size(r.threads, positions, r.heads * r.size);
    parallel_for(r.threads, positions, size, [&](int64_t from, int64_t to) {
        for (int64_t index = from; index < to; index++) rotate_position(index);
    });
}
