// The products that attention over whole sequences consists of, TILE queries at a time, and the rows it reads and writes.
#pragma once
#include "vectors.h"
#include <algorithm>
#include <vector>

#define TILE 4

// Rows of numbers: entry d of position i of a head of a batch at data[batch · b + head · h + position · i + d].
struct Sequences {
    void* data;
    int64_t batch, head, position;
};

template <class T>
static void fetch_rows(const Sequences& from, int64_t h, int64_t count, int64_t size, std::vector<float>& to) {
    const size_t needed = (count + TILE) * size;
    if (to.size() < needed) to.resize(needed);
    std::fill(to.begin() + count * size, to.begin() + needed, 0.0f);
    for (int64_t i = 0; i < count; i++) {
        auto row = static_cast<const T*>(from.data) + h * from.head + i * from.position;
        // Rows lie too far apart for the processor to fetch the next ones of its own accord.
        for (int64_t ahead = 0; ahead < size; ahead += 64 / sizeof(T)) __builtin_prefetch(row + 8 * from.position + ahead);
        int64_t d = 0;
        for (; d + LANES <= size; d += LANES) store(to.data() + i * size + d, read(row + d));
        for (; d < size; d++) to[i * size + d] = single(row[d]);
    }
}

template <class T>
static void put_rows(const std::vector<float>& from, int64_t count, int64_t size, const Sequences& to, int64_t h) {
    for (int64_t i = 0; i < count; i++) {
        auto row = static_cast<T*>(to.data) + h * to.head + i * to.position;
        int64_t d = 0;
        for (; d + LANES <= size; d += LANES) write(row + d, load(from.data() + i * size + d));
        for (; d < size; d++) put_single(row + d, from[i * size + d]);
    }
}

static void turn(const std::vector<float>& rows, int64_t count, int64_t size, int64_t room, std::vector<float>& to) {
    to.resize(size * room);
    const int64_t whole_rows = count / LANES * LANES, whole = size / LANES * LANES;
    for (int64_t i = 0; i < whole_rows; i += LANES)
        for (int64_t d = 0; d < whole; d += LANES)
            turn_square(rows.data() + i * size + d, size, to.data() + d * room + i, room);
    for (int64_t d = 0; d < size; d++) {
        float* row = to.data() + d * room;
        for (int64_t i = d < whole ? whole_rows : 0; i < count; i++) row[i] = rows[i * size + d];
        std::fill(row + count, row + room, 0.0f);
    }
}

// results[t][j] = Σ_d rows[t][d] · turned[d][j] for j in [low, high) and on to the end of a vector.
static void dots(
    const float* rows, int64_t size, const std::vector<float>& turned, int64_t room, int64_t low, int64_t high, float* results
) {
    for (int64_t j = low; j < high; j += LANES) {
        Floats sums[TILE] = {};
        for (int64_t d = 0; d < size; d++) {
            const Floats column = load(turned.data() + d * room + j);
            UNROLL for (int t = 0; t < TILE; t++) sums[t] += rows[t * size + d] * column;
        }
        UNROLL for (int t = 0; t < TILE; t++) store(results + t * room + j, sums[t]);
    }
}

// results[t] = Σ_j weights[t][j] · rows[j], j in [low, high)
static void weigh(
    const float* weights, int64_t room, const std::vector<float>& rows, int64_t size, int64_t low, int64_t high, float* results
) {
    for (int64_t d = 0; d < size; d += 2 * LANES) {
        const int64_t width = std::min<int64_t>(2 * LANES, size - d);
        if (width == 2 * LANES) {
            Floats sums[TILE][2] = {};
            for (int64_t j = low; j < high; j++) {
                const Floats left = load(rows.data() + j * size + d), right = load(rows.data() + j * size + d + LANES);
                UNROLL for (int t = 0; t < TILE; t++) {
                    sums[t][0] += weights[t * room + j] * left;
                    sums[t][1] += weights[t * room + j] * right;
                }
            }
            UNROLL for (int t = 0; t < TILE; t++) {
                store(results + t * size + d, sums[t][0]);
                store(results + t * size + d + LANES, sums[t][1]);
            }
            continue;
        }
        for (int t = 0; t < TILE; t++)
            for (int64_t e = d; e < d + width; e++) {
                float sum = 0;
                for (int64_t j = low; j < high; j++) sum += weights[t * room + j] * rows[j * size + e];
                results[t * size + e] = sum;
            }
    }
}

// to[j] += Σ_t weights[t][j] · rows[t], j in [low, high); `rows` stay in registers.
static void spread(
    const float* weights, int64_t room, const float* rows, int64_t size, int64_t low, int64_t high, std::vector<float>& to
) {
    int64_t d = 0;
    for (; d + 2 * LANES <= size; d += 2 * LANES) {
        Floats some[TILE][2];
        UNROLL for (int t = 0; t < TILE; t++) {
            some[t][0] = load(rows + t * size + d), some[t][1] = load(rows + t * size + d + LANES);
        }
        for (int64_t j = low; j < high; j++) {
            float* row = to.data() + j * size + d;
            Floats left = load(row), right = load(row + LANES);
            UNROLL for (int t = 0; t < TILE; t++) {
                left += weights[t * room + j] * some[t][0];
                right += weights[t * room + j] * some[t][1];
            }
            store(row, left), store(row + LANES, right);
        }
    }
    for (; d < size; d++)
        for (int64_t j = low; j < high; j++)
            for (int t = 0; t < TILE; t++) to[j * size + d] += weights[t * room + j] * rows[t * size + d];
}
