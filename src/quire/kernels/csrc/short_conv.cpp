// The gated short convolution. Threads have sequences and tiles of channels of their own.
#include "short_conv.h"

#include "recurrent.h"

namespace {

constexpr int64_t HISTORY = 2;
constexpr int64_t TILE = 64;  // channels

// Computes a sequence's runs in the channels of a window.
template <class T>
void compute(const QuireShortConv& call, const States& states, const Run* begin, const Run* end,
             const Window<HISTORY>& window) {
    const auto *b = static_cast<const T*>(call.b), *c = static_cast<const T*>(call.c),
               *x = static_cast<const T*>(call.x);
    T* out = static_cast<T*>(call.out) + window.first;
    window.begin(begin->source < 0 ? nullptr : states.of(begin->source) + window.first, call.channels);
    for (const Run* run = begin; run < end; ++run) {
        for (int64_t row = run->first; row < run->end; row += CHUNK) {
            const auto place = [&](int64_t i, int64_t at) { return (row + i) * call.row_stride + window.first + at; };
            window.next(
                std::min(CHUNK, run->end - row), call.conv,
                [&](int64_t i, int64_t at) { return load_floats(b + place(i, at)) * load_floats(x + place(i, at)); },
                [&](int64_t i, int64_t at, Floats sum) {
                    if (call.bias) sum += load_floats(call.bias + window.first + at);
                    store_exact(out + (row + i) * call.channels + at, load_floats(c + place(i, at)) * sum);
                });
        }
        window.save(states.of(run->target));
    }
}

template <class T>
void compute_all(const QuireShortConv& call) {
    const States states{*call.plan, call.states};
    const bool is_large = num_rows(*call.plan) * call.channels > PARALLEL_WORK;
    const int32_t num_threads = is_large ? int32_t(call.plan->num_threads) : 1;
    each_group(*call.plan, [&](const std::vector<const Run*>& starts) {
        const int64_t num_chains = int64_t(starts.size()) - 1, num_tiles = divide_up(call.channels, TILE);
#pragma omp parallel for schedule(static) num_threads(num_threads) if (num_threads > 1)
        for (int64_t i = 0; i < num_chains * num_tiles; ++i) {
            const int64_t chain = i / num_tiles, first = i % num_tiles * TILE;
            float inputs[(HISTORY + CHUNK) * TILE];
            compute<T>(call, states, starts[size_t(chain)], starts[size_t(chain) + 1],
                       {first, std::min(TILE, call.channels - first), call.channels, inputs});
        }
    });
}

}  // namespace

void quire_short_conv_float32(const QuireShortConv* call) { compute_all<float>(*call); }
void quire_short_conv_bfloat16(const QuireShortConv* call) { compute_all<BFloat16>(*call); }
