// Scaled embeddings plus positional encodings, with dropout (sections 3.4, 3.5 and 5.4), and their gradients.
#pragma once
#include "dropout.h"
#include <stdexcept>
#include <vector>

#define ROWS_OF_MATRIX 16  // rows whose gradients one chunk sums

struct Embedding {
    int64_t tokens, d_model;
    const int64_t *ids, *positions;  // positions: rows of the table, or null
    const uint8_t* mask;             // 0: padding, whose result is 0; or null
    const float *matrix, *table;
    int64_t matrix_rows, table_rows;
    float scale;
    int32_t threshold;
    uint64_t seed;
    float* x;  // [tokens, d_model]
    const float* d_x;
    int64_t* rows;            // result: rows that tokens read, in order, at most `tokens`; or null
    float *d_rows, *d_table;  // their gradients; those of all rows of the table, or null
    int64_t n_rows;           // result
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

// Rows that tokens read, in order; those of row i are tokens[first[i] … first[i + 1]), in their order.
struct RowReaders { std::vector<int64_t> rows, first, tokens; };

static RowReaders readers_of(const Embedding& e, const int64_t* row_of, int64_t n_rows) {
    RowReaders r;
    std::vector<int64_t> next(n_rows + 1);
    for (int64_t token = 0; token < e.tokens; token++) next[row_of[token] + 1] += !e.mask || e.mask[token];
    for (int64_t row = 0; row < n_rows; row++) {
        if (next[row + 1]) r.rows.push_back(row), r.first.push_back(next[row]);
        next[row + 1] += next[row];
    }
    r.first.push_back(next[n_rows]);
    r.tokens.resize(next[n_rows]);
    for (int64_t token = 0; token < e.tokens; token++)
        if (!e.mask || e.mask[token]) r.tokens[next[row_of[token]]++] = token;
    return r;
}

// to(i) = factor · Σ of the gradients of all tokens with row i, in their order, for any number of threads.
template <class To>
static void sum_gradients(const Embedding& e, const RowReaders& r, float factor, To to) {
    const auto n_rows = static_cast<int64_t>(r.rows.size());
    parallel_for(e.threads, n_rows, ROWS_OF_MATRIX, [&](int64_t from, int64_t end) {
        std::vector<float> d_token(e.d_model);
        for (int64_t row = from; row < end; row++) {
            float* sums = to(row);
            std::fill(sums, sums + e.d_model, 0.0f);
            for (int64_t at = r.first[row]; at < r.first[row + 1]; at++) {
                const float* gradient = e.d_x + r.tokens[at] * e.d_model;
                for (int64_t i = 0; i < e.d_model; i += 4 * LANES)
                    store_dropped(e, r.tokens[at], i, [&](int64_t j) { return load(gradient + j); }, d_token.data());
                for (int64_t i = 0; i < e.d_model; i += LANES)
                    store(sums + i, load(sums + i) + load(d_token.data() + i) * factor);
            }
        }
    });
}

static void embedding_gradients(Embedding& e) {
    if (e.rows) {
        const RowReaders readers = readers_of(e, e.ids, e.matrix_rows);
        e.n_rows = static_cast<int64_t>(readers.rows.size());
        std::copy(readers.rows.begin(), readers.rows.end(), e.rows);
        sum_gradients(e, readers, e.scale, [&](int64_t i) { return e.d_rows + i * e.d_model; });
    }
    if (e.d_table) {
        const RowReaders readers = readers_of(e, e.positions, e.table_rows);
        std::fill(e.d_table, e.d_table + e.table_rows * e.d_model, 0.0f);
        sum_gradients(e, readers, 1.0f, [&](int64_t i) { return e.d_table + readers.rows[i] * e.d_model; });
    }
}
