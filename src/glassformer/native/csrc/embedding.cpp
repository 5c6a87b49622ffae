// Scaled embeddings plus positional encodings, with dropout (sections 3.4, 3.5 and 5.4), and their gradients. BERT adds
// a segment embedding, and normalizes the sum.
#include "api.h"
#include "dropout.h"
#include "norm.h"
#include <vector>

#define ROWS_OF_MATRIX 16  // rows whose gradients one chunk sums

static Dropout dropout_of(const Embedding& e) { return {e.seed, e.threshold}; }

static bool is_padding(const Embedding& e, int64_t token) { return e.mask && !e.mask[token]; }

// Sum of the vectors of a token.
static void put_sum(const Embedding& e, int64_t token, float* to) {
    if (is_padding(e, token)) return std::fill(to, to + e.d_model, 0.0f);
    const float* row = e.matrix + e.ids[token] * e.d_model;
    const float* position = e.positions ? e.table + e.positions[token] * e.d_model : nullptr;
    const float* segment =
        e.segment_table ? e.segment_table + (e.segments ? e.segments[token] : 0) * e.d_model : nullptr;
    for (int64_t i = 0; i < e.d_model; i += LANES) {
        Floats sum = load(row + i) * e.scale;
        if (position) sum += load(position + i);
        store(to + i, segment ? sum + load(segment + i) : sum);
    }
}

static void embed_tokens(const Embedding& e) {
    check_indices(e.ids, e.tokens, e.matrix_rows, OUTSIDE_VOCABULARY);
    const auto message = [](const char* what, int64_t rows) {
        return std::string("a ") + what + " is outside the " + std::to_string(rows) + " of the model";
    };
    if (e.positions) check_indices(e.positions, e.tokens, e.table_rows, message("position", e.table_rows).c_str());
    if (e.segment_table && e.segments)
        check_indices(e.segments, e.tokens, e.segment_rows, message("segment", e.segment_rows).c_str());
    const Dropout dropout = dropout_of(e);
    parallel_for(e.threads, e.tokens, chunk_size(e.threads, e.tokens, e.d_model), [&](int64_t from, int64_t to) {
        for (int64_t token = from; token < to; token++) {
            float* x = e.x + token * e.d_model;
            put_sum(e, token, x);
            if (e.norm.weight.value) normalize(e.norm, x, e.d_model, x);
            if (dropout.threshold) drop_row(x, token * e.d_model, dropout, e.d_model, x);
        }
    });
}

// Rows that tokens read, in order; those of row i are tokens[first[i] … first[i + 1]), in their order.
struct RowReaders { std::vector<int64_t> rows, first, tokens; };

// row_of: null is row 0 for all.
static RowReaders readers_of(const Embedding& e, const int64_t* row_of, int64_t n_rows) {
    auto row = [=](int64_t token) { return row_of ? row_of[token] : 0; };
    RowReaders r;
    std::vector<int64_t> next(n_rows + 1);
    for (int64_t token = 0; token < e.tokens; token++) next[row(token) + 1] += !is_padding(e, token);
    for (int64_t row = 0; row < n_rows; row++) {
        if (next[row + 1]) r.rows.push_back(row), r.first.push_back(next[row]);
        next[row + 1] += next[row];
    }
    r.first.push_back(next[n_rows]);
    r.tokens.resize(next[n_rows]);
    for (int64_t token = 0; token < e.tokens; token++)
        if (!is_padding(e, token)) r.tokens[next[row(token)]++] = token;
    return r;
}

// to(i) = factor · Σ of the gradients d_sums of all tokens with row i, in their order, for any number of threads.
template <class To>
static void sum_gradients(const Embedding& e, const float* d_sums, const RowReaders& r, float factor, To to) {
    const auto n_rows = static_cast<int64_t>(r.rows.size());
    parallel_for(e.threads, n_rows, ROWS_OF_MATRIX, [&](int64_t from, int64_t end) {
        for (int64_t row = from; row < end; row++) {
            float* sums = to(row);
            std::fill(sums, sums + e.d_model, 0.0f);
            for (int64_t at = r.first[row]; at < r.first[row + 1]; at++) {
                const float* gradient = d_sums + r.tokens[at] * e.d_model;
                for (int64_t i = 0; i < e.d_model; i += LANES)
                    store(sums + i, load(sums + i) + load(gradient + i) * factor);
            }
        }
    });
}

// Backward pass of dropout and of the norm: returns the gradients of the sums, and writes those of γ and β.
static const float* gradients_of_sums(const Embedding& e) {
    const Dropout dropout = dropout_of(e);
    const int64_t size = e.d_model;
    const bool normed = e.norm.weight.value;
    if (!dropout.threshold && !normed) return e.d_x;
    auto d_sums = workspace<float>(D_STREAM, e.tokens * size);
    auto norm_sums = normed ? sums_of_chunks(e.tokens, size) : nullptr;
    parallel_for(e.threads, e.tokens, CHUNK, [&](int64_t from, int64_t to) {
        auto sum = workspace<float>(ROW, size);
        for (int64_t token = from; token < to; token++) {
            float* d = d_sums + token * size;
            drop_row(e.d_x + token * size, token * size, dropout, size, d);
            if (!normed) continue;
            put_sum(e, token, sum);
            const Statistics statistics = statistics_of(e.norm, sum, size);
            normalize_backward(e.norm, sum, statistics, size, d, norm_sums + token / CHUNK * 2 * size);
        }
    });
    if (normed) parallel(e.threads, norm_gradient<float>(e.norm, norm_sums, e.tokens, size));
    return d_sums;
}

// Gradients of all rows of a table.
static void table_gradients(const Embedding& e, const float* d_sums, const int64_t* row_of, int64_t rows, float* to) {
    const RowReaders readers = readers_of(e, row_of, rows);
    std::fill(to, to + rows * e.d_model, 0.0f);
    sum_gradients(e, d_sums, readers, 1.0f, [&](int64_t i) { return to + readers.rows[i] * e.d_model; });
}

static void embedding_gradients(Embedding& e) {
    const float* d_sums = gradients_of_sums(e);
    if (e.rows) {
        const RowReaders readers = readers_of(e, e.ids, e.matrix_rows);
        e.n_rows = static_cast<int64_t>(readers.rows.size());
        std::copy(readers.rows.begin(), readers.rows.end(), e.rows);
        sum_gradients(e, d_sums, readers, e.scale, [&](int64_t i) { return e.d_rows + i * e.d_model; });
    }
    if (e.d_table) table_gradients(e, d_sums, e.positions, e.table_rows, e.d_table);
    if (e.d_segments) table_gradients(e, d_sums, e.segments, e.segment_rows, e.d_segments);
}

API int32_t embed_rows(Embedding* embedding, int32_t backward) {
    return guarded([&] { backward ? embedding_gradients(*embedding) : embed_tokens(*embedding); });
}
