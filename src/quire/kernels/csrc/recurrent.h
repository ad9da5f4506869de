// Parts of kernels with recurrent states: where the states of runs lie, short causal convolutions, and the order of
// sequences.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "floats.h"
#include "states.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

constexpr int64_t CHUNK = 16;               // tokens
constexpr int64_t PARALLEL_WORK = 1 << 16;  // elements of states, below which waking other threads does not pay

// a * b + c, rounded once where the level can.
inline Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return bits_as<Floats>(_mm512_fmadd_ps(bits_as<__m512>(a), bits_as<__m512>(b), bits_as<__m512>(c)));
#elif defined(__AVX2__)
    return bits_as<Floats>(_mm256_fmadd_ps(bits_as<__m256>(a), bits_as<__m256>(b), bits_as<__m256>(c)));
#elif defined(__aarch64__)
    return bits_as<Floats>(vfmaq_f32(bits_as<float32x4_t>(c), bits_as<float32x4_t>(a), bits_as<float32x4_t>(b)));
#else
    return a * b + c;
#endif
}

struct Run {
    int64_t first, end, source, target;
};

// A layer's states by block.
struct States {
    const QuireStatePlan& plan;
    float* first;  // of block 0

    float* of(int64_t block) const {
        return reinterpret_cast<float*>(reinterpret_cast<char*>(first) + block * plan.block_stride);
    }
};

// Some channels of a convolution over a token's input and the HISTORY before it, which a state begins with:
// [HISTORY][channels].
template <int64_t HISTORY>
struct Window {
    int64_t first, size, channels;  // the first channel, their number, that of the layer
    float* inputs;                  // [HISTORY + CHUNK][size]

    // Begins with the inputs before a sequence's first row, whose rows are `stride` apart, or zeros.
    void begin(const float* history, int64_t stride) const {
        for (int64_t i = 0; i < HISTORY; ++i) {
            if (history)
                std::memcpy(inputs + i * size, history + i * stride, size_t(size) * sizeof(float));
            else
                std::memset(inputs + i * size, 0, size_t(size) * sizeof(float));
        }
    }

    // Convolves the next tokens with `weight`, [HISTORY + 1][channels]. Token i has the inputs input(i, at), and its
    // sums go to output(i, at, sum), by vectors of channels from `at`.
    template <class Input, class Output>
    void next(int64_t count, const float* weight, Input&& input, Output&& output) const {
        weight += first;
        for (int64_t i = 0; i < count; ++i)
            for (int64_t at = 0; at < size; at += W) {
                const Floats given = input(i, at);
                float* own = inputs + (HISTORY + i) * size + at;
                store_floats(own, given);
                Floats sum = given * load_floats(weight + HISTORY * channels + at);
                for (int64_t tap = 0; tap < HISTORY; ++tap)
                    sum = fused(load_floats(own + (tap - HISTORY) * size), load_floats(weight + tap * channels + at),
                                sum);
                output(i, at, sum);
            }
        std::memmove(inputs, inputs + count * size, size_t(HISTORY * size) * sizeof(float));
    }

    // Writes the last inputs to a state.
    void save(float* state) const {
        for (int64_t i = 0; i < HISTORY; ++i)
            std::memcpy(state + i * channels + first, inputs + i * size, size_t(size) * sizeof(float));
    }
};

// Whether a run of another sequence reads or writes what these do.
inline bool conflicts(const Run* begin, const Run* end, const Run& run) {
    for (; begin < end; ++begin)
        if (begin->target == run.source || begin->target == run.target || begin->source == run.target) return true;
    return false;
}

// Calls compute(starts) for sequences that do not read each other's states, in order; `starts` are their first runs, and
// the end.
template <class Compute>
void each_group(const QuireStatePlan& plan, Compute&& compute) {
    const Run *first = reinterpret_cast<const Run*>(plan.runs), *end = first + plan.num_runs;
    std::vector<const Run*> starts;
    const Run* chain = first;  // of one sequence
    for (const Run* run = first; run <= end; ++run) {
        const bool continues = run > first && run < end && run->source == run[-1].target && run->first == run[-1].end;
        if (!continues) chain = run;
        if (run > first && (run == end || conflicts(first, chain, *run))) {
            starts.push_back(run);
            compute(starts);
            starts.clear();
            first = chain = run;
        }
        if (run == chain) starts.push_back(run);
    }
}

inline int64_t num_rows(const QuireStatePlan& plan) {
    const Run* runs = reinterpret_cast<const Run*>(plan.runs);
    int64_t count = 0;
    for (int64_t i = 0; i < plan.num_runs; ++i) count += runs[i].end - runs[i].first;
    return count;
}

}  // namespace
