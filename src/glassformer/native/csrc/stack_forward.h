// The forward pass of a whole stack of layers in training (section 3.1), and what it saves for the backward pass.
//
// Saved activations lie in one block of memory of the caller, in the order in which `Sites` lays it out. Nothing is
// allocated between two products, and dropout, residual sum and LayerNorm of a row are computed while it is in the cache.
#pragma once
#include "attention.h"
#include "elementwise.h"
#include "gemm.h"

struct Projection {
    Parameter weight, bias;  // bias: or nulls
};

struct TrainedNorm {
    Parameter weight, bias;  // bias: or nulls
};

struct TrainedLayer {
    TrainedNorm own_norm, cross_norm, feed_forward_norm;
    Projection query, key, value, output;
    Projection cross_query, cross_key, cross_value, cross_output;
    Projection inner, outer;
};

struct Mask {
    const uint8_t* seen;  // 1: may be seen; or null
    int64_t batch, head, query, key;
};

struct TrainedStack {
    int64_t layers, batch, length, memory_length, d_model, heads, d_ff;  // memory_length: 0 where there is no memory
    const TrainedLayer* layer;
    const void *x, *memory;
    Mask mask, memory_mask;
    const float *cosines, *sines, *sines_back;  // of rotary positions, or null
    void *result, *saved;
    const void* d_result;
    void *d_x, *d_memory;
    uint64_t seed;
    float epsilon;
    int32_t threshold, attention_threshold, pre_norm, bfloat16, activation;
    int64_t threads;
};

// Where each row begins without the padding at its end, and where the last row ends. Padding is what stands behind the
// last position that any may see.
static std::vector<int64_t> starts_of(const Mask& mask, int64_t batch, int64_t heads, int64_t queries, int64_t keys) {
    std::vector<int64_t> starts(batch + 1);
    for (int64_t b = 0; b < batch; b++) {
        int64_t length = mask.seen ? 0 : keys;
        for (int64_t h = 0; mask.seen && h < (mask.head ? heads : 1); h++)
            for (int64_t query = mask.query ? queries : 1; query-- > 0 && length < keys;) {  // the last one sees the most
                const uint8_t* row = mask.seen + b * mask.batch + h * mask.head + query * mask.query;
                for (int64_t key = keys; key > length; key--)
                    if (row[(key - 1) * mask.key]) length = key;
            }
        starts[b + 1] = starts[b] + length;
    }
    return starts;
}

// The stack that is computed: rows lie one behind the other without their padding, for which nothing is done.
struct CompactStack : TrainedStack {
    std::vector<int64_t> starts, memory_starts;
    int64_t rows, memory_rows;

    Activation form() const { return static_cast<Activation>(activation); }

    explicit CompactStack(const TrainedStack& given)
        : TrainedStack(given), starts(starts_of(mask, batch, heads, length, length)),
          memory_starts(starts_of(memory_mask, batch, heads, length, memory_length)), rows(starts.back()),
          memory_rows(memory_starts.back()) {}
};

// One sub-layer: what it got, what is kept of it, what it gives. What gradients of weights are made of lies in panels.
template <class T>
struct Site {
    const T* input;
    T *sum, *given;               // of input and result, and what follows: that, or, of post-norm, its norm
    Unit<T>* feed;                // panels of what goes into the first product
    T *queries, *keys;            // of attention; keys: and values
    Unit<T> *context, *hidden;    // panels; hidden, of feed-forward: what is activated; of ReLU, what it has become
    float* log_sums;
    Statistics* statistics;
    int64_t number;
};

struct Pieces {
    char* at;
    template <class X>
    X* next(int64_t count) {
        auto here = reinterpret_cast<X*>(at);
        at += padded(count * sizeof(X), 64);
        return here;
    }
};

template <class T>
struct Sites {
    std::vector<Site<T>> own, cross, feed_forward;
    T* input;         // of post-norm `stream`, where what a sub-layer gives takes the place of what it got; gone backwards
    Unit<T>* memory;  // panels
    const T* result;
    int64_t bytes;

    explicit Sites(const CompactStack& s, T* stream = nullptr) {
        Pieces pieces{static_cast<char*>(s.saved)};
        const int64_t rows = s.rows, d = s.d_model, steps = steps_of<T>(rows);
        input = s.pre_norm ? pieces.next<T>(rows * d) : stream;
        memory = pieces.next<Unit<T>>(steps_of<T>(s.memory_rows) * d);
        const T* x = input;
        int64_t number = 0;
        auto begin = [&] {
            Site<T> site = {x, pieces.next<T>(rows * d)};
            site.given = s.pre_norm ? site.sum : stream;
            site.feed = pieces.next<Unit<T>>(steps * d);
            site.statistics = pieces.next<Statistics>(rows), site.number = number++;
            x = site.given;
            return site;
        };
        auto attention = [&](bool of_itself) {
            Site<T> site = begin();
            site.queries = pieces.next<T>(rows * (of_itself ? 3 * d : d));
            site.keys = of_itself ? nullptr : pieces.next<T>(s.memory_rows * 2 * d);
            site.context = pieces.next<Unit<T>>(steps * d), site.log_sums = pieces.next<float>(rows * s.heads);
            return site;
        };
        for (int64_t layer = 0; layer < s.layers; layer++) {
            own.push_back(attention(true));
            if (s.memory_length) cross.push_back(attention(false));
            feed_forward.push_back(begin());
            feed_forward.back().hidden = pieces.next<Unit<T>>(steps * s.d_ff);
        }
        result = x;
        bytes = pieces.at - static_cast<char*>(s.saved);
    }
};

// One attention of a layer: its weights, how many positions ask and are asked, how wide what is asked lies in memory.
struct Asking {
    bool own;
    const TrainedNorm& norm;
    const Projection &query, &key, &value, &output;
    int64_t rows, memory, query_width, key_width;  // memory: 0 where it is the rows themselves that are asked

    Asking(const CompactStack& s, const TrainedLayer& layer, bool own)
        : own(own), norm(own ? layer.own_norm : layer.cross_norm), query(own ? layer.query : layer.cross_query),
          key(own ? layer.key : layer.cross_key), value(own ? layer.value : layer.cross_value),
          output(own ? layer.output : layer.cross_output), rows(s.rows),
          memory(own ? 0 : s.memory_rows), query_width(own ? 3 * s.d_model : s.d_model),
          key_width(own ? 3 * s.d_model : 2 * s.d_model) {}
};

namespace {

Dropout dropout_at(const CompactStack& s, int64_t site, int32_t threshold) {
    return {s.seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(2 * site + 1), threshold, 256.0f / (256 - threshold)};
}

// work(first, count) for BLOCK rows at a time, by whichever thread is free; no thread waits for the others at the end.
template <class Work>
void in_blocks(int64_t rows, Work work) {
#pragma omp for schedule(dynamic) nowait
    for (int64_t row = 0; row < rows; row += BLOCK) work(row, std::min<int64_t>(BLOCK, rows - row));
}

// Rows of `width` positions, padding included → one behind the other without it.
template <class T>
void close_up(const CompactStack& s, const std::vector<int64_t>& starts, const void* padded_rows, int64_t width, T* to) {
    const T* from = static_cast<const T*>(padded_rows);
#pragma omp parallel for num_threads(s.threads)
    for (int64_t b = 0; b < s.batch; b++)
        std::copy(from + b * width * s.d_model, from + (b * width + starts[b + 1] - starts[b]) * s.d_model, to + starts[b] * s.d_model);
}

// And back; padding is 0.
template <class T, class X>
void spread_out(const CompactStack& s, const std::vector<int64_t>& starts, const X* rows, int64_t width, void* padded_rows) {
#pragma omp parallel for num_threads(s.threads)
    for (int64_t b = 0; b < s.batch; b++) {
        T* to = static_cast<T*>(padded_rows) + b * width * s.d_model;
        const int64_t used = (starts[b + 1] - starts[b]) * s.d_model;
        put(rows + starts[b] * s.d_model, used, to);
        std::fill(to + used, to + width * s.d_model, T{});
    }
}

// A panel's sums, plus the bias, to rows of `to`.
template <class T, class X>
void put_panel(const float* sums, int64_t rows, const T* bias, X* to, int64_t stride) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < PANEL; j += LANES) {
            const Floats values = load(sums + i * PANEL + j);
            write(to + i * stride + j, bias ? values + read(bias + j) : values);
        }
}

// The bias from `column` on, or null where there is none.
template <class T>
const T* bias_of(const Projection& by, int64_t column = 0) {
    return by.bias.value ? static_cast<const T*>(by.bias.value) + column : nullptr;
}

// What goes into the first product: some rows as they are or, of pre-norm, their norm; and it is kept.
template <class T>
const T* feed_of(const CompactStack& s, const Site<T>& site, const TrainedNorm& norm, int64_t row, int64_t count) {
    const int64_t d = s.d_model;
    const T* feed = site.input + row * d;
    if (s.pre_norm) {
        auto normed = kept<T>(SOME, BLOCK * d);
        for (int64_t i = 0; i < count; i++)
            site.statistics[row + i] = normalise_row(feed + i * d, norm.weight, norm.bias, s.epsilon, d, normed + i * d);
        feed = normed;
    }
    put_in_panels<PANEL>(feed, d, count, d, row / Step<T>::ENTRIES, steps_of<T>(s.rows), site.feed);
    return feed;
}

// The sub-layer's result joins the residual stream.
template <class T>
void join(const CompactStack& s, const Site<T>& site, const TrainedNorm& norm, int64_t row, int64_t count, const float* y) {
    const int64_t d = s.d_model;
    const Dropout by = dropout_at(s, site.number, s.threshold);
    for (int64_t i = row; i < row + count; i++) {
        add_dropped(site.input + i * d, y + (i - row) * d, i * d, by, d, site.sum + i * d);
        if (!s.pre_norm)
            site.statistics[i] = normalise_row(site.sum + i * d, norm.weight, norm.bias, s.epsilon, d, site.given + i * d);
    }
}

// Rows of `a` by packed weights, to f32 rows.
template <class T>
void multiply_to(
    const T* a, int64_t stride, int64_t count, const Unit<T>* packed, int64_t columns, int64_t depth, const T* bias, float* to
) {
    multiply_block(rows_at(a, stride), count, packed, columns, steps_of<T>(depth), [&](int64_t column, const float* sums) {
        put_panel(sums, count, bias ? bias + column : nullptr, to + column, columns);
    });
}

template <class T>
void attention_of(
    const CompactStack& s, const Site<T>& site, bool own, T* context, T* d_queries, T* d_keys, const T* d_context
) {
    const int64_t d = s.d_model, head = d / s.heads, wide = own ? 3 * d : d, keys = own ? s.length : s.memory_length;
    const int64_t key_wide = own ? 3 * d : 2 * d;
    auto rows = [&](const T* at, int64_t width) { return Sequences{const_cast<T*>(at), 0, head, width}; };
    Attention a = {s.batch, s.heads, s.length, keys, head, head};
    a.query_starts = s.starts.data(), a.key_starts = (own ? s.starts : s.memory_starts).data();
    const T* from = own ? site.queries + d : site.keys;
    a.q = rows(site.queries, wide), a.k = rows(from, key_wide), a.v = rows(from + d, key_wide);
    a.context = rows(context, d);
    if (d_context) {
        const T* to = own ? d_queries + d : d_keys;
        a.d_q = rows(d_queries, wide), a.d_k_ = rows(to, key_wide), a.d_v_ = rows(to + d, key_wide);
        a.d_context = rows(d_context, d);
    }
    const Mask& mask = own ? s.mask : s.memory_mask;
    a.mask = mask.seen, a.mask_batch = mask.batch, a.mask_head = mask.head;
    a.mask_query = mask.query, a.mask_key = mask.key;
    a.log_sums = site.log_sums, a.seed = dropout_at(s, site.number, 0).seed + 1;
    a.threshold = s.attention_threshold, a.bfloat16 = s.bfloat16, a.threads = s.threads;
    attend_all<T>(a, d_context);
}

// Queries and keys, side by side in x, by the angles of their positions.
template <class T>
void turn_heads(const CompactStack& s, T* x, const float* sines) {
    if (!s.cosines) return;
    const int64_t d = s.d_model, head = d / s.heads;
    const Sequences both = {x, 0, head, 3 * d};
    rotate<T>({s.batch, 2 * s.heads, s.length, head, both, both, s.cosines, sines, s.bfloat16, s.threads, s.starts.data()});
}

template <class T>
void attend_forward(const CompactStack& s, const TrainedLayer& layer, const Site<T>& site, bool own, const T* memory) {
    const int64_t d = s.d_model, steps = steps_of<T>(d);
    const Asking by(s, layer, own);
    const Projection* const parts[] = {&by.query, &by.key, &by.value, &by.output};
    auto packed = kept<Unit<T>>(WEIGHTS, 4 * d * steps);
    auto context = kept<T>(CONTEXT, by.rows * d);
#pragma omp parallel num_threads(s.threads)
    {
        for (int i = 0; i < 4; i++)
            pack_for_outputs(static_cast<const T*>(parts[i]->weight.value), d, d, packed + i * d * steps);
#pragma omp barrier
        auto project = [&](const T* from, int64_t count, int first, int end, T* to, int64_t stride) {
            for (int i = first; i < end; i++)
                multiply_block(rows_at(from, d), count, packed + i * d * steps, d, steps, [&](int64_t column, const float* sums) {
                    put_panel(sums, count, bias_of<T>(*parts[i], column), to + (i - first) * d + column, stride);
                });
        };
        in_blocks(by.rows, [&](int64_t row, int64_t count) {
            T* to = site.queries + row * by.query_width;
            project(feed_of(s, site, by.norm, row, count), count, 0, own ? 3 : 1, to, by.query_width);
        });
        in_blocks(by.memory, [&](int64_t row, int64_t count) {
            project(memory + row * d, count, 1, 3, site.keys + row * by.key_width, by.key_width);
        });
    }
    if (own) turn_heads(s, site.queries, s.sines);
    attention_of<T>(s, site, own, context, nullptr, nullptr, nullptr);
#pragma omp parallel num_threads(s.threads)
    in_blocks(by.rows, [&](int64_t row, int64_t count) {
        auto y = kept<float>(RESULTS, BLOCK * d);
        const T* some = context + row * d;
        put_in_panels<PANEL>(some, d, count, d, row / Step<T>::ENTRIES, steps_of<T>(by.rows), site.context);
        multiply_to(some, d, count, packed + 3 * d * steps, d, d, bias_of<T>(by.output), y);
        join(s, site, by.norm, row, count, y);
    });
}

template <class T>
void activate(const CompactStack& s, const T* hidden, int64_t count, T* to) {
    for (int64_t i = 0; i < count; i += LANES) write(to + i, activated(s.form(), read(hidden + i)));
}

template <class T>
void feed_forward_forward(const CompactStack& s, const TrainedLayer& layer, const Site<T>& site) {
    const int64_t d = s.d_model, wide = s.d_ff, rows = s.rows;
    auto inner = kept<Unit<T>>(WEIGHTS, wide * steps_of<T>(d)), outer = kept<Unit<T>>(MORE_WEIGHTS, d * steps_of<T>(wide));
#pragma omp parallel num_threads(s.threads)
    {
        pack_for_outputs(static_cast<const T*>(layer.inner.weight.value), wide, d, inner);
        pack_for_outputs(static_cast<const T*>(layer.outer.weight.value), d, wide, outer);
#pragma omp barrier
        in_blocks(rows, [&](int64_t row, int64_t count) {
            auto hidden = kept<T>(MORE, BLOCK * wide);
            auto put_hidden = [&](int64_t column, float* sums) {
                const T* bias = bias_of<T>(layer.inner, column);
                for (int64_t i = 0; s.form() == RELU && i < count * PANEL; i += LANES) {
                    const Floats values = load(sums + i);
                    store(sums + i, activated(RELU, bias ? values + read(bias + i % PANEL) : values));
                }
                put_panel<T>(sums, count, s.form() == RELU ? nullptr : bias, hidden + column, wide);
                const int64_t step = row / Step<T>::ENTRIES, steps = steps_of<T>(rows);
                put_in_panels<PANEL>(hidden + column, wide, count, PANEL, step, steps, site.hidden + column * steps);
            };
            const T* feed = feed_of(s, site, layer.feed_forward_norm, row, count);
            multiply_block(rows_at(feed, d), count, inner, wide, steps_of<T>(d), put_hidden);
            if (s.form() != RELU) activate(s, hidden, count * wide, hidden);
            auto y = kept<float>(RESULTS, BLOCK * d);
            multiply_to<T>(hidden, wide, count, outer, d, wide, bias_of<T>(layer.outer), y);
            join(s, site, layer.feed_forward_norm, row, count, y);
        });
    }
}

template <class T>
void stack_forward(const CompactStack& s) {
    const Sites<T> sites(s, s.pre_norm ? nullptr : kept<T>(STREAM, s.rows * s.d_model));
    close_up(s, s.starts, s.x, s.length, sites.input);
    auto memory = kept<T>(MEMORY, s.memory_rows * s.d_model);
    if (s.memory_length) {
        close_up(s, s.memory_starts, s.memory, s.memory_length, memory);
#pragma omp parallel num_threads(s.threads)
        pack_rows(memory, s.d_model, s.memory_rows, s.d_model, 0, steps_of<T>(s.memory_rows), sites.memory);
    }
    for (int64_t layer = 0; layer < s.layers; layer++) {
        attend_forward(s, s.layer[layer], sites.own[layer], true, memory);
        if (s.memory_length) attend_forward(s, s.layer[layer], sites.cross[layer], false, memory);
        feed_forward_forward(s, s.layer[layer], sites.feed_forward[layer]);
    }
    spread_out<T>(s, s.starts, sites.result, s.length, s.result);
}

}  // namespace
