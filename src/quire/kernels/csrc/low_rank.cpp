// Low-rank adapters: two products of float32 by blocks of rows, and their sum with the layer's output.
#include "low_rank.h"

#include <algorithm>
#include <type_traits>

#include "kept.h"
#include "linear.h"
#include "sizes.h"
#include "vectors.h"

namespace {

constexpr int64_t BLOCK_ROWS = 64;  // their float32 outputs stay in the L2 cache

template <class T>
void widen(const T* from, int64_t size, float* to) {
    int64_t at = 0;
    for (; at + W <= size; at += W) store_floats(to + at, load_floats(from + at));
    for (; at < size; ++at) to[at] = to_float(from[at]);
}

template <class T>
void add(const float* from, int64_t size, T* to) {
    int64_t at = 0;
    for (; at + W <= size; at += W) store_floats(to + at, load_floats(to + at) + load_floats(from + at));
    for (; at < size; ++at) from_float(to + at, to_float(to[at]) + from[at]);
}

template <class T>
void run(const QuireLowRank& call) {
    static thread_local Kept kept_x, kept_sums, kept_out;
    const int64_t most = std::min(BLOCK_ROWS, call.num_rows);
    float* wide = std::is_same_v<T, float> ? nullptr : kept_x.of<float>(most * call.in_features);
    float* sums = kept_sums.of<float>(most * call.rank);
    float* out = kept_out.of<float>(most * call.out_features);
    for (int64_t first = 0; first < call.num_rows; first += BLOCK_ROWS) {
        const int64_t rows = std::min(BLOCK_ROWS, call.num_rows - first);
        const T* x = static_cast<const T*>(call.x) + first * call.x_stride;
        for (int64_t row = 0; wide && row < rows; ++row)
            widen(x + row * call.x_stride, call.in_features, wide + row * call.in_features);
        const void* from = wide ? static_cast<const void*>(wide) : x;
        const int64_t stride = wide ? call.in_features : call.x_stride;
        const QuireLinear down{from,    stride,  rows,    call.in_features, call.rank, call.down, nullptr,
                               nullptr, nullptr, sums,    call.rank,        0,         call.num_threads};
        quire_linear_float32(&down);
        const QuireLinear up{sums,    call.rank, rows, call.rank,         call.out_features, call.up, nullptr,
                             nullptr, nullptr,   out,  call.out_features, 0,                 call.num_threads};
        quire_linear_float32(&up);
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
        for (int64_t row = 0; row < rows; ++row)
            add(out + row * call.out_features, call.out_features,
                static_cast<T*>(call.y) + (first + row) * call.y_stride);
    }
}

}  // namespace

void quire_low_rank_float32(const QuireLowRank* call) { run<float>(*call); }
void quire_low_rank_bfloat16(const QuireLowRank* call) { run<BFloat16>(*call); }
