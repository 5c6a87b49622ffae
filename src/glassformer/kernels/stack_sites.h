// What a stack of layers is given in training, and where each of its sub-layers finds and leaves what it computes.
//
// What is saved for the gradient lies in one piece of memory of the caller, in the order in which `Sites` lays it out.
#pragma once
#include "residual.h"
#include "rotary.h"
#include "training_attention.h"

struct Projection {
    Parameter weight, bias;
};

struct TrainedNorm {
    Parameter weight, bias;
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
    int32_t threshold, attention_threshold, pre_norm, bfloat16;
    int64_t threads;
};

// One sub-layer: what it got, what is kept of it, what it gives.
template <class T>
struct Site {
    const T* input;
    T *normed, *sum;         // before the norm and after, in either order
    T *queries, *keys, *context;  // of attention; keys: and values
    T* hidden;               // of feed-forward
    float* log_sums;
    Statistics* statistics;
    int64_t number;

    const T* feed(bool pre) const { return pre ? normed : input; }
    T* given(bool pre) const { return pre ? sum : normed; }
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
    int64_t bytes;

    explicit Sites(const TrainedStack& s) {
        Pieces pieces{static_cast<char*>(s.saved)};
        const int64_t rows = s.batch * s.length, memory = s.batch * s.memory_length, d = s.d_model;
        auto x = static_cast<const T*>(s.x);
        Site<T>* last = nullptr;
        int64_t number = 0;
        auto begin = [&] {
            Site<T> site = {x, pieces.next<T>(rows * d), pieces.next<T>(rows * d)};
            site.statistics = pieces.next<Statistics>(rows), site.number = number++;
            x = site.given(s.pre_norm);
            return site;
        };
        auto attention = [&](int64_t keys) {
            Site<T> site = begin();
            site.queries = pieces.next<T>(rows * (keys ? d : 3 * d)), site.keys = pieces.next<T>(keys * 2 * d);
            site.context = pieces.next<T>(rows * d), site.log_sums = pieces.next<float>(rows * s.heads);
            return site;
        };
        for (int64_t layer = 0; layer < s.layers; layer++) {
            own.push_back(attention(0));
            if (memory) cross.push_back(attention(memory));
            feed_forward.push_back(begin());
            last = &feed_forward.back();
            last->hidden = pieces.next<T>(rows * s.d_ff);
        }
        (s.pre_norm ? last->sum : last->normed) = static_cast<T*>(s.result);
        bytes = pieces.at - static_cast<char*>(s.saved);
    }
};

// One attention of a layer: its weights, how many positions ask and are asked, how wide what is asked lies in memory.
struct Asking {
    bool own;
    const TrainedNorm& norm;
    const Projection &query, &key, &value, &output;
    int64_t rows, memory, query_width, key_width;  // memory: 0 where it is the rows themselves that are asked

    Asking(const TrainedStack& s, const TrainedLayer& layer, bool own)
        : own(own), norm(own ? layer.own_norm : layer.cross_norm), query(own ? layer.query : layer.cross_query),
          key(own ? layer.key : layer.cross_key), value(own ? layer.value : layer.cross_value),
          output(own ? layer.output : layer.cross_output), rows(s.batch * s.length),
          memory(own ? 0 : s.batch * s.memory_length), query_width(own ? 3 * s.d_model : s.d_model),
          key_width(own ? 3 * s.d_model : 2 * s.d_model) {}
};
