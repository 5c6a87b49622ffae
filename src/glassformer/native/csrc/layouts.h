// Layouts of the structs that abi.py mirrors, under the same names. library.py compares them on loading and refuses a
// library that differs.
#pragma once
#include "arguments.h"
#include <cstddef>
#include <string>

// Layout of the struct `name`: name, offset and size of each field, then the size of the struct; empty if unknown.
static std::string layout_of(const std::string& name) {
    std::string text;
    auto put = [&](const char* field, size_t offset, size_t bytes) {
        text += std::string(field) + " " + std::to_string(offset) + " " + std::to_string(bytes) + " ";
    };
    // clang-format off: a table, whose lines are filled
#define F(field) put(#field, offsetof(S, field), sizeof(S::field));
#define STRUCT(type, ...)                            \
    if (name == #type) {                             \
        typedef type S;                              \
        __VA_ARGS__ return text + std::to_string(sizeof(S)); \
    }
    STRUCT(Parameter, F(value) F(gradient))
    STRUCT(Norm, F(weight) F(bias) F(epsilon) F(rms))
    STRUCT(Linear, F(weight) F(bias) F(scales) F(outputs) F(inputs) F(parts))
    STRUCT(
        Layer, F(self_norm) F(cross_norm) F(feed_forward_norm) F(query) F(key) F(value) F(output) F(cross_query)
        F(cross_key) F(cross_value) F(cross_output) F(gate) F(inner) F(outer)
    )
    STRUCT(
        PackedStack, F(n_layers) F(d_model) F(heads) F(pre_norm) F(activation) F(gated) F(layers) F(final_norm)
        F(embedding) F(vocab_size) F(scale) F(embedding_norm)
    )
    STRUCT(Heads, F(n_heads) F(n_kv_heads) F(d_k) F(d_v))
    STRUCT(
        EncoderBatch, F(sequences) F(length) F(cu_seqlens) F(x) F(ids) F(segments) F(positions) F(segment_table)
        F(n_segments) F(pooling) F(result)
    )
    STRUCT(RotaryTables, F(cosines) F(sines))
    STRUCT(
        DecoderCache, F(steps) F(keys_values) F(rows) F(beam_index) F(stride) F(memory) F(first) F(length)
        F(rows_per_sentence) F(shared) F(bfloat16)
    )
    STRUCT(NewestTokens, F(rows) F(ids) F(position) F(stride) F(logits))
    STRUCT(Operand, F(data) F(across) F(along))
    STRUCT(MatrixProduct, F(rows) F(columns) F(depth) F(a) F(b) F(bias) F(result) F(threads))
    STRUCT(DenseMask, F(data) F(batch) F(head) F(query) F(key))
    STRUCT(
        SentenceMask, F(batch) F(queries) F(keys) F(query_sentences) F(key_sentences) F(visible) F(causal) F(threads)
    )
    STRUCT(Sequences, F(data) F(batch) F(head) F(position))
    STRUCT(
        Attention, F(batch) F(queries) F(keys) F(heads) F(q) F(k) F(v) F(context) F(q_gradient) F(k_gradient)
        F(v_gradient) F(context_gradient) F(mask) F(log_sums) F(seed) F(threshold) F(bfloat16) F(threads)
        F(cu_seqlens_q) F(cu_seqlens_k)
    )
    STRUCT(
        Embedding, F(tokens) F(d_model) F(ids) F(positions) F(segments) F(mask) F(matrix) F(table) F(segment_table)
        F(matrix_rows) F(table_rows) F(segment_rows) F(norm) F(scale) F(threshold) F(seed) F(x) F(d_x) F(rows) F(d_rows)
        F(d_table) F(d_segments) F(n_rows) F(threads)
    )
    STRUCT(
        Rotation, F(batch) F(heads) F(length) F(size) F(x) F(y) F(tables) F(bfloat16) F(threads) F(cu_seqlens)
    )
    STRUCT(
        TrainingStack, F(n_layers) F(batch) F(length) F(memory_length) F(d_model) F(d_ff) F(heads) F(layers) F(x)
        F(memory) F(mask) F(memory_mask) F(rotary) F(inverse_sines) F(result) F(saved) F(d_result) F(d_x) F(d_memory)
        F(seed) F(threshold) F(attention_threshold) F(pre_norm) F(bfloat16) F(activation) F(float_x) F(threads)
        F(selected) F(selected_count) F(final_norm) F(cross_layer) F(cross_input) F(d_cross_input)
    )
    STRUCT(RowSum, F(rows) F(count) F(width) F(matrix_rows) F(values) F(matrix) F(threads))
    STRUCT(
        ParameterState, F(value) F(gradient) F(step) F(exp_avg) F(exp_avg_sq) F(average) F(bf16_copy) F(count)
        F(learning_rate) F(decay) F(bfloat16)
    )
    STRUCT(
        Update, F(parameters) F(count) F(squared_norm) F(scale) F(beta1) F(beta2) F(epsilon) F(ema_rate) F(threads)
    )
    STRUCT(
        ProjectedLoss, F(tokens) F(vocab_size) F(d_model) F(hidden) F(weight) F(bias) F(target) F(smoothing)
        F(bfloat16) F(d_hidden) F(d_weight) F(d_bias) F(nll) F(smooth) F(threads)
    )
    STRUCT(
        Extension, F(sentences) F(live) F(vocab_size) F(per_hypothesis) F(candidates) F(beam) F(end) F(logits)
        F(normalizers) F(totals) F(new_totals) F(log_probs) F(parents) F(tokens) F(n_ended)
    )
    STRUCT(
        BeamSteps, F(extension) F(most) F(done) F(length) F(capacity) F(tokens) F(other_tokens) F(token_log_probs)
        F(other_log_probs) F(forbidden) F(n_forbidden) F(logits) F(normalizers) F(totals) F(best) F(sums)
    )
#undef STRUCT
#undef F
    // clang-format on
    return "";
}
