// A mixture of experts: chooses experts, and multiplies each chosen one by its rows.
//
// Pairs of a row and an expert are sorted by expert. One list of products computes the inner features of all of them, and
// a second one the outputs, so that threads wait for each other once per list, and not once per expert.
#include "experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "activations.h"
#include "block_linear.h"
#include "floats.h"
#include "kept.h"
#include "linear.h"
#include "quantized_linear.h"

namespace {

constexpr int64_t CHUNK = 2048;             // pairs at once, which bounds the memory between products
constexpr int64_t PARALLEL_WORK = 1 << 16;  // elements to copy or add, below which waking other threads does not pay

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// -- routing ----------------------------------------------------------------------------------------------------------

// Marks the best `count` of all scores that are not marked yet. NaN is no better than anything.
inline void mark_best(const float* scores, int64_t size, int64_t count, bool* marks) {
    for (; count > 0; --count) {
        int64_t best = -1;
        for (int64_t i = 0; i < size; ++i)
            if (!marks[i] && (best < 0 || scores[i] > scores[best])) best = i;
        marks[best] = true;
    }
}

// Makes exponentials of values that sum to 1.
inline void softmax(float* values, int64_t size) {
    float most = -std::numeric_limits<float>::infinity(), sum = 0;
    for (int64_t i = 0; i < size; ++i) most = std::fmax(values[i], most);
    for (int64_t i = 0; i < size; ++i) sum += values[i] = std::exp(values[i] - most);
    for (int64_t i = 0; i < size; ++i) values[i] /= sum;
}

inline float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// A thread's memory for one row.
struct Choice {
    explicit Choice(const QuireRouting& call)
        : scores(size_t(call.num_experts)), ranks(scores), groups(size_t(call.num_groups)),
          marks(new bool[size_t(call.num_experts + call.num_groups)]) {}
    ~Choice() { delete[] marks; }
    Choice(const Choice&) = delete;

    std::vector<float> scores, ranks, groups;
    bool* marks;
};

// Gives experts outside of the best groups the least rank.
inline void keep_best_groups(const QuireRouting& call, Choice& choice) {
    const int64_t size = call.num_experts / call.num_groups;
    bool* kept = choice.marks + call.num_experts;
    for (int64_t group = 0; group < call.num_groups; ++group) {
        const float* ranks = choice.ranks.data() + group * size;
        std::fill_n(choice.marks, size, false);
        mark_best(ranks, size, call.num_of_group, choice.marks);
        choice.groups[size_t(group)] = 0;
        for (int64_t i = 0; i < size; ++i)
            if (choice.marks[i]) choice.groups[size_t(group)] += ranks[i];
    }
    std::fill_n(kept, call.num_groups, false);
    mark_best(choice.groups.data(), call.num_groups, call.num_chosen_groups, kept);
    for (int64_t i = 0; i < call.num_experts; ++i)
        if (!kept[i / size]) choice.ranks[size_t(i)] = -std::numeric_limits<float>::infinity();
}

// Chooses a row's experts, ascending, and their weights.
template <class T>
void route(const QuireRouting& call, int64_t row, Choice& choice, int32_t* experts, float* weights) {
    float* scores = choice.scores.data();
    const auto read = [&](const auto* logits) {
        for (int64_t i = 0; i < call.num_experts; ++i) scores[i] = to_float(logits[row * call.num_experts + i]);
    };
    if (call.has_float_logits)
        read(static_cast<const float*>(call.logits));
    else
        read(static_cast<const T*>(call.logits));
    if (call.scores == QUIRE_SOFTMAX) softmax(scores, call.num_experts);
    if (call.scores == QUIRE_SIGMOID)
        for (int64_t i = 0; i < call.num_experts; ++i) scores[i] = sigmoid(scores[i]);
    for (int64_t i = 0; i < call.num_experts; ++i)
        choice.ranks[size_t(i)] = scores[i] + (call.bias ? call.bias[i] : 0);
    if (call.num_groups > 1) keep_best_groups(call, choice);
    std::fill_n(choice.marks, call.num_experts, false);
    mark_best(choice.ranks.data(), call.num_experts, call.num_chosen, choice.marks);
    for (int64_t i = 0, n = 0; n < call.num_chosen; ++i)
        if (choice.marks[i]) {
            experts[n] = int32_t(i);
            weights[n++] = scores[i];
        }
    if (call.scores == QUIRE_SOFTMAX_OF_CHOSEN) softmax(weights, call.num_chosen);
    float sum = 1;
    if (call.normalizes) {
        sum = 1e-20f;
        for (int64_t n = 0; n < call.num_chosen; ++n) sum += weights[n];
    }
    for (int64_t n = 0; n < call.num_chosen; ++n)
        weights[n] = weights[n] / sum * call.scale * (call.factors ? call.factors[experts[n]] : 1);
}

// All pairs of rows and chosen experts, by expert, and then by row.
struct Pairs {
    int64_t count;
    std::vector<int64_t> ends;  // by expert
    int32_t* rows;
    float* weights;
};

template <class T>
Pairs make_pairs(const QuireExperts& call) {
    const QuireRouting& routing = call.routing;
    const int64_t chosen = routing.num_chosen, count = call.num_rows * chosen;
    static thread_local Kept kept_numbers, kept_weights;
    int32_t *rows = kept_numbers.of<int32_t>(2 * count), *experts = rows + count;
    float *weights = kept_weights.of<float>(2 * count), *unsorted = weights + count;
#pragma omp parallel num_threads(call.num_threads) if (call.num_threads > 1 && count * routing.num_experts > PARALLEL_WORK)
    {
        Choice choice(routing);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < call.num_rows; ++row)
            route<T>(routing, row, choice, experts + row * chosen, unsorted + row * chosen);
    }
    std::vector<int64_t> ends(size_t(routing.num_experts) + 1);
    for (int64_t i = 0; i < count; ++i) ++ends[size_t(experts[i]) + 1];
    for (size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
    for (int64_t i = 0; i < count; ++i) {
        const int64_t at = ends[size_t(experts[i])]++;
        rows[at] = int32_t(i / chosen);
        weights[at] = unsorted[i];
    }
    ends.pop_back();
    return {count, std::move(ends), rows, weights};
}

// -- products ---------------------------------------------------------------------------------------------------------

inline void multiply_all(const QuireLinear* calls, int64_t count, int64_t num_threads, const float*) {
    quire_linears_float32(calls, count, num_threads);
}
inline void multiply_all(const QuireLinear* calls, int64_t count, int64_t num_threads, const BFloat16*) {
    quire_linears_bfloat16(calls, count, num_threads);
}
inline void multiply_all(const QuireQuantizedLinear* calls, int64_t count, int64_t num_threads, const float*) {
    quire_quantized_linears_float32(calls, count, num_threads);
}
inline void multiply_all(const QuireQuantizedLinear* calls, int64_t count, int64_t num_threads, const BFloat16*) {
    quire_quantized_linears_bfloat16(calls, count, num_threads);
}

inline void multiply_all(const QuireBlockLinear* calls, int64_t count, int64_t num_threads, const float*) {
    quire_block_linears_float32(calls, count, num_threads);
}
inline void multiply_all(const QuireBlockLinear* calls, int64_t count, int64_t num_threads, const BFloat16*) {
    quire_block_linears_bfloat16(calls, count, num_threads);
}

// An expert's pairs of a chunk.
struct Group {
    int64_t expert, first, count;
};

// out[i] = each group's rows of x by its expert's layer, `inputs` to `outputs` features. All rows are the same one, if
// `is_shared`.
template <class Call, class T>
void multiply_groups(const Call* layers, const std::vector<Group>& groups, const T* x, int64_t inputs, bool is_shared,
                     T* out, int64_t outputs, int64_t num_threads) {
    std::vector<Call> calls;
    calls.reserve(groups.size());
    for (const Group& group : groups) {
        Call& call = calls.emplace_back(layers[group.expert]);
        call.x = x + (is_shared ? 0 : group.first * inputs);
        call.x_stride = inputs;
        call.num_rows = group.count;
        call.out = out + group.first * outputs;
    }
    multiply_all(calls.data(), int64_t(calls.size()), num_threads, x);
}
template <class T>
void multiply_groups(int32_t kind, const void* layers, const std::vector<Group>& groups, const T* x, int64_t inputs,
                     bool is_shared, T* out, int64_t outputs, int64_t num_threads) {
    const auto multiply = [&](auto* calls) {
        multiply_groups(calls, groups, x, inputs, is_shared, out, outputs, num_threads);
    };
    switch (kind) {
        case QUIRE_PANELS: return multiply(static_cast<const QuireLinear*>(layers));
        case QUIRE_QUANTIZED: return multiply(static_cast<const QuireQuantizedLinear*>(layers));
        case QUIRE_BLOCKS: return multiply(static_cast<const QuireBlockLinear*>(layers));
    }
}

// gate = gate(gate) * up
template <class T>
void gate_features(const QuireExperts& call, T* gate, const T* up, int64_t size) {
    const int32_t threads = size > PARALLEL_WORK ? call.num_threads : 1;
    if (call.gating == QUIRE_GELU_TANH)
        return map(gate, size, threads, [](Floats g, Floats u) { return gelu_tanh(g) * u; }, gate, up);
    const Floats limit = splat(call.limit);
    const float alpha = call.alpha;
    map(gate, size, threads, [=](Floats g, Floats u) {
        g = -max(-g, -limit);
        u = max(-max(-u, -limit), -limit);
        return gated(g, g * alpha) * (u + 1.0f);
    }, gate, up);
}

// sums[row] += weight * y of each pair in turn. Threads divide the columns.
template <class T>
void add_outputs(const Pairs& pairs, int64_t first, int64_t count, const T* y, int64_t hidden, float* sums,
                 int64_t num_threads) {
    const int64_t vectors = divide_up(hidden, W);
    const int64_t parts = count * hidden > PARALLEL_WORK ? smaller(num_threads, vectors) : 1;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int64_t part = 0; part < parts; ++part) {
        const int64_t begin = vectors * part / parts * W, end = smaller(vectors * (part + 1) / parts * W, hidden);
        for (int64_t i = 0; i < count; ++i) {
            const float weight = pairs.weights[first + i];
            const T* from = y + i * hidden;
            float* to = sums + pairs.rows[first + i] * hidden;
            int64_t at = begin;
            for (; at + W <= end; at += W) store(to + at, load_floats(to + at) + load_floats(from + at) * weight);
            for (; at < end; ++at) to[at] += to_float(from[at]) * weight;
        }
    }
}

// sums = the output of the expert of all rows, or zeros.
template <class T>
void begin_sums(const QuireExperts& call, float* sums) {
    const T *shared = static_cast<const T*>(call.shared), *gate = static_cast<const T*>(call.shared_gate);
    if (!shared) std::memset(sums, 0, size_t(call.num_rows * call.hidden) * sizeof(float));
    for (int64_t row = 0; shared && row < call.num_rows; ++row) {
        const float weight = gate ? sigmoid(to_float(gate[row])) : 1.0f;
        map(sums + row * call.hidden, call.hidden, 1, [=](Floats x) { return x * weight; }, shared + row * call.hidden);
    }
}

template <class T>
void run(const QuireExperts& call) {
    static thread_local Kept kept_x, kept_inner, kept_y, kept_sums;
    const Pairs pairs = make_pairs<T>(call);
    const int64_t hidden = call.hidden, most = smaller(CHUNK, pairs.count), num_threads = call.num_threads;
    const bool is_shared = call.num_rows == 1;
    T* x = is_shared ? nullptr : kept_x.of<T>(most * hidden);
    T *gate = kept_inner.of<T>(2 * most * call.inner), *up = gate + most * call.inner;
    T* y = kept_y.of<T>(most * hidden);
    float* sums = kept_sums.of<float>(call.num_rows * hidden);
    begin_sums<T>(call, sums);
    std::vector<Group> groups;
    int64_t expert = 0;
    for (int64_t first = 0; first < pairs.count; first += most) {
        const int64_t count = smaller(most, pairs.count - first);
        groups.clear();
        for (int64_t at = 0; at < count; at += groups.back().count) {
            while (pairs.ends[size_t(expert)] <= first + at) ++expert;
            groups.push_back({expert, at, smaller(pairs.ends[size_t(expert)] - first, count) - at});
        }
        const T* from = static_cast<const T*>(call.x);
        if (!is_shared) {
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1 && count * hidden > PARALLEL_WORK)
            for (int64_t i = 0; i < count; ++i)
                std::memcpy(x + i * hidden, from + pairs.rows[first + i] * call.x_stride, size_t(hidden) * sizeof(T));
            from = x;
        }
        multiply_groups(call.gate_kind, call.gate, groups, from, hidden, is_shared, gate, call.inner, num_threads);
        if (call.gating != QUIRE_IN_CALL) {
            multiply_groups(call.gate_kind, call.up, groups, from, hidden, is_shared, up, call.inner, num_threads);
            gate_features(call, gate, up, count * call.inner);
        }
        multiply_groups(call.down_kind, call.down, groups, gate, call.inner, false, y, hidden, num_threads);
        add_outputs(pairs, first, count, y, hidden, sums, num_threads);
    }
    map(static_cast<T*>(call.out), call.num_rows * hidden, 1, [](Floats sum) { return sum; }, sums);
}

}  // namespace

void quire_experts_float32(const QuireExperts* call) { run<float>(*call); }
void quire_experts_bfloat16(const QuireExperts* call) { run<BFloat16>(*call); }
