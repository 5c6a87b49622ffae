// What a stack of layers is given in training, and where each of its sub-layers finds and leaves what it computes.
//
// What is saved for the gradient lies in one piece of memory of the caller, in the order in which `Sites` lays it out.
#pragma once
#include "activations.h"
#include "residual.h"
#include "rotary.h"
#include "training_attention.h"

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
