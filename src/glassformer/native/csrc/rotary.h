// Each pair of dimensions turned by the angle of its position (Su et al. 2021, arXiv:2104.09864, section 3.2).
#pragma once
#include "rows.h"

struct Rotation {
    int64_t batch, heads, length, size;
    Sequences from, to;
    const float* cosines;  // [length, size], of a pair twice
    const float* sines;    // likewise, the first of a pair negative
    int32_t bfloat16;
    int64_t threads;
    const int64_t* starts;  // where each batch begins if they lie one behind the other, as short as they are; or null
};

// One position of one head, which may be turned in its place.
template <class T>
static inline void turn_head(const T* x, const float* cosines, const float* sines, int64_t size, T* y) {
    int64_t d = 0;
    for (; d + LANES <= size; d += LANES) {
        const Floats some = read(x + d);
        write(y + d, some * load(cosines + d) + neighbours_swapped(some) * load(sines + d));
    }
    for (; d < size; d += 2) {
        const float first = single(x[d]), second = single(x[d + 1]);
        put_single(y + d, first * cosines[d] + second * sines[d]);
        put_single(y + d + 1, second * cosines[d + 1] + first * sines[d + 1]);
    }
}

template <class T>
static void rotate(const Rotation& r) {
#pragma omp parallel for num_threads(r.threads) schedule(static)
    for (int64_t index = 0; index < r.batch * r.length; index++) {
        const int64_t b = index / r.length, i = index % r.length;
        const float *cosines = r.cosines + i * r.size, *sines = r.sines + i * r.size;
        if (r.starts && i >= r.starts[b + 1] - r.starts[b]) continue;
        auto place = [&](const Sequences& rows) {
            return r.starts ? (r.starts[b] + i) * rows.position : b * rows.batch + i * rows.position;
        };
        for (int64_t h = 0; h < r.heads; h++) {
            auto x = static_cast<const T*>(r.from.data) + place(r.from) + h * r.from.head;
            auto y = static_cast<T*>(r.to.data) + place(r.to) + h * r.to.head;
            turn_head(x, cosines, sines, r.size, y);
        }
    }
}
