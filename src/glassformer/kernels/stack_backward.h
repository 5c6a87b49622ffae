// The gradient of a whole stack of layers, from the last sub-layer to the first.
#pragma once
#include "stack_forward.h"

namespace {

// Backwards, `d` holds the gradient of what the sub-layer gave, then of what it got. Before: of the residual sum;
// d_y: of what the sub-layer itself gave.
template <class T>
void part(const CompactStack& s, const Site<T>& site, const TrainedNorm& norm, int64_t row, int64_t count, T* d, T* d_y, float* sums) {
    const int64_t size = s.d_model;
    const Dropout by = dropout_at(s, site.number, s.threshold);
    auto some = kept<float>(ROW, size);
    for (int64_t i = row; i < row + count; i++) {
        for (int64_t j = 0; j < size; j += LANES) store(some + j, read(d + i * size + j));
        if (!s.pre_norm) {
            float* chunk = sums + i / CHUNK * 2 * size;
            normalise_row_backward(site.sum + i * size, site.statistics[i], norm.weight, size, some, chunk);
            for (int64_t j = 0; j < size; j += LANES) write(d + i * size + j, load(some + j));
        }
        drop_row(some, i * size, by, size, d_y + i * size);
    }
}

// d_feed: of what went into the sub-layer itself.
template <class T>
void rejoin(const CompactStack& s, const Site<T>& site, const TrainedNorm& norm, int64_t row, int64_t count, float* d_feed, T* d, float* sums) {
    const int64_t size = s.d_model;
    for (int64_t i = row; i < row + count; i++) {
        float* some = d_feed + (i - row) * size;
        if (s.pre_norm) {
            float* chunk = sums + i / CHUNK * 2 * size;
            normalise_row_backward(site.input + i * size, site.statistics[i], norm.weight, size, some, chunk);
        }
        for (int64_t j = 0; j < size; j += LANES) write(d + i * size + j, read(d + i * size + j) + load(some + j));
    }
}

template <class T>
void gradients_of(const Projection& by, const T* d_y, int64_t stride, int64_t outputs, const Unit<T>* x, int64_t inputs, int64_t rows) {
    auto d_weight = static_cast<T*>(by.weight.gradient);
    multiply_turned(d_y, stride, outputs, x, inputs, rows, [&](int64_t output, int64_t column, const float* sums) {
        for (int64_t j = 0; j < PANEL; j += LANES) write(d_weight + output * inputs + column + j, load(sums + j));
    });
    add_columns(d_y, stride, outputs, rows, true, static_cast<T*>(by.bias.gradient));
}

float* sums_of_chunks(int64_t rows, int64_t d) {
    const int64_t count = (rows + CHUNK - 1) / CHUNK * 2 * d;
    auto sums = kept<float>(NORM_SUMS, count);
    std::fill(sums, sums + count, 0.0f);
    return sums;
}

template <class T>
void feed_forward_backward(const CompactStack& s, const TrainedLayer& layer, const Site<T>& site, T* d) {
    const int64_t size = s.d_model, wide = s.d_ff, rows = s.rows, steps = steps_of<T>(rows);
    const TrainedNorm& norm = layer.feed_forward_norm;
    auto inner = kept<Unit<T>>(WEIGHTS, size * steps_of<T>(wide)), outer = kept<Unit<T>>(MORE_WEIGHTS, wide * steps_of<T>(size));
    auto sums = sums_of_chunks(rows, size);
    auto d_y = kept<T>(D_RESULT, rows * size), d_hidden = kept<T>(D_INNER, rows * wide);
    auto feed = kept<Unit<T>>(FEED, steps * size), hidden = kept<Unit<T>>(INNER, steps * wide);
    const T* given = site.hidden;
    if (s.form() != RELU) {
        auto again = kept<T>(ACTIVATED, rows * wide);
#pragma omp parallel for num_threads(s.threads)
        for (int64_t row = 0; row < rows; row++) activate_rows(s, site.hidden + row * wide, 1, again + row * wide);
        given = again;
    }
#pragma omp parallel num_threads(s.threads)
    {
        pack_rows(static_cast<const T*>(layer.outer.weight.value), wide, size, wide, 0, steps_of<T>(size), outer);
        pack_rows(static_cast<const T*>(layer.inner.weight.value), size, wide, size, 0, steps_of<T>(wide), inner);
        pack_rows(site.feed(s.pre_norm), size, rows, size, 0, steps, feed);
        pack_rows<T>(given, wide, rows, wide, 0, steps, hidden);
#pragma omp barrier
        in_blocks(rows, [&](int64_t row, int64_t count) {
            part(s, site, norm, row, count, d, d_y, sums);
            T* some = d_hidden + row * wide;
            auto put_gradient = [&](int64_t column, float* d_inner) {
                for (int64_t i = 0; i < count; i++)
                    for (int64_t j = 0; j < PANEL; j += LANES) {
                        const Floats of = read(site.hidden + (row + i) * wide + column + j);
                        write(some + i * wide + column + j, activation_gradient(s.form(), of, load(d_inner + i * PANEL + j)));
                    }
            };
            multiply_block(rows_at(d_y + row * size, size), count, outer, wide, steps_of<T>(size), put_gradient);
            auto d_feed = kept<float>(RESULTS, BLOCK * size);
            multiply_to<T>(some, wide, count, inner, size, wide, nullptr, d_feed);
            rejoin(s, site, norm, row, count, d_feed, d, sums);
        });
#pragma omp barrier
        gradients_of<T>(layer.outer, d_y, size, size, hidden, wide, rows);
        gradients_of<T>(layer.inner, d_hidden, wide, wide, feed, size, rows);
        norm_gradient<T>(sums, rows, size, norm.weight, norm.bias);
    }
}

// Of what attention gave, before W_O.
template <class T>
void context_gradient(const CompactStack& s, const Asking& by, const Site<T>& site, T* d, T* d_y, T* d_context, float* sums) {
    const int64_t size = s.d_model, steps = steps_of<T>(size);
    auto back = kept<Unit<T>>(MORE_WEIGHTS, size * steps);
#pragma omp parallel num_threads(s.threads)
    {
        pack_rows(static_cast<const T*>(by.output.weight.value), size, size, size, 0, steps, back);
#pragma omp barrier
        in_blocks(by.rows, [&](int64_t row, int64_t count) {
            part(s, site, by.norm, row, count, d, d_y, sums);
            multiply_block(rows_at(d_y + row * size, size), count, back, size, steps, [&](int64_t column, const float* found) {
                put_panel<T>(found, count, nullptr, d_context + row * size + column, size);
            });
        });
    }
}

// Of what was asked and what asked: the projections' weights, side by side or, for a memory, apart.
template <class T>
void projected_gradient(
    const CompactStack& s, const Asking& by, const Site<T>& site, const T* d_queries, const T* d_keys, T* d, float* d_memory, float* sums
) {
    const int64_t size = s.d_model, steps = steps_of<T>(size), all = by.own ? 3 * steps : steps;
    auto queries = kept<Unit<T>>(WEIGHTS, 3 * size * steps), keys = queries + size * steps;
    auto pack = [&](const Projection& weight, int64_t first, int64_t of, Unit<T>* to) {
        pack_rows(static_cast<const T*>(weight.weight.value), size, size, size, first, of, to);
    };
#pragma omp parallel num_threads(s.threads)
    {
        pack(by.query, 0, all, queries);
        pack(by.key, by.own ? steps : 0, by.own ? all : 2 * steps, by.own ? queries : keys);
        pack(by.value, by.own ? 2 * steps : steps, by.own ? all : 2 * steps, by.own ? queries : keys);
#pragma omp barrier
        auto some = kept<float>(RESULTS, BLOCK * size);
        in_blocks(by.rows, [&](int64_t row, int64_t count) {
            multiply_to<T>(d_queries + row * by.query_width, by.query_width, count, queries, size, by.query_width, nullptr, some);
            rejoin(s, site, by.norm, row, count, some, d, sums);
        });
        in_blocks(by.memory, [&](int64_t row, int64_t count) {
            multiply_to<T>(d_keys + row * by.key_width, by.key_width, count, keys, size, 2 * size, nullptr, some);
            float* to = d_memory + row * size;
            for (int64_t i = 0; i < count * size; i += LANES) store(to + i, load(to + i) + load(some + i));
        });
    }
}

template <class T>
void attend_backward(const CompactStack& s, const TrainedLayer& layer, const Site<T>& site, bool own, T* d, const T* memory, float* d_memory) {
    const Asking by(s, layer, own);
    const int64_t size = s.d_model, steps = steps_of<T>(by.rows), asked_rows = own ? by.rows : by.memory;
    auto sums = sums_of_chunks(by.rows, size);
    auto d_y = kept<T>(D_RESULT, by.rows * size), d_context = kept<T>(D_INNER, by.rows * size);
    auto d_queries = kept<T>(D_QUERIES, by.rows * by.query_width);
    auto d_keys = own ? d_queries + size : kept<T>(D_KEYS, by.memory * by.key_width);
    context_gradient(s, by, site, d, d_y, d_context, sums);
    attention_of<T>(s, site, own, d_queries, d_keys, d_context);
    if (own) turn_heads(s, d_queries, s.sines_back);
    projected_gradient<T>(s, by, site, d_queries, d_keys, d, d_memory, sums);
    auto feed = kept<Unit<T>>(FEED, steps * size), context = kept<Unit<T>>(INNER, steps * size);
    auto asked = own ? feed : kept<Unit<T>>(ASKED, steps_of<T>(by.memory) * size);
#pragma omp parallel num_threads(s.threads)
    {
        pack_rows(site.feed(s.pre_norm), size, by.rows, size, 0, steps, feed);
        pack_rows<T>(site.context, size, by.rows, size, 0, steps, context);
        if (!own) pack_rows(memory, size, by.memory, size, 0, steps_of<T>(by.memory), asked);
#pragma omp barrier
        gradients_of<T>(by.output, d_y, size, size, context, size, by.rows);
        gradients_of<T>(by.query, d_queries, by.query_width, size, feed, size, by.rows);
        gradients_of<T>(by.key, d_keys, by.key_width, size, asked, size, asked_rows);
        gradients_of<T>(by.value, d_keys + size, by.key_width, size, asked, size, asked_rows);
        norm_gradient<T>(sums, by.rows, size, by.norm.weight, by.norm.bias);
    }
}

template <class T>
void stack_backward(const CompactStack& s) {
    const Sites<T> sites(s);
    auto d = kept<T>(D_STREAM, s.rows * s.d_model);
    close_up(s, s.starts, s.d_result, s.length, d);
    auto d_memory = kept<float>(D_MEMORY, s.memory_rows * s.d_model);
    std::fill(d_memory, d_memory + s.memory_rows * s.d_model, 0.0f);
    for (int64_t layer = s.layers; layer-- > 0;) {
        feed_forward_backward(s, s.layer[layer], sites.feed_forward[layer], d);
        if (s.memory_length) attend_backward(s, s.layer[layer], sites.cross[layer], false, d, sites.memory, d_memory);
        attend_backward(s, s.layer[layer], sites.own[layer], true, d, sites.memory, d_memory);
    }
    spread_out<T>(s, s.starts, d, s.length, s.d_x);
    if (s.memory_length) spread_out<T>(s, s.memory_starts, d_memory, s.memory_length, s.d_memory);
}

}  // namespace
