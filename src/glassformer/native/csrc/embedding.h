// Scaled embeddings plus positional encodings, with dropout (sections 3.4, 3.5 and 5.4), and their gradients.
#pragma once
#include "dropout.h"
#include <stdexcept>
#include <vector>

#define ROWS_OF_MATRIX 64  // rows whose gradients one chunk sums

struct Embedding {
    int64_t tokens, d_model;
    const int64_t *ids, *positions;   // positions: rows of the table, or null
    const uint8_t* mask;              // 0: padding, whose result is 0; or null
    const float *matrix, *table;
    int64_t matrix_rows, table_rows;
    float scale;
    int32_t threshold;
    uint64_t seed;
    float* x;                         // [tokens, d_model]
    const float* d_x;
    float *d_matrix, *d_table;        // or null
    int64_t threads;
};

static Dropout dropout_of(const Embedding& e) { return {e.seed, e.threshold, 256.0f / (256 - e.threshold)}; }

// Store 4 · LANES entries of a token from i on, after dropout.
template <class Entry>
static inline void store_dropped(const Embedding& e, int64_t token, int64_t i, Entry entry, float* to) {
    const Dropout dropout = dropout_of(e);
    const Ints bytes = dropout.threshold ? dropout_bytes(token * e.d_model + i, dropout) : Ints{};
    for (int part = 0; part < 4; part++) {
        const Floats values = entry(i + part * LANES);
        store(to + i + part * LANES, dropout.threshold ? apply_dropout(values, bytes, part, dropout) : values);
    }
}

static void embed_tokens(const Embedding& e) {
    for (int64_t token = 0; token < e.tokens; token++)
        if (e.ids[token] < 0 || e.ids[token] >= e.matrix_rows) throw std::out_of_range("id");
    auto embed_token = [&](int64_t token) {
        float* x = e.x + token * e.d_model;
        if (e.mask && !e.mask[token]) {
            std::fill(x, x + e.d_model, 0.0f);
            return;
        }
        const float* row = e.matrix + e.ids[token] * e.d_model;
        const float* position = e.positions ? e.table + e.positions[token] * e.d_model : nullptr;
        auto entry = [&](int64_t i) {
            return position ? load(row + i) * e.scale + load(position + i) : load(row + i) * e.scale;
        };
        for (int64_t i = 0; i < e.d_model; i += 4 * LANES) store_dropped(e, token, i, entry, x);
    };
    parallel_for(e.threads, e.tokens, chunk_size(e.threads, e.tokens), [&](int64_t from, int64_t to) {
        for (int64_t token = from; token < to; token++) embed_token(token);
    });
}

// d[r] = factor · Σ of the gradients of all tokens with row r, in their order, for any number of threads.
static void gather_gradients(const Embedding& e, const int64_t* rows_of, int64_t rows, float factor, float* d) {
    std::vector<int64_t> first(rows + 1), order;
    for (int64_t token = 0; token < e.tokens; token++) first[rows_of[token] + 1] += !e.mask || e.mask[token];
    for (int64_t row = 0; row < rows; row++) first[row + 1] += first[row];
    order.resize(first[rows]);
    std::vector<int64_t> next(first.begin(), first.end() - 1);
    for (int64_t token = 0; token < e.tokens; token++)
        if (!e.mask || e.mask[token]) order[next[rows_of[token]]++] = token;
    parallel_for(e.threads, rows, ROWS_OF_MATRIX, [&](int64_t from, int64_t end) {
        std::vector<float> d_token(e.d_model);
        for (int64_t row = from; row < end; row++) {
            float* to = d + row * e.d_model;
            std::fill(to, to + e.d_model, 0.0f);
            for (int64_t at = first[row]; at < first[row + 1]; at++) {
                const float* gradient = e.d_x + order[at] * e.d_model;
                for (int64_t i = 0; i < e.d_model; i += 4 * LANES)
                    store_dropped(e, order[at], i, [&](int64_t j) { return load(gradient + j); }, d_token.data());
                for (int64_t i = 0; i < e.d_model; i += LANES)
                    store(to + i, load(to + i) + load(d_token.data() + i) * factor);
            }
        }
    });
}

static void embedding_gradients(const Embedding& e) {
    if (e.d_matrix) gather_gradients(e, e.ids, e.matrix_rows, e.scale, e.d_matrix);
    if (e.d_table) gather_gradients(e, e.positions, e.table_rows, 1.0f, e.d_table);
}
