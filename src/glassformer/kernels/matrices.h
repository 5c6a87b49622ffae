// The three products of a linear layer in training, x Wᵀ + b and its gradients, within a parallel region.
//
// Every thread of the region calls them, does its share of the work, and meets the others where the caller says so.
// Sums over rows are made of CHUNKs, or by one thread from the first row to the last: they do not depend on how many
// threads there are. All widths are whole panels.
#pragma once
#include "tiles.h"
#include <algorithm>
#include <omp.h>
#include <vector>

#define CHUNK (4 * TALL)       // rows
#define BLOCK (2 * CHUNK)      // rows whose sums stay in the first level of the cache
#define DEPTH_AT_ONCE 512      // steps, so that a panel's stay in the second

template <class T> struct Step { typedef float Unit; enum { ENTRIES = 1 }; };
template <> struct Step<uint16_t> { typedef Pair Unit; enum { ENTRIES = 2 }; };
template <class T> using Unit = typename Step<T>::Unit;
template <class T> static int64_t steps_of(int64_t depth) { return (depth + Step<T>::ENTRIES - 1) / Step<T>::ENTRIES; }

// Memory that a thread keeps from call to call: fresh pages cost more than what is computed in them.
enum Piece {
    WEIGHTS, MORE_WEIGHTS, LOW_WEIGHTS, FEED, INNER, ASKED, TURNED, RESULTS, ROW, NORM_SUMS,
    D_RESULT, D_INNER, D_QUERIES, D_KEYS, D_STREAM, D_MEMORY, ACTIVATED, LOGITS, D_LOGITS, PIECES
};

template <class X>
static X* kept(Piece which, int64_t count) {
    thread_local std::vector<char> pieces[PIECES];
    auto& piece = pieces[which];
    const size_t needed = count * sizeof(X) + 64;
    if (piece.size() < needed) piece = std::vector<char>(needed);
    return reinterpret_cast<X*>((reinterpret_cast<uintptr_t>(piece.data()) + 63) / 64 * 64);
}

struct Share {
    int64_t from, to;
};

// What this thread does of `count`, in parts of `size`.
static Share share_of(int64_t count, int64_t size) {
    const int64_t parts = (count + size - 1) / size, threads = omp_get_num_threads(), index = omp_get_thread_num();
    return {std::min(parts * index / threads * size, count), std::min(parts * (index + 1) / threads * size, count)};
}

// Units of two neighbouring rows side by side, `below` null where there is none; in float32 the one row.
static inline void together(const float* row, const float*, int64_t count, float* to) { memcpy(to, row, count * sizeof(float)); }

static inline void together(const uint16_t* row, const uint16_t* below, int64_t count, Pair* to) {
    for (int64_t i = 0; i < count; i++) to[i] = row[i] | static_cast<uint32_t>(below ? below[i] : 0) << 16;
}

// W [outputs, inputs] for x Wᵀ: panels of outputs, one behind the other.
template <class T>
static void pack_for_outputs(const T* weight, int64_t outputs, int64_t inputs, Unit<T>* to) {
    // A pair is moved as if it were a number of 32 bits.
    const auto units = reinterpret_cast<const float*>(weight);
    const auto panels = reinterpret_cast<float*>(to);
    const int64_t steps = steps_of<T>(inputs);
    const Share mine = share_of(outputs, LANES);
    for (int64_t output = mine.from; output < mine.to; output += LANES)
        for (int64_t r = 0; r < steps; r += LANES)
            turn_square(units + output * steps + r, steps, panels + output / PANEL * PANEL * steps + r * PANEL + output % PANEL, PANEL);
}

// Rows that are summed over, from step `first` on of `steps` in all: panels of columns.
template <class T>
static void pack_rows(const T* x, int64_t stride, int64_t rows, int64_t columns, int64_t first, int64_t steps, Unit<T>* to) {
    const Share mine = share_of(steps_of<T>(rows), 1);
    for (int64_t step = mine.from; step < mine.to; step++) {
        const T* row = x + step * Step<T>::ENTRIES * stride;
        const T* below = (step + 1) * Step<T>::ENTRIES <= rows ? row + stride : nullptr;
        for (int64_t column = 0; column < columns; column += PANEL)
            together(row + column, below ? below + column : nullptr, PANEL, to + column * steps + (first + step) * PANEL);
    }
}

// Of at most BLOCK rows, each panel's sums [rows, PANEL] for finish(column, sums), whose sums may change.
template <class U, class Finish>
static void multiply_block(OperandOf<U> a, int64_t rows, const U* packed, int64_t columns, int64_t steps, Finish finish) {
    float sums[BLOCK * PANEL];
    if (!steps) std::fill(sums, sums + BLOCK * PANEL, 0.0f);
    for (int64_t column = 0; column < columns; column += PANEL) {
        for (int64_t r = 0; r < steps; r += DEPTH_AT_ONCE) {
            const U* panel = packed + column * steps + r * PANEL;
            const int64_t count = std::min<int64_t>(DEPTH_AT_ONCE, steps - r);
            in_tiles(rows, [&](auto height, int64_t row) {
                const OperandOf<U> some = {a.data + row * a.across + r * a.along, a.across, a.along};
                if (r) add_block<decltype(height)::value>(some, panel, count, sums + row * PANEL);
                else add_block<decltype(height)::value, true>(some, panel, count, sums + row * PANEL);
            });
        }
        finish(column, sums);
    }
}

template <class T>
static OperandOf<Unit<T>> rows_at(const T* x, int64_t stride) {
    return {reinterpret_cast<const Unit<T>*>(x), stride / Step<T>::ENTRIES, 1};
}

// aᵀ · x, with x packed by rows: put(column of a, column of x, sums of a panel), of this thread's share of a's columns.
template <class T, class Put>
static void multiply_turned(
    const T* a, int64_t stride, int64_t outputs, const Unit<T>* x, int64_t inputs, int64_t rows, Put put
) {
    const int64_t steps = steps_of<T>(rows);
    auto turned = kept<Unit<T>>(TURNED, steps * BLOCK);
#pragma omp for schedule(dynamic) nowait
    for (int64_t first = 0; first < outputs; first += BLOCK) {
        const int64_t count = std::min<int64_t>(BLOCK, outputs - first);
        for (int64_t step = 0; step < steps; step++) {
            const T* row = a + step * Step<T>::ENTRIES * stride + first;
            // Rows lie too far apart for the processor to fetch the next ones of its own accord.
            for (int64_t ahead = 16; ahead < 16 + Step<T>::ENTRIES; ahead++)
                for (int64_t i = 0; i < count; i += 64 / sizeof(T)) __builtin_prefetch(row + ahead * stride + i);
            together(row, (step + 1) * Step<T>::ENTRIES <= rows ? row + stride : nullptr, count, turned + step * BLOCK);
        }
        multiply_block<Unit<T>>({turned, 1, BLOCK}, count, x, inputs, steps, [&](int64_t column, const float* sums) {
            for (int64_t i = 0; i < count; i++) put(first + i, column, sums + i * PANEL);
        });
    }
}

// Σ of the rows, to `to` or added to it: this thread's share of the columns.
template <class T, class X>
static void add_columns(const T* x, int64_t stride, int64_t columns, int64_t rows, bool begin, X* to) {
    const Share mine = share_of(columns, 4 * LANES);
    int64_t j = mine.from;
    for (; j + LANES <= mine.to; j += 4 * LANES) {
        const int64_t some = std::min<int64_t>(4, (mine.to - j) / LANES);
        Floats sums[4];
        for (int i = 0; i < some; i++) sums[i] = begin ? Floats{} : read(to + j + i * LANES);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < some; i++) sums[i] += read(x + row * stride + j + i * LANES);
        for (int64_t i = 0; i < some; i++) write(to + j + i * LANES, sums[i]);
        if (some < 4) j -= (4 - some) * LANES;
    }
    for (; j < mine.to; j++) {
        float total = begin ? 0.0f : single(to[j]);
        for (int64_t row = 0; row < rows; row++) total += single(x[row * stride + j]);
        put_single(to + j, total);
    }
}
