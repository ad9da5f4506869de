// AMX: eight tile registers of 16 rows of 64 bytes. The product of two is added to a third.
//
// Each word of a product's right side is a pair of adjacent depths. Tiles of prompts are packed that way. Decoding does
// not pack keys and values:
// * It multiplies keys by queries, so the left side has keys as stored in the cache.
// * Values are the right side as stored: a word is a pair of adjacent *dimensions* of one token, and a weight paired with
//   a zero selects the even or odd one.
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

// scores[parts][16][16] = keys by queries, for parts of 16 contiguous keys.
// queries[head_dim / 2][16]: pairs of dimensions. Calls `each_part` once per part.
template <class EachPart>
inline void score_tiles(const BFloat16* const* keys, int64_t parts, int64_t head_dim, const uint32_t* queries,
                        float* scores, EachPart&& each_part) {
    const int64_t bytes = head_dim * 2;
    finish_stores();
    for (int64_t part = 0; part < parts; part += 2, scores += 512) {
        const bool is_last = part + 1 == parts;
        const BFloat16 *left = keys[part], *right = keys[is_last ? part : part + 1];
        _tile_zero(0);
        _tile_zero(1);
        for (int64_t dim = 0; dim < head_dim; dim += 32) {
            _tile_loadd(4, queries + dim / 2 * 16, 64);
            _tile_loadd(5, left + dim, bytes);
            _tile_dpbf16ps(0, 5, 4);
            _tile_loadd(6, right + dim, bytes);
            _tile_dpbf16ps(1, 6, 4);
        }
        _tile_stored(0, scores, 64);
        each_part(part);
        if (is_last) return;
        _tile_stored(1, scores + 256, 64);
        each_part(part + 1);
    }
}

// sums[16][head_dim] = weights by values. In every 32 columns of the sums, even dimensions precede odd ones.
// even, odd[16][stride]: bfloat16 weights in the lower and upper half of a word.
template <class EachPart>
inline void sum_tiles(const uint32_t* even, const uint32_t* odd, int64_t stride, const BFloat16* const* values,
                      int64_t parts, int64_t head_dim, float* sums, EachPart&& each_part) {
    const int64_t bytes = head_dim * 2;
    finish_stores();
    for (int64_t dim = 0; dim < head_dim; dim += 64) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t part = 0; part < parts; ++part) {
            _tile_loadd(4, even + part * 16, stride * 4);
            _tile_loadd(5, odd + part * 16, stride * 4);
            _tile_loadd(6, values[part] + dim, bytes);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
            _tile_loadd(7, values[part] + dim + 32, bytes);
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
            if (dim == 0) each_part(part);
        }
        float* to = sums + dim;
        _tile_stored(0, to, head_dim * 4);
        _tile_stored(1, to + 16, head_dim * 4);
        _tile_stored(2, to + 32, head_dim * 4);
        _tile_stored(3, to + 48, head_dim * 4);
    }
}

}  // namespace

#endif
