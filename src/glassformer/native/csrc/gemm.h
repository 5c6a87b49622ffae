// The three products of a linear layer in training, x Wᵀ + b and its gradients, within a parallel region.
//
// Every thread of the region calls them, does its share of the work, and meets the others where the caller says so.
// Sums over rows are made of CHUNKs, or by one thread from the first row to the last: they do not depend on how many
// threads there are. All widths are multiples of ABREAST.
#pragma once
#include "microkernel.h"
#include <algorithm>
#include <memory>
#include <omp.h>
#include <vector>

#define CHUNK (4 * TALL)       // rows
#if HAS_SQUARES
#define BLOCK (4 * CHUNK)      // rows whose sums stay in the first level of the cache
#else
#define BLOCK (2 * CHUNK)
#endif
#define DEPTH_AT_ONCE 512      // steps, so that a panel's stay in the second
#define ABREAST 64             // columns of the turned operand that lie side by side
static_assert(ABREAST % PANEL == 0, "whole panels");

template <class T> using Unit = typename Step<T>::Unit;
template <class T> static int64_t steps_of(int64_t depth) { return (depth + Step<T>::ENTRIES - 1) / Step<T>::ENTRIES; }

// Memory that a thread keeps from call to call: fresh pages cost more than what is computed in them. An eighth more than is
// asked for, since batches differ a little, and many blocks of nearly one size leave holes.
enum Piece {
    WEIGHTS, MORE_WEIGHTS, LOW_WEIGHTS, STREAM, MEMORY, CONTEXT, SOME, MORE, RESULTS, ROW, NORM_SUMS, FEED, ACTIVATED,
    TURNED, D_RESULT, D_INNER, D_CONTEXT, D_QUERIES, D_KEYS, D_ASKING, D_ASKED, D_STREAM, D_MEMORY, LOGITS, D_LOGITS, PIECES
};

template <class X>
static X* kept(Piece which, int64_t count) {
    struct Block {
        std::unique_ptr<char[]> data;
        size_t size;
    };
    thread_local Block pieces[PIECES];
    Block& piece = pieces[which];
    const size_t needed = count * sizeof(X) + 64;
    if (piece.size < needed) {
        piece = {};  // before more is asked for
        piece = {std::unique_ptr<char[]>(new char[needed + needed / 8]), needed + needed / 8};
    }
    return reinterpret_cast<X*>((reinterpret_cast<uintptr_t>(piece.data.get()) + 63) / 64 * 64);
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

// Rows that are summed over lie in panels: of WIDTH columns each, the units of all `steps` one behind the other. Those of
// `rows` rows, the first of them at step `first`.
template <int WIDTH, class T>
static void put_in_panels(const T* x, int64_t stride, int64_t rows, int64_t columns, int64_t first, int64_t steps, Unit<T>* to) {
    for (int64_t column = 0; column < columns; column += WIDTH) {
        Unit<T>* units = to + column * steps + first * WIDTH;
        for (int64_t row = 0; row < rows; row += Step<T>::ENTRIES, units += WIDTH) {
            const T* at = x + row * stride + column;
            together(at, row + 1 < rows ? at + stride : nullptr, WIDTH, units);
        }
    }
}

// By all threads, a share of the rows each.
template <class T>
static void pack_rows(const T* x, int64_t stride, int64_t rows, int64_t columns, int64_t first, int64_t steps, Unit<T>* to) {
    const Share mine = share_of(rows, 2 * TALL);
    const int64_t before = mine.from / Step<T>::ENTRIES;
    put_in_panels<PANEL>(x + mine.from * stride, stride, mine.to - mine.from, columns, first + before, steps, to);
}

// Of at most BLOCK or ABREAST rows, each panel's sums [rows, PANEL] for finish(column, sums), whose sums may change.
template <class U, class Finish>
static void multiply_block(OperandOf<U> a, int64_t rows, const U* packed, int64_t columns, int64_t steps, Finish finish) {
    float sums[std::max(BLOCK, ABREAST) * PANEL];
    if (!steps) std::fill(std::begin(sums), std::end(sums), 0.0f);
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

#if HAS_SQUARES
// What one sum takes lies side by side in a.
template <class Finish>
static void multiply_block(OperandOf<Pair> a, int64_t rows, const Pair* packed, int64_t columns, int64_t steps, Finish finish) {
    alignas(64) float sums[std::max(BLOCK, ABREAST) * PANEL];
    if (!steps) std::fill(std::begin(sums), std::end(sums), 0.0f);
    shape(SIDE, SIDE, SIDE);
    for (int64_t column = 0; column < columns; column += PANEL) {
        add_panel<Pairs>(a.data, a.across, rows, packed + column * steps, steps, sums);
        finish(column, sums);
    }
    _tile_release();
}
#endif

template <class T>
static OperandOf<Unit<T>> rows_at(const T* x, int64_t stride) {
    return {reinterpret_cast<const Unit<T>*>(x), stride / Step<T>::ENTRIES, 1};
}

static inline Floats ones(const float*) { return all(1.0f); }
#if HAS_BFLOAT16
static inline __m512bh ones(const Pair*) { return in_all_lanes(static_cast<Pair>(0x3f803f80)); }
#endif

// Σ of the rows that lie ABREAST.
template <class U>
static void sum_columns(const U* a, int64_t steps, float* to) {
    typename Registers<U>::Sum totals[ABREAST / LANES] = {};
    for (int64_t step = 0; step < steps; step++, a += ABREAST)
        UNROLL for (int j = 0; j < ABREAST / LANES; j++) totals[j] = add_product(totals[j], entries_at(a + j * LANES), ones(a));
    UNROLL for (int j = 0; j < ABREAST / LANES; j++) store(to + j * LANES, (Floats)totals[j]);
}

// Columns that lie ABREAST, as rows of a product.
template <class U>
static OperandOf<U> turned_rows(const U* a, int64_t) { return {a, 1, ABREAST}; }

#if HAS_SQUARES
static OperandOf<Pair> turned_rows(const Pair* a, int64_t steps) {
    const int64_t room = padded(steps, 2 * SIDE) + SIDE;  // odd times SIDE, lest rows fall into few sets of the cache
    auto rows = kept<Pair>(TURNED, ABREAST * room);
    for (int64_t step = 0; step < steps; step += SIDE) {
        const int64_t count = std::min<int64_t>(SIDE, steps - step);
        for (int64_t column = 0; column < ABREAST; column += SIDE) {
            const Pair* from = a + step * ABREAST + column;
            Pair* to = rows + column * room + step;
            if (count == SIDE) turn_square(reinterpret_cast<const float*>(from), ABREAST, reinterpret_cast<float*>(to), room);
            else
                for (int64_t i = 0; i < count * SIDE; i++) to[i % SIDE * room + i / SIDE] = from[i / SIDE * ABREAST + i % SIDE];
        }
    }
    return {rows, room, 1};
}
#endif

// aᵀ · x, of a ABREAST and x in panels: put(column of a, column of x, sums of a panel), by whichever thread is free, and
// put_sums(column, of ABREAST columns of a).
template <class U, class Put, class PutSums>
static void multiply_turned(const U* a, int64_t outputs, const U* x, int64_t inputs, int64_t steps, Put put, PutSums put_sums) {
#pragma omp for schedule(dynamic) nowait
    for (int64_t first = 0; first < outputs; first += ABREAST) {
        const U* some = a + first * steps;
        multiply_block(turned_rows(some, steps), ABREAST, x, inputs, steps, [&](int64_t column, const float* sums) {
            for (int64_t i = 0; i < ABREAST; i++) put(first + i, column, sums + i * PANEL);
        });
        float totals[ABREAST];
        sum_columns(some, steps, totals);
        put_sums(first, totals);
    }
}
