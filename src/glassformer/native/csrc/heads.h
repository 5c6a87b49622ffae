// Rows of attention heads, and the three products of attention over full sequences, QUERY_TILE queries at a time: Q Kᵀ,
// weights · V, and the rank-k update of the gradients of K and V.
#pragma once
#include "arguments.h"
#include "simd.h"
#include <vector>

// A larger tile saves loads, but computes more queries beyond the end of a short sequence.
#if LANES == 16
#define QUERY_TILE 4
#else
#define QUERY_TILE 6
#endif
#define ROWS_AHEAD 8  // rows prefetched ahead of the one being written

// Rows of one head.
template <class T>
struct Rows {
    T* data;
    int64_t stride;

    Rows(const Sequences& all, int64_t h) : data(static_cast<T*>(all.data) + h * all.head), stride(all.position) {}
    T* operator[](int64_t i) const { return data + i * stride; }

    // The stride is too large for the prefetcher of the processor.
    void fetch(int64_t i, int64_t size) const { prefetch(data + i * stride, size); }
};

// Copy one row; zeros fill it up to `width` entries, full vectors.
template <class T>
static void copy_row(const T* row, int64_t size, int64_t width, float* to) {
    int64_t d = 0;
    for (; d + LANES <= size; d += LANES) store(to + d, read(row + d));
    for (; d < width; d += LANES) store(to + d, read_first(row + d, size - d));
}

// Copy `count` of `rows` rows from i on, `width` entries each; rows beyond the last are 0.
template <class T>
static void copy_rows(
    const Rows<T>& from, int64_t i, int64_t rows, int64_t count, int64_t size, int64_t width, float* to
) {
    for (int64_t t = 0; t < count; t++, to += width) {
        from.fetch(i + t + count, size);
        if (i + t < rows) copy_row(from[i + t], size, width, to);
        else std::fill(to, to + width, 0.0f);
    }
}

// Store rows from a buffer whose row stride is padded to full vectors.
template <class T>
static void put_rows(const float* from, int64_t i, int64_t count, int64_t size, const Rows<T>& to) {
    for (int64_t t = 0; t < count; t++, from += padded(size, LANES)) {
        int64_t d = 0;
        for (; d + LANES <= size; d += LANES) write(to[i + t] + d, load(from + d));
        if (d < size) write_first(to[i + t] + d, size - d, load(from + d));
    }
}

// Columns after the last full vector of each row, filled with zeros to a vector; null if there are none.
template <class T>
static const T* last_columns(const Rows<T>& rows, int64_t count, int64_t size, std::vector<T>& to) {
    const int64_t full = size / LANES * LANES;
    if (full == size) return nullptr;
    to.resize(count * LANES);
    for (int64_t i = 0; i < count; i++) write(to.data() + i * LANES, read_first(rows[i] + full, size - full));
    return to.data();
}

// Transpose rows: to[column][row], zeros after the last row.
template <class T>
static void transpose_rows(const Rows<T>& rows, int64_t count, int64_t size, int64_t stride, std::vector<float>& to) {
    const int64_t width = padded(size, LANES);
    if (static_cast<int64_t>(to.size()) < width * stride) to.resize(width * stride);
    thread_local std::vector<float> rows_buffer;
    rows_buffer.resize(LANES * width);
    for (int64_t i = 0; i < count; i += LANES) {
        copy_rows(rows, i, count, LANES, size, width, rows_buffer.data());
        for (int64_t column = 0; column < size; column += LANES)
            transpose_square(rows_buffer.data() + column, width, to.data() + column * stride + i, stride);
    }
    const int64_t end = padded(count, LANES);
    for (int64_t column = 0; column < size; column++)
        std::fill(to.data() + column * stride + end, to.data() + (column + 1) * stride, 0.0f);
}

// results[t][j] = rows[t] · transposed[.][j] for WIDTH vectors of columns j.
template <int WIDTH>
static void multiply_qk_columns(
    const float* rows, int64_t size, int64_t stride, const float* transposed, int64_t score_stride, float* results
) {
    Floats sums[QUERY_TILE][WIDTH] = {};
    for (int64_t d = 0; d < size; d++) {
        Floats columns[WIDTH];
        UNROLL_FOR (int i = 0; i < WIDTH; i++) columns[i] = load(transposed + i * LANES);
        transposed += score_stride;  // here, so that the compiler does not reload the columns for every use
        UNROLL_FOR (int t = 0; t < QUERY_TILE; t++) {
            const Floats value = broadcast(rows[t * stride + d]);
            UNROLL_FOR (int i = 0; i < WIDTH; i++) sums[t][i] += value * columns[i];
        }
    }
    UNROLL_FOR (int t = 0; t < QUERY_TILE; t++)
        UNROLL_FOR (int i = 0; i < WIDTH; i++) store(results + t * score_stride + i * LANES, sums[t][i]);
}

// The same for all j in [low, high), rounded up to full vectors.
static void multiply_qk(
    const float* rows, int64_t size, int64_t stride, const std::vector<float>& transposed, int64_t score_stride,
    int64_t low, int64_t high, float* results
) {
    int64_t j = low;
    for (; j + LANES < high; j += 2 * LANES)
        multiply_qk_columns<2>(rows, size, stride, transposed.data() + j, score_stride, results + j);
    if (j < high) multiply_qk_columns<1>(rows, size, stride, transposed.data() + j, score_stride, results + j);
}

// results[t] = Σ_j weights[t][j] · rows[j], j in [low, high), for WIDTH vectors of columns.
template <int WIDTH, class T>
static void multiply_pv_columns(
    const float* weights, int64_t score_stride, const T* row, int64_t row_stride, int64_t low, int64_t high,
    float* results, int64_t stride
) {
    Floats sums[QUERY_TILE][WIDTH] = {};
    row += low * row_stride;
    for (int64_t j = low; j < high; j++, row += row_stride) {
        Floats columns[WIDTH];
        UNROLL_FOR (int i = 0; i < WIDTH; i++) columns[i] = read(row + i * LANES);
        UNROLL_FOR (int t = 0; t < QUERY_TILE; t++)
            UNROLL_FOR (int i = 0; i < WIDTH; i++) sums[t][i] += weights[t * score_stride + j] * columns[i];
    }
    UNROLL_FOR (int t = 0; t < QUERY_TILE; t++)
        UNROLL_FOR (int i = 0; i < WIDTH; i++) store(results + t * stride + i * LANES, sums[t][i]);
}

// The same for all columns; `last` is the result of last_columns.
template <class T>
static void multiply_pv(
    const float* weights, int64_t score_stride, const Rows<T>& rows, const T* last, int64_t size, int64_t low,
    int64_t high, float* results
) {
    const int64_t stride = padded(size, LANES);
    int64_t d = 0;
    for (; d + 2 * LANES <= size; d += 2 * LANES)
        multiply_pv_columns<2>(weights, score_stride, rows.data + d, rows.stride, low, high, results + d, stride);
    for (; d + LANES <= size; d += LANES)
        multiply_pv_columns<1>(weights, score_stride, rows.data + d, rows.stride, low, high, results + d, stride);
    if (d < size) multiply_pv_columns<1>(weights, score_stride, last, LANES, low, high, results + d, stride);
}

// to[j] += Σ_t weights[t][j] · rows[t], j in [low, high), for WIDTH vectors of columns; `rows` stay in registers.
template <int WIDTH>
static void rank_k_update_columns(
    const float* weights, int64_t score_stride, const float* rows, int64_t stride, int64_t low, int64_t high, float* to
) {
    Floats values[QUERY_TILE][WIDTH];
    UNROLL_FOR (int t = 0; t < QUERY_TILE; t++)
        UNROLL_FOR (int i = 0; i < WIDTH; i++) values[t][i] = load(rows + t * stride + i * LANES);
    for (int64_t j = low; j < high; j++) {
        float* row = to + j * stride;
        Floats sums[WIDTH];
        UNROLL_FOR (int i = 0; i < WIDTH; i++) sums[i] = load(row + i * LANES);
        UNROLL_FOR (int t = 0; t < QUERY_TILE; t++)
            UNROLL_FOR (int i = 0; i < WIDTH; i++) sums[i] += weights[t * score_stride + j] * values[t][i];
        UNROLL_FOR (int i = 0; i < WIDTH; i++) store(row + i * LANES, sums[i]);
    }
}

// The same for all columns; widths are padded to full vectors.
static void rank_k_update(
    const float* weights, int64_t score_stride, const float* rows, int64_t size, int64_t low, int64_t high, float* to
) {
    const int64_t stride = padded(size, LANES);
    int64_t d = 0;
    for (; d + 2 * LANES <= stride; d += 2 * LANES)
        rank_k_update_columns<2>(weights, score_stride, rows + d, stride, low, high, to + d);
    if (d < stride) rank_k_update_columns<1>(weights, score_stride, rows + d, stride, low, high, to + d);
}
