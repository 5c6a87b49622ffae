// Several steps of a beam search at once: between them there is nothing to be decided.
#pragma once
#include "candidates.h"
#include "decoding.h"

// The hypotheses of all sentences have the same number of tokens; `tokens` and `log_probs` have two buffers, [rows,
// capacity], which the steps fill in turns: afterwards buffer done % 2 contains the hypotheses, and the other one those
// before the last step.
struct BeamSteps {
    Extension extension;       // of the last step; `totals` are its own, and `normalizers` a result
    int64_t most, done;        // steps to be taken, and the result
    int64_t length, capacity;  // tokens of a hypothesis before the first step
    int64_t *tokens, *other_tokens;
    float *token_log_probs, *other_log_probs;
    const int64_t* forbidden;  // tokens that no hypothesis may contain
    int64_t n_forbidden;
    float *logits, *normalizers, *totals;  // of each row; totals: of the hypotheses, also a result
    float *best, *sums;                    // result: of each sentence, its greatest total, and Σ normalizers
};

namespace {

// Index of the extension that becomes this row: a sentence has its candidates, then those that continue.
int64_t extension_of(const Extension& e, int64_t row) {
    return row / e.beam * (e.candidates + e.beam) + e.candidates + row % e.beam;
}

// Row of the hypothesis that the extension of this row continues.
int64_t parent_of(const Extension& e, int64_t row) { return row / e.beam * e.live + e.parents[extension_of(e, row)]; }

// Extend the hypotheses, into the other buffers.
void continue_hypotheses(const BeamSteps& b, int64_t length, const Extension& e) {
    for (int64_t row = 0; row < e.sentences * e.beam; row++) {
        const int64_t at = extension_of(e, row), before = parent_of(e, row) * b.capacity, to = row * b.capacity;
        std::copy(b.tokens + before, b.tokens + before + length, b.other_tokens + to);
        std::copy(b.token_log_probs + before, b.token_log_probs + before + length, b.other_log_probs + to);
        b.other_tokens[to + length] = e.tokens[at], b.other_log_probs[to + length] = e.log_probs[at];
        b.totals[row] = e.new_totals[at];
    }
}

// Bring the rows of the cache into the order of the extended hypotheses.
void reorder_beam_index(const Extension& e, const DecoderCache& cache, std::vector<int32_t>& before) {
    const int64_t rows = e.sentences * e.live;
    before.resize(rows * cache.steps);
    for (int64_t row = 0; row < rows; row++)
        std::copy_n(cache.beam_index + row * cache.stride, cache.steps, before.data() + row * cache.steps);
    for (int64_t row = 0; row < rows; row++)
        std::copy_n(
            before.data() + parent_of(e, row) * cache.steps, cache.steps, cache.beam_index + row * cache.stride
        );
}

// The greatest total of each sentence and the sum of its normalizers; false if a search cannot go on with them.
bool summarize(const BeamSteps& b, const Extension& e) {
    bool usable = true;
    for (int64_t s = 0; s < e.sentences; s++) {
        b.best[s] = *std::max_element(b.totals + s * e.beam, b.totals + (s + 1) * e.beam);
        b.sums[s] = 0;
        for (int64_t row = s * e.live; row < (s + 1) * e.live; row++) b.sums[s] += b.normalizers[row];
        usable &= std::isfinite(b.sums[s]) && b.best[s] > -INFINITY;
    }
    return usable;
}

// One beam for each sentence: live hypotheses and extensions are equally many.
void take_steps(const StackCall& stack, const Linear& output, const float* position, DecoderCache cache, BeamSteps& b) {
    Extension& e = b.extension;
    const int64_t rows = e.sentences * e.live;
    std::vector<int64_t> ids(rows);
    std::vector<int32_t> index;
    for (int64_t i = 0; i < b.n_forbidden; i++)
        if (b.forbidden[i] < 0 || b.forbidden[i] >= e.vocabulary) throw std::out_of_range("forbidden");
    e.logits = b.logits, e.normalizers = b.normalizers, e.totals = b.totals;
    for (b.done = 0; b.done < b.most; cache.steps++) {
        const int64_t length = b.length + b.done;
        for (int64_t row = 0; row < rows; row++) ids[row] = b.tokens[row * b.capacity + length - 1];
        const float* encoding = position ? position + b.done * stack.d_model : nullptr;
        decode_tokens(stack, output, {ids.data(), encoding, 0, rows}, cache, b.logits);
        for (int64_t row = 0; row < rows; row++) {
            float* logits = b.logits + row * e.vocabulary;
            b.normalizers[row] = log_sum(logits, e.vocabulary);
            for (int64_t i = 0; i < b.n_forbidden; i++) logits[b.forbidden[i]] = -INFINITY;
        }
        extend(e);
        continue_hypotheses(b, length, e);
        reorder_beam_index(e, cache, index);
        std::swap(b.tokens, b.other_tokens), std::swap(b.token_log_probs, b.other_log_probs);
        b.done++;
        if (!summarize(b, e) || e.n_ended) return;
    }
}

}  // namespace
