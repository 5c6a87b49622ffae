// log Σ e^x of a row of logits, its greatest entries without a full sort, and a step of beam search.
#pragma once
#include "simd.h"
#include <algorithm>
#include <vector>

#define GROUP (8 * LANES)

// log Σ e^x
static float log_sum(const float* x, int64_t count) {
    Floats largest = broadcast(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) largest = greater(largest, load(x + i));
    float shift = maximum(largest);
    for (; i < count; i++) shift = x[i] > shift ? x[i] : shift;
    if (!std::isfinite(shift)) return shift;
    Floats totals[4] = {};
    for (i = 0; i + 4 * LANES <= count; i += 4 * LANES)
        for (int j = 0; j < 4; j++) totals[j] += exponential(load(x + i + j * LANES) - shift);
    float rest = 0;
    for (; i < count; i++) rest += std::exp(x[i] - shift);
    return shift + std::log(sum((totals[0] + totals[1]) + (totals[2] + totals[3])) + rest);
}

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

// One step of beam search: the best extensions of each sentence's live hypotheses, at most `per_hypothesis` of one.
// Ties are in the order of hypotheses, then of their candidates.
struct Extension {
    int64_t sentences, live, vocabulary, per_hypothesis, candidates, beam, end;
    const float* logits;                // [sentences, live, vocabulary]; −∞ for forbidden tokens
    const float *normalizers, *totals;  // [sentences, live]
    // Results, [sentences, candidates + beam]: the candidates, then those that do not end, both best first. For each:
    // its total, the log-probability of its last token, the index of its hypothesis, and that token.
    float *new_totals, *log_probs;
    int64_t *parents, *tokens;
    int64_t n_ended;  // candidates of all sentences that end
};

static void extend(Extension& e) {
    e.n_ended = 0;
    std::vector<float> values(e.per_hypothesis), log_probs(e.live * e.per_hypothesis);
    std::vector<int64_t> tokens(e.live * e.per_hypothesis);
    std::vector<Candidate> candidates(e.live * e.per_hypothesis);
    for (int64_t s = 0; s < e.sentences; s++) {
        for (int64_t row = 0; row < e.live; row++) {
            const float* logits = e.logits + (s * e.live + row) * e.vocabulary;
            const float normalizer = e.normalizers[s * e.live + row], total = e.totals[s * e.live + row];
            best(logits, e.vocabulary, e.per_hypothesis, values.data(), tokens.data() + row * e.per_hypothesis);
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
