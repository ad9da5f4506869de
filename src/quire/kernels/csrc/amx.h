// AMX: eight tile registers of 16 rows of 64 bytes. The product of two is added to a third.
// Each word of the right side is a pair of adjacent depths.
#pragma once

#if defined(__AMX_BF16__)

#include "tiles.h"
#include "vectors.h"

namespace {

// c[16][columns] = factor[row] * c + a[16][depth] * b[depth / 2][columns] of pairs; only `rows` rows matter. Depth and
// columns are multiples of 32. Without `factor`, c is not read.
inline void multiply_tiles(const BFloat16* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, float* c,
                           int64_t c_stride, int64_t depth, int64_t columns, const float* factor, int64_t rows) {
    if (factor)
        for (int64_t row = 0; row < rows; ++row)
            if (factor[row] != 1.0f)
                for (float* at = c + row * c_stride; at < c + row * c_stride + columns; at += W)
                    store(at, load_floats(at) * factor[row]);
    finish_stores();
    const int64_t a_bytes = a_stride * 2, b_bytes = b_stride * 4, c_bytes = c_stride * 4;
    int64_t column = 0;
    for (; column + 64 <= columns; column += 64) {
        float* to = c + column;
        if (factor) {
            _tile_loadd(0, to, c_bytes);
            _tile_loadd(1, to + 16, c_bytes);
            _tile_loadd(2, to + 32, c_bytes);
            _tile_loadd(3, to + 48, c_bytes);
        } else {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
        }
        for (int64_t step = 0; step < depth; step += 32) {
            const uint32_t* from = b + step / 2 * b_stride + column;
            _tile_loadd(4, a + step, a_bytes);
            _tile_loadd(5, from, b_bytes);
            _tile_dpbf16ps(0, 4, 5);
            _tile_loadd(6, from + 16, b_bytes);
            _tile_dpbf16ps(1, 4, 6);
            _tile_loadd(7, from + 32, b_bytes);
            _tile_dpbf16ps(2, 4, 7);
            _tile_loadd(5, from + 48, b_bytes);
            _tile_dpbf16ps(3, 4, 5);
        }
        _tile_stored(0, to, c_bytes);
        _tile_stored(1, to + 16, c_bytes);
        _tile_stored(2, to + 32, c_bytes);
        _tile_stored(3, to + 48, c_bytes);
    }
    for (; column < columns; column += 32) {
        float* to = c + column;
        if (factor) {
            _tile_loadd(0, to, c_bytes);
            _tile_loadd(1, to + 16, c_bytes);
        } else {
            _tile_zero(0);
            _tile_zero(1);
        }
        for (int64_t step = 0; step < depth; step += 32) {
            const uint32_t* from = b + step / 2 * b_stride + column;
            _tile_loadd(4, a + step, a_bytes);
            _tile_loadd(5, from, b_bytes);
            _tile_dpbf16ps(0, 4, 5);
            _tile_loadd(6, from + 16, b_bytes);
            _tile_dpbf16ps(1, 4, 6);
        }
        _tile_stored(0, to, c_bytes);
        _tile_stored(1, to + 16, c_bytes);
    }
}

// Computes scores[row][0..15] of 16 contiguous keys where they lie, in the order of multiply_tiles: keys are the left
// side. queries[head_dim / 2][16]: pairs of dimensions; head_dim is a multiple of 32.
inline void score_keys(const BFloat16* keys, int64_t head_dim, const uint32_t* queries, int64_t rows, float* scores,
                       int64_t stride) {
    alignas(64) float by_key[16][16];
    finish_stores();
    _tile_zero(0);
    for (int64_t dim = 0; dim < head_dim; dim += 32) {
        _tile_loadd(4, keys + dim, head_dim * 2);
        _tile_loadd(5, queries + dim / 2 * 16, 64);
        _tile_dpbf16ps(0, 4, 5);
    }
    _tile_stored(0, by_key, 64);
    finish_stores();
    Words lanes[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) lanes[i] = load<Words>(by_key[i]);
    transpose(lanes);
    for (int64_t row = 0; row < rows; ++row) store(scores + row * stride, lanes[row]);
}

}  // namespace

#endif
