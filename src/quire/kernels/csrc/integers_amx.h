// The integer product of integers.h with AMX, for prompts: 32 rows by a panel of 32 columns at once.
//
// Both sides already have the layout of tiles: 16 rows of 64 bytes of x, 16 steps by 16 columns of four bytes of a panel.
#pragma once

#include "integers.h"
#include "tiles.h"

#if defined(__AMX_INT8__)

namespace {

constexpr int TILE_SIDE = 16;
constexpr int BLOCK_ROWS = 2 * TILE_SIDE;

// sums[32][32] = x[32] by a panel, whose weights are stored plus 128. x must have 32 readable rows.
// Prefetches `lines` lines from `ahead` in each step.
inline void multiply_block(const int8_t* x, int64_t x_stride, const uint8_t* weights, int64_t groups, int32_t* sums,
                           const uint8_t* ahead, int64_t lines) {
    finish_stores();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t group = 0; group < groups; ++group, x += 64, weights += 64 * COLUMNS) {
        for (int64_t line = 0; line < lines; ++line, ahead += 64) __builtin_prefetch(ahead);
        // All loads first: a product that waits for its tile blocks later loads.
        _tile_loadd(4, x, x_stride);
        _tile_loadd(6, weights, BYTES);
        _tile_loadd(7, weights + 64, BYTES);
        _tile_loadd(5, x + TILE_SIDE * x_stride, x_stride);
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 4, 7);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
    }
    constexpr int64_t row_bytes = COLUMNS * sizeof(int32_t);
    _tile_stored(0, sums, row_bytes);
    _tile_stored(1, sums + TILE_SIDE, row_bytes);
    _tile_stored(2, sums + TILE_SIDE * COLUMNS, row_bytes);
    _tile_stored(3, sums + TILE_SIDE * COLUMNS + TILE_SIDE, row_bytes);
}

}  // namespace

#endif
