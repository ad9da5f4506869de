// Decoding with products of bfloat16 pairs, without AMX: keys and values are transposed in registers and used at once for
// the heads of a group. Packing them in memory (tile.h) pays only if several queries share them; both ways sum in the same
// order. With AMX, whose tiles have an order of their own, decoding packs as prompts do.
#pragma once

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)

#include "vectors.h"

namespace {

constexpr int PAIR_ROWS = 8;  // most rows at once
constexpr int LINE = 32;      // numbers in a cache line

inline void add_pairs(Floats& sum, Words pairs, uint32_t both) {
    sum = bits_as<Floats>(_mm512_dpbf16_ps(bits_as<__m512>(sum), bits_as<__m512bh>(pairs),
                                           bits_as<__m512bh>(_mm512_set1_epi32(int32_t(both)))));
}

// Computes scores[row][at] of 16 keys. keys: [16][head_dim]; queries: [head_dim / 2][PAIR_ROWS] pairs; ahead: memory of
// the keys' size, prefetched line by line, since all at once would fill the queue.
template <int rows>
inline void score_keys(const BFloat16* keys, int64_t head_dim, const uint32_t* queries, float* scores, int64_t stride,
                       const BFloat16* ahead) {
    Floats sum[rows] = {};
    for (int64_t word = 0; word < head_dim / 2; word += W, queries += W * PAIR_ROWS) {
        Words lanes[W];
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) lanes[i] = load<Words>(keys + i * head_dim + 2 * word);
        transpose(lanes);
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i, ahead += LINE) {
            ask_for(ahead);
#pragma GCC unroll 8
            for (int row = 0; row < rows; ++row) add_pairs(sum[row], lanes[i], queries[i * PAIR_ROWS + row]);
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row) store(scores + row * stride, sum[row]);
}

// Interleaves two rows of 32 numbers into pairs.
inline void interleave(const BFloat16* first, const BFloat16* second, Words (&pairs)[2]) {
    alignas(64) static constexpr uint16_t places[2][32] = {
        {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15,
         47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61,
         30, 62, 31, 63}};
    const __m512i a = load<__m512i>(first), b = load<__m512i>(second);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)
        pairs[i] = bits_as<Words>(_mm512_permutex2var_epi16(a, load<__m512i>(places[i]), b));
}

// Computes sums[rows][head_dim] of weighted values, 16 per piece, beside factor[row] times the earlier sums if there is a
// factor. weights: [rows][stride], piece after piece; ahead: one piece per piece, as above. head_dim is a multiple of
// 16 * vectors, and `row_size` the distance of values.
template <int rows, int vectors>
inline void sum_values(const BFloat16* const* pieces, const BFloat16* const* ahead, int64_t count, int64_t head_dim,
                       int64_t row_size, const BFloat16* weights, int64_t stride, float* sums, const float* factor) {
    for (int64_t dim = 0; dim < head_dim; dim += vectors * W) {
        Floats sum[rows][vectors] = {};
        if (factor)
#pragma GCC unroll 8
            for (int row = 0; row < rows; ++row)
#pragma GCC unroll 4
                for (int i = 0; i < vectors; ++i)
                    sum[row][i] = factor[row] * load_floats(sums + row * head_dim + dim + i * W);
        for (int64_t piece = 0; piece < count; ++piece) {
            const BFloat16 *values = pieces[piece] + dim, *line = ahead[piece] + 16 * dim;
            const BFloat16* weight = weights + piece * 16;
            for (int pair = 0; pair < 8; ++pair, values += 2 * row_size, weight += 2)
#pragma GCC unroll 2
                for (int i = 0; i < vectors; i += 2, line += 2 * LINE) {
                    ask_for(line);
                    ask_for(line + LINE);
                    Words pairs[2];
                    interleave(values + i * W, values + row_size + i * W, pairs);
#pragma GCC unroll 8
                    for (int row = 0; row < rows; ++row) {
                        const uint32_t both = load<uint32_t>(weight + row * stride);
                        add_pairs(sum[row][i], pairs[0], both);
                        add_pairs(sum[row][i + 1], pairs[1], both);
                    }
                }
        }
#pragma GCC unroll 8
        for (int row = 0; row < rows; ++row)
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) store(sums + row * head_dim + dim + i * W, sum[row][i]);
    }
}

}  // namespace
#endif
