// Arguments of the exported functions. abi.py mirrors the structs under the same names, and layouts.h lists their
// fields.
#pragma once
#include <cstdint>

struct Parameter {
    const void* value;  // or null
    void* gradient;     // null in inference
};

template <class T>
static const T* values_of(const Parameter& parameter) {
    return static_cast<const T*>(parameter.value);
}

struct Norm {
    Parameter weight, bias;  // [d_model]; weight null: no norm; bias: or null
    float epsilon;
    int32_t rms;  // 1: RMSNorm, without centering
};

struct Linear {
    Parameter weight, bias;  // [outputs, inputs], packed for inference; [outputs] or null
    const float* scales;     // of each output of an int8 weight, or null
    int32_t outputs, inputs;
    int32_t parts;  // 1: weight packed in parts (split.h), for inference
};

// Weights of a layer (section 3.1), for training and inference. Missing parts are null. In inference one product has
// several results: `query` yields queries, keys and values, `cross_key` keys and values, and `inner` the gate and then
// the other half.
struct Layer {
    Norm self_norm, cross_norm, feed_forward_norm;
    Linear query, key, value, output;
    Linear cross_query, cross_key, cross_value, cross_output;
    Linear gate, inner, outer;
};

// Heads of queries and, one for each group of them, of keys and values; widths of a query or key, and of a value.
struct Heads {
    int32_t n_heads, n_kv_heads, d_k, d_v;

    int64_t group() const { return n_heads / n_kv_heads; }  // heads of queries that share keys and values
    // Widths of all heads together.
    int64_t q_width() const { return static_cast<int64_t>(n_heads) * d_k; }
    int64_t k_width() const { return static_cast<int64_t>(n_kv_heads) * d_k; }
    int64_t v_width() const { return static_cast<int64_t>(n_kv_heads) * d_v; }
    int64_t context_width() const { return static_cast<int64_t>(n_heads) * d_v; }
};

// Rotary positions [length, d_k] (rope.h), or nulls. Each pair has its cosine twice, and its sine twice, first negated.
struct RotaryTables { const float *cosines, *sines; };

struct PackedStack {
    int32_t n_layers, d_model;
    Heads heads;
    int32_t pre_norm, activation, gated;
    const Layer* layers;  // [n_layers]
    Norm final_norm;
    const float* embedding;  // [vocab_size, d_model]
    int64_t vocab_size;
    float scale;          // of the embedding
    Norm embedding_norm;  // weight null: none
};

enum Pooling { EVERY_TOKEN, MEAN, MAXIMUM, FIRST };

// Sequences for an encoder; padding follows their tokens.
struct EncoderBatch {
    int64_t sequences, length;
    const int64_t* cu_seqlens;               // [sequences + 1], number of tokens before each, and of all
    const float* x;                          // [sequences, length, d_model], or null with ids
    const int64_t *ids, *segments;           // [sequences, length]; segments null: 0 for all tokens
    const float *positions, *segment_table;  // with ids: [length, d_model], [n_segments, d_model]
    int64_t n_segments;
    int32_t pooling;
    float* result;  // [sequences, length, d_model], 0 for padding; or with pooling [sequences, d_model]
};

// Key–value cache of the decoder's hypotheses. `memory` belongs to the source (cross-attention) or to the prompts
// (decoder-only). `keys_values[t]` belongs to step t: [layers, rows[t], keys and values]. The keys of hypothesis r at
// step t are in row beam_index[r][t].
struct DecoderCache {
    int64_t steps;  // including the newest
    void* const* keys_values;
    const int64_t* rows;
    int32_t* beam_index;  // [rows, stride]
    int64_t stride;
    void* const* memory;            // one for each layer: [tokens, keys and values]
    const int64_t *first, *length;  // of each sentence in `memory`, in tokens
    int64_t rows_per_sentence;
    int64_t shared;    // tokens at the beginning of `memory` that are the prefix of every prompt
    int32_t bfloat16;  // keys and values
};

// The newest token of each row, for one step of decoding.
struct NewestTokens {
    int64_t rows;
    const int64_t* ids;     // [rows]
    const float* position;  // [rows, d_model], positional encodings, or null
    int64_t stride;         // of the rows of `position`; 0: one encoding for all rows
    float* logits;          // [rows, outputs of the output projection], result
};

// An operand of a product: step r of row or column i is at data[i · across + r · along].
template <class Unit>
struct OperandOf {
    const Unit* data;
    int64_t across, along;
};
typedef OperandOf<float> Operand;

struct MatrixProduct {
    int64_t rows, columns, depth;
    Operand a, b;
    const float* bias;  // [columns] or null
    float* result;      // [rows, columns]
    int64_t threads;
};

// Tensor [batch, heads, positions, d] with strides; entry d of a row is at data[batch · b + head · h + position · i +
// d].
struct Sequences {
    void* data;
    int64_t batch, head, position;
};

// Visible keys [batch, heads, queries, keys]: 1 if visible; all if `data` is null. Strides are 0 for broadcast axes.
struct DenseMask {
    const uint8_t* data;
    int64_t batch, head, query, key;
};

// Rows of several sentences: the keys of its own sentence are visible to a query.
struct SentenceMask {
    int64_t batch, queries, keys;
    const int64_t *query_sentences, *key_sentences;  // [batch, queries], [batch, keys]: numbers; 0 is padding
    uint8_t* visible;  // result, [batch, queries, keys]: 1 if visible; 0 for padding at the end of a row of keys
    int32_t causal;    // keys of later positions are hidden
    int64_t threads;
};

struct Attention {
    int64_t batch, queries, keys;
    Heads heads;
    Sequences q, k, v, context;
    Sequences q_gradient, k_gradient, v_gradient, context_gradient;  // backward pass only
    DenseMask mask;
    float*
        log_sums;  // [batch, n_heads, queries], or [n_heads, queries] of each sequence without padding: log Σ e^score
    uint64_t seed;
    int32_t threshold, bfloat16;  // threshold / 256 of the weights are dropped
    int64_t threads;
    // [batch + 1]: first query and key of each sequence in unpadded rows, and the end of the last; or nulls.
    const int64_t *cu_seqlens_q, *cu_seqlens_k;
};

struct Rotation {
    int64_t batch, heads, length, size;
    Sequences x, y;
    RotaryTables tables;  // [length, size]
    int32_t bfloat16;
    int64_t threads;
    const int64_t* cu_seqlens;  // [batch + 1]: first row of each sequence without padding, and the end; or null
};

struct Embedding {
    int64_t tokens, d_model;
    // [tokens]. positions: rows of the table, or null; segments: null is 0 for all; mask: 0 for padding, which has the
    // sum 0, or null.
    const int64_t *ids, *positions, *segments;
    const uint8_t* mask;
    const float *matrix, *table, *segment_table;    // [rows, d_model] each; segment_table: or null
    int64_t matrix_rows, table_rows, segment_rows;  // rows of each
    Norm norm;                                      // of the sum; weight null: none
    float scale;
    int32_t threshold;
    uint64_t seed;
    float* x;          // [tokens, d_model]
    const float* d_x;  // likewise
    // Results: the rows of the matrix that tokens read, in order, [n_rows], at most `tokens`, or null; their gradients,
    // [n_rows, d_model]; and those of all rows of the tables, or null.
    int64_t* rows;
    float *d_rows, *d_table, *d_segments;
    int64_t n_rows;  // result
    int64_t threads;
};

// A stack in training. Numbers are bfloat16 or float32.
struct TrainingStack {
    int64_t n_layers, batch, length, memory_length, d_model, d_ff;  // memory_length: 0 without a memory
    Heads heads;
    const Layer* layers;          // [n_layers]
    const void *x, *memory;       // [batch, length, d_model], [batch, memory_length, d_model] or null
    DenseMask mask, memory_mask;  // of self-attention and of cross-attention
    RotaryTables rotary;
    const float* inverse_sines;  // of the rotation back, or null
    void *result, *saved;        // [batch, length, d_model] or [selected_count, d_model]; [stack_bytes()]
    const void* d_result;        // of the shape of `result`, like the other gradients
    void *d_x, *d_memory;
    uint64_t seed;
    int32_t threshold, attention_threshold, pre_norm, bfloat16, activation;
    int32_t float_x;  // x and its gradient are float32, also if all else is bfloat16
    int64_t threads;
    // [selected_count]: tokens (sequence · length + position) whose results are needed, or null: the result then has
    // all tokens, with padding. A stack with a memory computes all rows either way.
    const int64_t* selected;
    int64_t selected_count;
    Norm final_norm;  // of the last layer's results; weight null: none, as always after post-norm layers
    // Rows that enter the cross-attention of one layer, before its norm if pre-norm, and their gradients: [batch,
    // length, d_model], or null with cross_layer -1.
    int64_t cross_layer;
    void* cross_input;
    const void* d_cross_input;
};

struct ProjectedLoss {
    int64_t tokens, vocab_size, d_model;
    const void* hidden;          // [tokens, d_model]
    const float *weight, *bias;  // [vocab_size, d_model]; [vocab_size] or null
    const int64_t* target;       // [tokens]
    float smoothing;
    int32_t bfloat16;  // hidden and its gradient
    void* d_hidden;    // gradients, in the shapes of the values; null if none is needed
    float *d_weight, *d_bias;
    double nll, smooth;  // results: Σ −log p of the target, Σ of the mean of −log p
    int64_t threads;
};

// Values to be added to rows of a matrix. No row occurs twice.
struct RowSum {
    const int64_t* rows;  // [count]
    int64_t count, width, matrix_rows;
    const float* values;  // [count, width]
    float* matrix;        // [matrix_rows, width]
    int64_t threads;
};

// State of one tensor.
struct ParameterState {
    float* value;
    const void* gradient;
    float* step;                  // counter of updates, of the optimizer
    float *exp_avg, *exp_avg_sq;  // the moments m and v
    float* average;               // or null
    uint16_t* bf16_copy;          // or null
    int64_t count;
    double learning_rate;  // α
    float decay;           // factor on the weight, decoupled from the gradient (AdamW)
    int32_t bfloat16;      // 1: the gradient is bfloat16
};

struct Update {
    const ParameterState* parameters;
    int64_t count;
    double squared_norm;  // result: of all gradients
    float scale;          // factor on the gradients, which clips their norm
    float beta1, beta2, epsilon, ema_rate;
    int64_t threads;
};

// One step of beam search: the best extensions of each sentence's live hypotheses, at most `per_hypothesis` of one.
// Ties are in the order of hypotheses, then of their candidates.
struct Extension {
    int64_t sentences, live, vocab_size, per_hypothesis, candidates, beam, end;
    const float* logits;                // [sentences, live, vocab_size]; −∞ for forbidden tokens
    const float *normalizers, *totals;  // [sentences, live]
    // Results, [sentences, candidates + beam]: the candidates, then those that do not end, both best first. For each:
    // its total, the log-probability of its last token, the index of its hypothesis, and that token.
    float *new_totals, *log_probs;
    int64_t *parents, *tokens;
    int64_t n_ended;  // candidates of all sentences that end
};

// The hypotheses of all sentences have the same number of tokens; `tokens` and `token_log_probs` have two buffers,
// [rows, capacity], which the steps fill in turns: afterwards buffer done % 2 contains the hypotheses, and the other
// one those before the last step.
struct BeamSteps {
    Extension extension;       // of the last step; logits, normalizers and totals are those below
    int64_t most, done;        // steps to be taken, and the result
    int64_t length, capacity;  // tokens of a hypothesis before the first step
    int64_t *tokens, *other_tokens;
    float *token_log_probs, *other_log_probs;
    const int64_t* forbidden;  // tokens that no hypothesis may contain
    int64_t n_forbidden;
    // [rows, vocab_size], [rows], [rows]; totals: of the hypotheses, also a result.
    float *logits, *normalizers, *totals;
    float *best, *sums;  // [sentences], results: the greatest total, and Σ normalizers
};
