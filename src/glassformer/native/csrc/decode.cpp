// Inference of stacks: full sequences at once, or the newest token of each hypothesis with a cache. Encoders,
// decoder-only models and decoders with cross-attention share this code.
//
// Sequences are concatenated without padding. Activations are float32; cached keys and values may be bfloat16. The
// result of a row does not depend on the other rows of its batch.
#include "api.h"
#include "attention.h"
#include "cached_attention.h"
#include "decoding.h"
#include "linear.h"
#include "norm.h"
#include "rope.h"
#include <vector>

#define TOKENS_AT_ONCE 256        // computed layer by layer together; their activations fit the L2 cache
#define ENOUGH_NUMBERS (1 << 17)  // of keys and values, from which on several cores gain time

namespace {

void normalize_rows(const Norm& norm, const float* x, int64_t rows, int64_t d, float* to) {
    for (int64_t row = 0; norm.weight.value && row < rows; row++) normalize(norm, x + row * d, d, to + row * d);
}

// x + Sublayer(LayerNorm(x)), or LayerNorm(x + Sublayer(x)). The sub-layer adds its result to x.
template <class Sublayer>
void add_and_norm(const StackCall& stack, const Norm& norm, float* x, int64_t rows, Sublayer sublayer) {
    const int64_t d = stack.d_model;
    const float* input = x;
    if (stack.pre_norm) {
        auto normalized = workspace<float>(NORMALIZED, rows * d);
        normalize_rows(norm, x, rows, d, normalized);
        input = normalized;
    }
    sublayer(input, Output{x, d, NONE, true});
    if (!stack.pre_norm) normalize_rows(norm, x, rows, d, x);
}

// activation(gate) · inner of each row of 2 · d_ff numbers, in place, to contiguous rows of d_ff.
void apply_gates(Activation activation, int64_t rows, int64_t d_ff, float* x) {
    for (int64_t row = 0; row < rows; row++) {
        const float *gates = x + row * 2 * d_ff, *inner = gates + d_ff;
        float* to = x + row * d_ff;
        int64_t i = 0;
        for (; i + LANES <= d_ff; i += LANES) store(to + i, activated(activation, load(gates + i)) * load(inner + i));
        for (; i < d_ff; i++) to[i] = activated(activation, broadcast(gates[i]))[0] * inner[i];
    }
}

void feed_forward(const StackCall& stack, const Layer& layer, float* x, int64_t rows) {
    const auto activation = static_cast<Activation>(stack.activation);
    add_and_norm(stack, layer.feed_forward_norm, x, rows, [&](const float* input, Output out) {
        const int64_t width = layer.inner.outputs;
        auto hidden = workspace<float>(PROJECTED, rows * width);
        linear(layer.inner, input, rows, {hidden, width, stack.gated ? NONE : activation, false}, stack.threads);
        if (stack.gated) apply_gates(activation, rows, layer.outer.inputs, hidden);
        linear(layer.outer, hidden, rows, out, stack.threads);
    });
}

// Section 3.4: the row of the token × `scale`, added to the positional encoding in x.
void embed(const StackCall& stack, int64_t id, float* x) {
    if (id < 0 || id >= stack.vocab_size) throw std::out_of_range(OUTSIDE_VOCABULARY);
    const float* row = stack.embedding + id * stack.d_model;
    for (int64_t i = 0; i < stack.d_model; i++) x[i] = row[i] * stack.scale + x[i];
    normalize_rows(stack.embedding_norm, x, 1, stack.d_model, x);
}

// Rotate the adjacent queries and keys of one token by the angles of `position`.
void rotate_queries_and_keys(const StackCall& stack, int64_t position, float* qkv) {
    const RotaryTables& tables = stack.rotary;
    const int64_t size = stack.heads.d_k;
    for (int head = 0; tables.cosines && head < stack.heads.n_heads + stack.heads.n_kv_heads; head++, qkv += size)
        rotate_head(qkv, tables.cosines + position * size, tables.sines + position * size, size, qkv);
}

// Equation 1 for `rows` queries of at most `longest` visible positions. write_keys(row, to) writes a pointer to each
// visible position and returns their number. Several cores divide the rows or, if these are few, the heads.
template <class T, class WriteKeys>
void attend_rows(
    const StackCall& stack, int64_t rows, int64_t longest, const float* q, int64_t stride, float* context,
    WriteKeys write_keys
) {
    const Heads& heads = stack.heads;
    const bool enough = rows * longest * (heads.k_width() + heads.v_width()) >= ENOUGH_NUMBERS;
    const int64_t threads = enough ? threads_for_small_work(stack.threads) : 1;
    const int64_t head_groups = rows < 2 * threads ? ceil_div(heads.n_heads, HEADS_AT_ONCE) : 1;
    parallel_for(threads, rows * head_groups, chunk_size(threads, rows * head_groups), [&](int64_t from, int64_t to) {
        auto keys = workspace<const T*>(KEY_ROWS, longest);
        auto scores = workspace<float>(SCORES, heads.n_heads * (padded(longest, LANES) + LANES));
        for (int64_t index = from; index < to; index++) {
            const int64_t row = index / head_groups, count = write_keys(row, keys);
            const int first = static_cast<int>(index % head_groups) * HEADS_AT_ONCE;
            const int last = head_groups == 1 ? heads.n_heads : std::min(first + HEADS_AT_ONCE, heads.n_heads);
            attend(heads, first, last, q + row * stride, count, keys, context + row * heads.context_width(), scores);
        }
    });
}

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

// Self-attention of full sequences; with a cache, of prompts, whose keys and values are stored in its memory.
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

// All layers, for groups of sequences that fit the L2 cache; each group on one core if there are several.
void run_sequences(const StackCall& stack, const SequenceRange& all, const DecoderCache* cache, float* x) {
    const int64_t share = padded(all.tokens(), stack.threads) / stack.threads;
    const int64_t enough = std::max<int64_t>(TOKENS_AT_ONCE / 4, std::min<int64_t>(TOKENS_AT_ONCE, share));
    std::vector<SequenceRange> groups;
    for (int64_t from = 0, to = 1; to <= all.count; to++)
        if (to == all.count || all.cu_seqlens[to] - all.cu_seqlens[from] >= enough) {
            groups.push_back({all.cu_seqlens + from, to - from});
            from = to;
        }
    parallel_for(stack.threads, groups.size(), 1, [&](int64_t from, int64_t to) {
        for (int64_t g = from; g < to; g++) {
            float* rows = x + (groups[g].cu_seqlens[0] - all.cu_seqlens[0]) * stack.d_model;
            for (int index = 0; index < stack.n_layers; index++) {
                attend_sequences(stack, index, groups[g], cache, rows);
                feed_forward(stack, stack.layers[index], rows, groups[g].tokens());
            }
            normalize_rows(stack.final_norm, rows, groups[g].tokens(), stack.d_model, rows);
        }
    });
}

// The newest token of each hypothesis attends to its prompt (decoder-only), to the steps before it, and to itself.
template <class T>
void attend_cache(const StackCall& stack, int index, float* x, int64_t rows, const DecoderCache& cache, bool prompts) {
    const Layer& layer = stack.layers[index];
    const Heads& heads = stack.heads;
    const int64_t width = heads.k_width() + heads.v_width(), stride = layer.query.outputs;
    add_and_norm(stack, layer.self_norm, x, rows, [&](const float* input, Output out) {
        auto qkv = workspace<float>(PROJECTED, rows * stride);
        auto context = workspace<float>(HEAD_OUTPUTS, rows * heads.context_width());
        linear(layer.query, input, rows, {qkv, stride, NONE, false}, stack.threads);
        T* newest = static_cast<T*>(cache.keys_values[cache.steps - 1]) + index * rows * width;
        int64_t longest = 0;
        for (int64_t row = 0; row < rows; row++) {
            const int64_t before = prompts ? cache.shared + cache.length[row / cache.rows_per_sentence] : 0;
            rotate_queries_and_keys(stack, before + cache.steps - 1, qkv + row * stride);
            put(qkv + row * stride + heads.q_width(), width, newest + row * width);
            longest = std::max(longest, before + cache.steps);
        }
        auto memory = prompts ? static_cast<const T*>(cache.memory[index]) : nullptr;
        attend_rows<T>(stack, rows, longest, qkv, stride, context, [&](int64_t row, const T** to) {
            const T** const begin = to;
            const int64_t sentence = row / cache.rows_per_sentence;
            for (int64_t t = 0; prompts && t < cache.shared; t++) *to++ = memory + t * width;
            for (int64_t t = 0; prompts && t < cache.length[sentence]; t++)
                *to++ = memory + (cache.shared + cache.first[sentence] + t) * width;
            const int32_t* beam_index = cache.beam_index + row * cache.stride;
            for (int64_t t = 0; t < cache.steps; t++)
                *to++ = static_cast<T*>(cache.keys_values[t]) + (index * cache.rows[t] + beam_index[t]) * width;
            return to - begin;
        });
        linear(layer.output, context, rows, out, stack.threads);
    });
}

template <class T>
void attend_memory(const StackCall& stack, int index, float* x, int64_t rows, const DecoderCache& cache) {
    const Layer& layer = stack.layers[index];
    const Heads& heads = stack.heads;
    const int64_t width = heads.k_width() + heads.v_width();
    add_and_norm(stack, layer.cross_norm, x, rows, [&](const float* input, Output out) {
        auto q = workspace<float>(PROJECTED, rows * heads.q_width());
        auto context = workspace<float>(HEAD_OUTPUTS, rows * heads.context_width());
        linear(layer.cross_query, input, rows, {q, heads.q_width(), NONE, false}, stack.threads);
        int64_t longest = 0;
        for (int64_t row = 0; row < rows; row += cache.rows_per_sentence)
            longest = std::max(longest, cache.length[row / cache.rows_per_sentence]);
        auto memory = static_cast<const T*>(cache.memory[index]);
        attend_rows<T>(stack, rows, longest, q, heads.q_width(), context, [&](int64_t row, const T** to) {
            const int64_t sentence = row / cache.rows_per_sentence, length = cache.length[sentence];
            for (int64_t t = 0; t < length; t++) to[t] = memory + (cache.first[sentence] + t) * width;
            return length;
        });
        linear(layer.cross_output, context, rows, out, stack.threads);
    });
}

template <class T>
void run_step(const StackCall& stack, float* x, int64_t rows, const DecoderCache& cache) {
    for (int index = 0; index < stack.n_layers; index++) {
        const Layer& layer = stack.layers[index];
        const bool crosses = layer.cross_query.weight.value;
        attend_cache<T>(stack, index, x, rows, cache, !crosses);
        if (crosses) attend_memory<T>(stack, index, x, rows, cache);
        feed_forward(stack, layer, x, rows);
    }
    normalize_rows(stack.final_norm, x, rows, stack.d_model, x);
}

}  // namespace

void decode_tokens(
    const StackCall& stack, const Linear& output, const NewestTokens& newest, const DecoderCache& cache
) {
    const int64_t d = stack.d_model;
    float* x = workspace<float>(NEWEST, newest.rows * d);
    for (int64_t row = 0; row < newest.rows; row++) {
        if (newest.position) memcpy(x + row * d, newest.position + row * newest.stride, d * sizeof(float));
        else memset(x + row * d, 0, d * sizeof(float));
        embed(stack, newest.ids[row], x + row * d);
        cache.beam_index[row * cache.stride + cache.steps - 1] = static_cast<int32_t>(row);
    }
    if (cache.bfloat16) run_step<uint16_t>(stack, x, newest.rows, cache);
    else run_step<float>(stack, x, newest.rows, cache);
    linear(output, x, newest.rows, {newest.logits, output.outputs, NONE, false}, stack.threads);
}

// x: [tokens, d_model], unpadded; with `ids` it contains positional encodings, to which the embeddings are added.
// cu_seqlens: first token of each sequence, and the end of the last. With a cache the sequences are prompts of
// a decoder-only model, whose keys and values are stored in its memory; else attention is bidirectional.
API int32_t encode(
    const PackedStack* stack, const RotaryTables* rotary, const int64_t* ids, float* x, const int64_t* cu_seqlens,
    int64_t sequences, const DecoderCache* cache, int64_t threads
) {
    return guarded([&] {
        const StackCall call{*stack, threads, *rotary};
        for (int64_t token = 0; ids && token < cu_seqlens[sequences]; token++)
            embed(call, ids[token], x + token * stack->d_model);
        run_sequences(call, {cu_seqlens, sequences}, cache, x);
    });
}

API int32_t decode(
    const PackedStack* stack, const RotaryTables* rotary, const Linear* output, const NewestTokens* newest,
    const DecoderCache* cache, int64_t threads
) {
    return guarded([&] { decode_tokens({*stack, threads, *rotary}, *output, *newest, *cache); });
}
