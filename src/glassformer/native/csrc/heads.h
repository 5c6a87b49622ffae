// Rows of attention heads, and the three products of attention over whole sequences, TILE queries at a time: Q Kᵀ,
// weights · V, and the rank-k update of the gradients of K and V.
#pragma once
#include "microkernel.h"
#include "thread_pool.h"
#include <vector>

#define TILE 4

// Rows of numbers: entry d of position i of a head of a batch at data[batch · b + head · h + position · i + d].
struct Sequences {
    void* data;
    int64_t batch, head, position;
};

// Those of one head.
template <class T>
struct Rows {
    T* data;
    int64_t apart;

    Rows(const Sequences& all, int64_t h) : data(static_cast<T*>(all.data) + h * all.head), apart(all.position) {}
    T* operator[](int64_t i) const { return data + i * apart; }

    // Rows lie too far apart for the processor to fetch the next ones of its own accord.
    void fetch(int64_t i, int64_t size) const {
        for (int64_t d = 0; d < size; d += 64 / sizeof(T)) __builtin_prefetch(data + i * apart + d);
    }
};

// What scores are products of: pairs of bfloat16 where the processor multiplies them as such, or float32.
#if HAS_BFLOAT16
template <class T> using Factor = Step<T>;
#else
template <class T> using Factor = Step<float>;
#endif
template <class T>
static int64_t units_of(int64_t size) { return (size + Factor<T>::ENTRIES - 1) / Factor<T>::ENTRIES; }

// One row, zeros behind it up to `room` entries.
template <class T>
static void copy_row(const T* row, int64_t size, int64_t room, float* to) {
    int64_t d = 0;
    for (; d + LANES <= size; d += LANES) store(to + d, read(row + d));
    for (; d < room; d++) to[d] = d < size ? single(row[d]) : 0.0f;
}

static void copy_row(const uint16_t* row, int64_t size, int64_t room, Pair* to) {
    const auto halves = reinterpret_cast<uint16_t*>(to);
    int64_t d = 0;
    for (; d + 2 * LANES <= size; d += 2 * LANES) memcpy(halves + d, row + d, 4 * LANES);  // of a fixed size: one move
    for (; d + LANES <= size; d += LANES) memcpy(halves + d, row + d, 2 * LANES);
    for (; d < 2 * room; d++) halves[d] = d < size ? row[d] : 0;
}

// `count` rows from i on of `rows` in all, `room` entries each; missing ones are 0.
template <class T, class X>
static void copy_rows(const Rows<T>& from, int64_t i, int64_t rows, int64_t count, int64_t size, int64_t room, X* to) {
    for (int64_t t = 0; t < count; t++, to += room) {
        from.fetch(i + t + count, size);
        if (i + t < rows) copy_row(from[i + t], size, room, to);
        else std::fill(to, to + room, X{});
    }
}

// Of rows whose widths are padded to whole vectors.
template <class T>
static void put_rows(const float* from, int64_t i, int64_t count, int64_t size, const Rows<T>& to) {
    for (int64_t t = 0; t < count; t++) put(from + t * padded(size, LANES), size, to[i + t]);
}

// The columns behind the last whole vector of each row, zeros behind them.
template <class T>
static const T* last_columns(const Rows<T>& rows, int64_t count, int64_t size, std::vector<T>& to) {
    const int64_t whole = size / LANES * LANES;
    if (whole == size) return nullptr;
    to.assign(count * LANES, T{});
    for (int64_t i = 0; i < count; i++) std::copy(rows[i] + whole, rows[i] + size, to.data() + i * LANES);
    return to.data();
}

// Units of rows, transposed: to[unit][row], zeros behind the last row.
template <class T, class X>
static void transpose(
    const Rows<T>& rows, int64_t count, int64_t units, int64_t size, int64_t room, std::vector<X>& to
) {
    const int64_t whole = padded(units, LANES);
    if (static_cast<int64_t>(to.size()) < whole * room) to.resize(whole * room);
    thread_local std::vector<X> some;
    some.resize(LANES * whole);
    for (int64_t i = 0; i < count; i += LANES) {
        copy_rows(rows, i, count, LANES, size, whole, some.data());
        for (int64_t unit = 0; unit < units; unit += LANES) {
            auto from = reinterpret_cast<const float*>(some.data() + unit);
            transpose_square(from, whole, reinterpret_cast<float*>(to.data() + unit * room + i), room);
        }
    }
    const int64_t end = padded(count, LANES);
    for (int64_t unit = 0; unit < units; unit++)
        std::fill(to.data() + unit * room + end, to.data() + (unit + 1) * room, X{});
}

// results[t][j] = rows[t] · transposed[.][j] for j in [low, high) and on to the end of two vectors.
template <class X>
static void multiply_qk(
    const X* rows, int64_t units, int64_t stride, const std::vector<X>& transposed, int64_t room, int64_t low,
    int64_t high, float* results
) {
    typedef typename Registers<X>::Sum Sum;
    typedef typename Registers<X>::Entries Entries;
    for (int64_t j = low; j < high; j += 2 * LANES) {
        Sum sums[TILE][2] = {};
        const X* panel = transposed.data() + j;
        for (int64_t unit = 0; unit < units; unit++) {
            Entries columns[2];
            UNROLL for (int i = 0; i < 2; i++) columns[i] = entries_at(panel + i * LANES);
            panel += room;  // here, lest the compiler loads the columns again for every use
            UNROLL for (int t = 0; t < TILE; t++) {
                const Entries value = in_all_lanes(rows[t * stride + unit]);
                UNROLL for (int i = 0; i < 2; i++) sums[t][i] = add_product(sums[t][i], value, columns[i]);
            }
        }
        UNROLL for (int t = 0; t < TILE; t++)
            for (int i = 0; i < 2; i++) store(results + t * room + j + i * LANES, (Floats)sums[t][i]);
    }
}

// results[t] = Σ_j weights[t][j] · rows[j], j in [low, high), of WIDTH vectors; rows lie `apart`, results `stride`.
template <int WIDTH, class T>
static void multiply_pv_columns(
    const float* weights, int64_t room, const T* row, int64_t apart, int64_t low, int64_t high, float* results,
    int64_t stride
) {
    Floats sums[TILE][WIDTH] = {};
    row += low * apart;
    for (int64_t j = low; j < high; j++, row += apart) {
        Floats columns[WIDTH];
        UNROLL for (int i = 0; i < WIDTH; i++) columns[i] = read(row + i * LANES);
        UNROLL for (int t = 0; t < TILE; t++)
            UNROLL for (int i = 0; i < WIDTH; i++) sums[t][i] += weights[t * room + j] * columns[i];
    }
    UNROLL for (int t = 0; t < TILE; t++)
        UNROLL for (int i = 0; i < WIDTH; i++) store(results + t * stride + i * LANES, sums[t][i]);
}

// The same of all columns; `last`: see last_columns.
template <class T>
static void multiply_pv(
    const float* weights, int64_t room, const Rows<T>& rows, const T* last, int64_t size, int64_t low, int64_t high,
    float* results
) {
    const int64_t stride = padded(size, LANES);
    int64_t d = 0;
    for (; d + 2 * LANES <= size; d += 2 * LANES)
        multiply_pv_columns<2>(weights, room, rows.data + d, rows.apart, low, high, results + d, stride);
    for (; d + LANES <= size; d += LANES)
        multiply_pv_columns<1>(weights, room, rows.data + d, rows.apart, low, high, results + d, stride);
    if (last) multiply_pv_columns<1>(weights, room, last, LANES, low, high, results + d, stride);
}

// to[j] += Σ_t weights[t][j] · rows[t], j in [low, high), of WIDTH vectors; `rows` stay in registers.
template <int WIDTH>
static void rank_k_update_columns(
    const float* weights, int64_t room, const float* rows, int64_t stride, int64_t low, int64_t high, float* to
) {
    Floats some[TILE][WIDTH];
    UNROLL for (int t = 0; t < TILE; t++)
        UNROLL for (int i = 0; i < WIDTH; i++) some[t][i] = load(rows + t * stride + i * LANES);
    for (int64_t j = low; j < high; j++) {
        float* row = to + j * stride;
        Floats sums[WIDTH];
        UNROLL for (int i = 0; i < WIDTH; i++) sums[i] = load(row + i * LANES);
        UNROLL for (int t = 0; t < TILE; t++)
            UNROLL for (int i = 0; i < WIDTH; i++) sums[i] += weights[t * room + j] * some[t][i];
        UNROLL for (int i = 0; i < WIDTH; i++) store(row + i * LANES, sums[i]);
    }
}

// The same of all columns; widths are padded to whole vectors.
static void rank_k_update(
    const float* weights, int64_t room, const float* rows, int64_t size, int64_t low, int64_t high, float* to
) {
    const int64_t stride = padded(size, LANES);
    int64_t d = 0;
    for (; d + 2 * LANES <= stride; d += 2 * LANES)
        rank_k_update_columns<2>(weights, room, rows + d, stride, low, high, to + d);
    if (d < stride) rank_k_update_columns<1>(weights, room, rows + d, stride, low, high, to + d);
}
