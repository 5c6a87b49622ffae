// Inference of stacks on full sequences: encoders, and prompts of decoder-only models.
//
// Sequences are concatenated without padding.
#include "attention.h"
#include "packed_stack.h"
#include <vector>

#define TOKENS_AT_ONCE 256  // computed layer by layer together; their activations fit the L2 cache
#define FEWEST_TOKENS 64    // of a group, unless the batch has fewer: each group reads all weights

namespace {

// Consecutive sequences of a batch.
struct SequenceRange {
    const int64_t* cu_seqlens;  // [count + 1]: first token of each, and the end of the last
    int64_t count;
    int64_t tokens() const { return cu_seqlens[count] - cu_seqlens[0]; }
    int64_t longest() const {
        int64_t most = 0;
        for (int64_t s = 0; s < count; s++) most = std::max(most, cu_seqlens[s + 1] - cu_seqlens[s]);
        return most;
    }
};

// Every token attends to its full sequence.
void attend_bidirectional(const StackCall& stack, const SequenceRange& sequences, float* qkv, float* context) {
    const Heads& heads = stack.heads;
    const int64_t width = heads.q_width() + heads.k_width() + heads.v_width();
    auto rows = [&](float* at, int64_t size, int64_t stride) { return Sequences{at, 0, size, stride}; };
    Attention a = {sequences.count, sequences.longest(), sequences.longest(), heads};
    std::vector<int64_t> cu_seqlens(sequences.cu_seqlens, sequences.cu_seqlens + sequences.count + 1);
    for (int64_t& first : cu_seqlens) first -= sequences.cu_seqlens[0];
    a.cu_seqlens_q = a.cu_seqlens_k = cu_seqlens.data();
    a.q = rows(qkv, heads.d_k, width), a.k = rows(qkv + heads.q_width(), heads.d_k, width);
    a.v = rows(qkv + heads.q_width() + heads.k_width(), heads.d_v, width);
    a.context = rows(context, heads.d_v, heads.context_width());
    a.log_sums = workspace<float>(LOG_SUMS, sequences.tokens() * heads.n_heads);
    const int64_t numbers = sequences.tokens() * sequences.longest() * (heads.k_width() + heads.v_width());
    a.threads = numbers < ENOUGH_NUMBERS ? 1 : stack.threads;
    attend_batches<float>(a, false);
}

// Every token of a prompt attends to the shared prefix, to the tokens before it, and to itself.
template <class T>
void attend_prompts(
    const StackCall& stack, int index, const SequenceRange& sequences, const DecoderCache& cache, const float* qkv,
    float* context
) {
    const Heads& heads = stack.heads;
    const int64_t width = heads.k_width() + heads.v_width(), stride = heads.q_width() + width;
    auto memory = static_cast<T*>(cache.memory[index]);
    auto new_memory = memory + (cache.shared + sequences.cu_seqlens[0]) * width;
    std::vector<int64_t> sequence_begin(sequences.tokens());
    for (int64_t s = 0, begin = 0; s < sequences.count; s++) {
        const int64_t end = sequences.cu_seqlens[s + 1] - sequences.cu_seqlens[0];
        std::fill(sequence_begin.begin() + begin, sequence_begin.begin() + end, begin);
        begin = end;
    }
    for (int64_t row = 0; row < sequences.tokens(); row++)
        put(qkv + row * stride + heads.q_width(), width, new_memory + row * width);
    attend_rows<T>(
        stack, sequences.tokens(), cache.shared + sequences.longest(), qkv, stride, context,
        [&](int64_t row, const T** to) {
            for (int64_t t = 0; t < cache.shared; t++) *to++ = memory + t * width;
            for (int64_t t = sequence_begin[row]; t <= row; t++) *to++ = new_memory + t * width;
            return cache.shared + row + 1 - sequence_begin[row];
        }
    );
}

// Self-attention of full sequences. With a cache they are prompts, and it stores their keys and values.
void attend_sequences(
    const StackCall& stack, int index, const SequenceRange& sequences, const DecoderCache* cache, float* x
) {
    const Layer& layer = stack.layers[index];
    const int64_t rows = sequences.tokens(), width = layer.query.outputs;
    add_and_norm(stack, layer.self_norm, x, rows, [&](const float* input, Output out) {
        auto qkv = workspace<float>(PROJECTED, rows * width);
        auto context = workspace<float>(HEAD_OUTPUTS, rows * stack.heads.context_width());
        linear(layer.query, input, rows, {qkv, width, NONE, false}, stack.threads);
        for (int64_t s = 0, row = 0; s < sequences.count; s++)
            for (int64_t t = sequences.cu_seqlens[s]; t < sequences.cu_seqlens[s + 1]; t++, row++)
                rotate_queries_and_keys(
                    stack, (cache ? cache->shared : 0) + t - sequences.cu_seqlens[s], qkv + row * width
                );
        if (!cache) attend_bidirectional(stack, sequences, qkv, context);
        else if (cache->bfloat16) attend_prompts<uint16_t>(stack, index, sequences, *cache, qkv, context);
        else attend_prompts<float>(stack, index, sequences, *cache, qkv, context);
        linear(layer.output, context, rows, out, stack.threads);
    });
}

// Groups of sequences whose activations fit the L2 cache. Each thread has the same number of groups, and all have
// nearly the same number of tokens.
std::vector<SequenceRange> groups_of(const SequenceRange& all, int64_t threads) {
    const int64_t rounds = ceil_div(all.tokens(), TOKENS_AT_ONCE * threads);
    const int64_t count = std::clamp<int64_t>(rounds * threads, 1, std::max<int64_t>(1, all.tokens() / FEWEST_TOKENS));
    auto tokens = [&](int64_t from, int64_t to) { return all.cu_seqlens[to] - all.cu_seqlens[from]; };
    std::vector<SequenceRange> groups;
    for (int64_t from = 0, to = 1; to <= all.count; to++) {
        const int64_t left = count - static_cast<int64_t>(groups.size());
        const bool last = to == all.count;
        const int64_t half_of_next = last ? 0 : tokens(to, to + 1) / 2;
        const int64_t enough = std::max<int64_t>(FEWEST_TOKENS, tokens(from, all.count) / left);
        if (last || (left > 1 && tokens(from, to) + half_of_next >= enough)) {
            groups.push_back({all.cu_seqlens + from, to - from});
            from = to;
        }
    }
    return groups;
}

// Call compute(group) for groups of sequences; each on one core if there are several.
template <class Compute>
void for_groups(int64_t threads, const SequenceRange& all, const Compute& compute) {
    const std::vector<SequenceRange> groups = groups_of(all, threads);
    parallel_for(threads, groups.size(), 1, [&](int64_t from, int64_t to) {
        for (int64_t g = from; g < to; g++) compute(groups[g]);
    });
}

// All layers, for one group.
void run_sequences(const StackCall& stack, const SequenceRange& sequences, const DecoderCache* cache, float* x) {
    for (int index = 0; index < stack.n_layers; index++) {
        attend_sequences(stack, index, sequences, cache, x);
        feed_forward(stack, stack.layers[index], x, sequences.tokens());
    }
    normalize_rows(stack.final_norm, x, sequences.tokens(), stack.d_model, x);
}

void check_batch(const StackCall& stack, const EncoderBatch& batch) {
    for (int64_t s = 0; batch.ids && s < batch.sequences; s++) {
        const int64_t first = s * batch.length, tokens = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
        check_indices(batch.ids + first, tokens, stack.vocab_size, OUTSIDE_VOCABULARY);
        if (batch.segments)
            check_indices(batch.segments + first, tokens, batch.n_segments, "a segment is outside those of the model");
    }
}

// Embedding of token t of a text: the normalized sum of its own vector and those of its position and segment.
void embed_token(const StackCall& stack, const EncoderBatch& batch, int64_t text, int64_t t, float* to) {
    const int64_t d = stack.d_model, token = text * batch.length + t;
    const float* position = batch.positions + t * d;
    const float* segment = batch.segment_table + (batch.segments ? batch.segments[token] : 0) * d;
    for (int64_t i = 0; i < d; i++) to[i] = position[i] + segment[i];
    embed(stack, batch.ids[token], to);
}

// Rows x of a group, without padding.
void read_group(const StackCall& stack, const EncoderBatch& batch, const SequenceRange& group, float* x) {
    const int64_t d = stack.d_model, begin = group.cu_seqlens - batch.cu_seqlens;
    for (int64_t s = 0; s < group.count; s++) {
        const int64_t tokens = group.cu_seqlens[s + 1] - group.cu_seqlens[s];
        if (batch.x) std::copy_n(batch.x + (begin + s) * batch.length * d, tokens * d, x);
        else
            for (int64_t t = 0; t < tokens; t++) embed_token(stack, batch, begin + s, t, x + t * d);
        x += tokens * d;
    }
}

// The vector of a sequence from those of its tokens. Without tokens the mean is 0 and the maximum −∞.
void pool(Pooling pooling, const float* x, int64_t tokens, int64_t d, float* to) {
    std::fill(to, to + d, pooling == MAXIMUM ? -INFINITY : 0.0f);
    for (int64_t t = 0; t < (pooling == FIRST ? std::min<int64_t>(1, tokens) : tokens); t++)
        for (int64_t i = 0; i < d; i++) {
            const float value = x[t * d + i];
            if (pooling != MAXIMUM) to[i] += value;
            else to[i] = value > to[i] || std::isnan(value) ? value : to[i];
        }
    for (int64_t i = 0; pooling == MEAN && i < d; i++) to[i] /= std::max<int64_t>(1, tokens);
}

// Results of a group from its rows x.
void put_group(const StackCall& stack, const EncoderBatch& batch, const SequenceRange& group, const float* x) {
    const int64_t d = stack.d_model, width = batch.pooling == EVERY_TOKEN ? batch.length * d : d;
    float* to = batch.result + (group.cu_seqlens - batch.cu_seqlens) * width;
    for (int64_t s = 0; s < group.count; s++, to += width) {
        const int64_t tokens = group.cu_seqlens[s + 1] - group.cu_seqlens[s];
        if (batch.pooling == EVERY_TOKEN) std::fill(std::copy(x, x + tokens * d, to), to + width, 0.0f);
        else pool(static_cast<Pooling>(batch.pooling), x, tokens, d, to);
        x += tokens * d;
    }
}

}  // namespace

// Encode the source of a decoder with bidirectional attention, or with a cache the prompts of a decoder-only model: the
// cache stores their keys and values. x: [tokens, d_model], without padding. It contains positional encodings, to which
// the embeddings of `ids` are added, and then the result. cu_seqlens: first token of each sequence, and the end of the
// last.
API int32_t encode(
    const PackedStack* stack, const RotaryTables* rotary, const int64_t* ids, float* x, const int64_t* cu_seqlens,
    int64_t sequences, const DecoderCache* cache, int64_t threads
) {
    return guarded([&] {
        const StackCall call{*stack, threads, *rotary};
        check_indices(ids, cu_seqlens[sequences], stack->vocab_size, OUTSIDE_VOCABULARY);
        for_groups(threads, {cu_seqlens, sequences}, [&](const SequenceRange& group) {
            float* rows = x + group.cu_seqlens[0] * call.d_model;
            for (int64_t i = 0; i < group.tokens(); i++)
                embed(call, ids[group.cu_seqlens[0] + i], rows + i * call.d_model);
            run_sequences(call, group, cache, rows);
        });
    });
}

API int32_t
encode_batch(const PackedStack* stack, const RotaryTables* rotary, const EncoderBatch* batch, int64_t threads) {
    return guarded([&] {
        const StackCall call{*stack, threads, *rotary};
        check_batch(call, *batch);
        for_groups(threads, {batch->cu_seqlens, batch->sequences}, [&](const SequenceRange& group) {
            float* x = workspace<float>(GROUP_ROWS, group.tokens() * call.d_model);
            read_group(call, *batch, group, x);
            run_sequences(call, group, nullptr, x);
            put_group(call, *batch, group, x);
        });
    });
}
