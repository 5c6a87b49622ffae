// The greatest entries of a row of logits without a full sort, a step of beam search, and several steps at once:
// between them there is nothing to be decided.
#include "api.h"
#include "decoding.h"
#include "softmax.h"
#include <vector>

#define GROUP (8 * LANES)

struct Candidate {
    float value;
    int64_t index;
    bool operator<(const Candidate& other) const {  // descending by value, ties by index
        return value > other.value || (value == other.value && index < other.index);
    }
};

// The k greatest entries. They lie in the k groups of GROUP entries with the greatest maxima; only these are searched.
static void best(const float* x, int64_t count, int64_t k, float* values, int64_t* indices) {
    if (k < 1) return;
    thread_local std::vector<Candidate> groups, candidates;
    groups.clear(), candidates.clear();
    for (int64_t start = 0; start < count; start += GROUP) {
        const int64_t stop = start + GROUP < count ? start + GROUP : count;
        Floats largest = broadcast(-INFINITY);
        int64_t i = start;
        for (; i + LANES <= stop; i += LANES) largest = greater(load(x + i), largest);
        float value = maximum(largest);
        for (; i < stop; i++) value = x[i] > value ? x[i] : value;
        groups.push_back({value, start});
    }
    const int64_t searched = std::min<int64_t>(k, groups.size());
    std::partial_sort(groups.begin(), groups.begin() + searched, groups.end());
    const float least = groups[searched - 1].value;  // at least k entries are as great
    for (int64_t g = 0; g < searched; g++) {
        const int64_t start = groups[g].index, stop = start + GROUP < count ? start + GROUP : count;
        for (int64_t i = start; i < stop; i++) {
            const Candidate candidate{x[i] == x[i] ? x[i] : -INFINITY, i};  // NaN sorts last
            if (searched == k && candidate.value < least) continue;
            if (static_cast<int64_t>(candidates.size()) == k && !(candidate < candidates.back())) continue;
            if (static_cast<int64_t>(candidates.size()) == k) candidates.pop_back();
            candidates.insert(std::upper_bound(candidates.begin(), candidates.end(), candidate), candidate);
        }
    }
    for (int64_t i = 0; i < k; i++) values[i] = candidates[i].value, indices[i] = candidates[i].index;
}

static void extend(Extension& e) {
    e.n_ended = 0;
    std::vector<float> values(e.per_hypothesis), log_probs(e.live * e.per_hypothesis);
    std::vector<int64_t> tokens(e.live * e.per_hypothesis);
    std::vector<Candidate> candidates(e.live * e.per_hypothesis);
    for (int64_t s = 0; s < e.sentences; s++) {
        for (int64_t row = 0; row < e.live; row++) {
            const float* logits = e.logits + (s * e.live + row) * e.vocab_size;
            const float normalizer = e.normalizers[s * e.live + row], total = e.totals[s * e.live + row];
            best(logits, e.vocab_size, e.per_hypothesis, values.data(), tokens.data() + row * e.per_hypothesis);
            for (int64_t i = 0, at = row * e.per_hypothesis; i < e.per_hypothesis; i++, at++) {
                const float log_prob = values[i] - normalizer;
                log_probs[at] = log_prob > 0 ? 0 : log_prob;
                const float new_total = total + log_probs[at];
                candidates[at] = {new_total == new_total ? new_total : -INFINITY, at};
            }
        }
        std::partial_sort(candidates.begin(), candidates.begin() + e.candidates, candidates.end());
        int64_t to = s * (e.candidates + e.beam), next = to + e.candidates;
        auto put = [&](int64_t at, const Candidate& one, float new_total) {
            e.new_totals[at] = new_total, e.log_probs[at] = log_probs[one.index];
            e.parents[at] = one.index / e.per_hypothesis, e.tokens[at] = tokens[one.index];
        };
        const int64_t stop = next + e.beam;
        for (int64_t i = 0; i < e.candidates; i++, to++) {
            put(to, candidates[i], candidates[i].value);
            if (tokens[candidates[i].index] == e.end) e.n_ended += candidates[i].value > -INFINITY;
            else if (next < stop) put(next++, candidates[i], candidates[i].value);
        }
        for (int64_t i = 0; next < stop; i++)  // fill up with −∞ if too few continue
            if (tokens[candidates[i].index] == e.end) put(next++, candidates[i], -INFINITY);
    }
}

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
    check_indices(b.forbidden, b.n_forbidden, e.vocab_size, "a forbidden token is outside the vocabulary");
    e.logits = b.logits, e.normalizers = b.normalizers, e.totals = b.totals;
    for (b.done = 0; b.done < b.most; cache.steps++) {
        const int64_t length = b.length + b.done;
        for (int64_t row = 0; row < rows; row++) ids[row] = b.tokens[row * b.capacity + length - 1];
        const float* encoding = position ? position + b.done * stack.d_model : nullptr;
        decode_tokens(stack, output, {rows, ids.data(), encoding, 0, b.logits}, cache);
        for (int64_t row = 0; row < rows; row++) {
            float* logits = b.logits + row * e.vocab_size;
            b.normalizers[row] = logsumexp(logits, e.vocab_size);
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

// log Σ e^x of each row of x [rows, count]; results: [rows].
API int32_t log_sums(const float* x, int64_t rows, int64_t count, float* results) {
    return guarded([&] {
        for (int64_t row = 0; row < rows; row++) results[row] = logsumexp(x + row * count, count);
    });
}

// The k ≤ count greatest entries of each row in descending order, and their indices; values, indices: [rows, k].
API int32_t best_of(const float* x, int64_t rows, int64_t count, int64_t k, float* values, int64_t* indices) {
    return guarded([&] {
        for (int64_t row = 0; row < rows; row++) best(x + row * count, count, k, values + row * k, indices + row * k);
    });
}

API int32_t extend_hypotheses(Extension* extension) {
    return guarded([&] { extend(*extension); });
}

// Steps of a beam search, until hypotheses end or logits are not finite. position: the encoding of the first step's
// tokens, those of later ones behind it; or null.
API int32_t search_beams(
    const PackedStack* stack, const RotaryTables* rotary, const Linear* output, const float* position,
    const DecoderCache* cache, BeamSteps* steps, int64_t threads
) {
    return guarded([&] { take_steps({*stack, threads, *rotary}, *output, position, *cache, *steps); });
}
