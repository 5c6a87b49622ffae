// Rows of attention heads.
#pragma once
#include <cstdint>

// Tensor [batch, heads, positions, d] with strides; entry d of a row is at data[batch · b + head · h + position · i +
// d].
struct Sequences {
    void* data;
    int64_t batch, head, position;
};

// Rows of one head.
template <class T>
struct Rows {
    T* data;
    int64_t stride;

    Rows(const Sequences& all, int64_t h) : data(static_cast<T*>(all.data) + h * all.head), stride(all.position) {}
    T* operator[](int64_t i) const { return data + i * stride; }

    // The stride is too large for the prefetcher of the processor.
    void fetch(int64_t i, int64_t size) const {
        for (int64_t d = 0; d < size; d += 64 / sizeof(T)) __builtin_prefetch(data + i * stride + d);
    }
};
