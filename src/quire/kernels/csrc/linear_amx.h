// linear_tile.h for AMX and up to 32 rows: products of tiles of 16 rows by 32 inputs with 32 inputs by 16 outputs.
#pragma once

#include "linear_tile.h"
#include "tiles.h"

#if defined(__AMX_BF16__)

namespace {

// Tile registers: 0 to 3 hold sums, 4 and 5 rows, 6 and 7 the halves of a panel.
struct AmxTile {
    using Left = BFloat16;
    static constexpr int64_t ROWS = 16, MOST = 32;
    static constexpr int64_t DEPTH_PART = 224;  // part of a panel that stays in the L1 cache for all rows

    static int64_t size(int64_t rows, int64_t depth) { return round_up(rows, ROWS) * depth; }

    // left[row / 16][depth / 32][row % 16][32]. Rows after the last one hold anything: they change no other row.
    static void lay_out(const BFloat16* x, int64_t x_stride, int64_t rows, int64_t count, int64_t depth, BFloat16* left) {
        for (int64_t row = 0; row < rows; ++row, x += x_stride) {
            BFloat16* to = left + row / ROWS * ROWS * depth + row % ROWS * 32;
            int64_t at = 0;
            for (; at + 32 <= count; at += 32) std::memcpy(to + at * ROWS, x + at, 64);
            if (at < depth) {
                std::memcpy(to + at * ROWS, x + at, size_t(count - at) * sizeof *x);
                std::memset(to + at * ROWS + count - at, 0, size_t(depth - count) * sizeof *x);
            }
        }
    }

    // Adds the inputs [first, end) to the sums, or starts new sums. Prefetches `lines` lines from `ahead` in each step.
    static void multiply(const BFloat16* left, int64_t row, int64_t rows, int64_t depth, int64_t first, int64_t end,
                         bool adds, const BFloat16* panel, float* sums, const char* ahead, int64_t lines) {
        left += row * depth + first * ROWS;
        panel += first * OUTPUTS;
        if (rows > ROWS)
            add_up<2>(left, left + ROWS * depth, end - first, panel, sums, adds, ahead, lines);
        else
            add_up<1>(left, nullptr, end - first, panel, sums, adds, ahead, lines);
    }

  private:
    template <int tiles>
    static void add_up(const BFloat16* upper, const BFloat16* lower, int64_t depth, const BFloat16* panel, float* sums,
                       bool adds, const char* ahead, int64_t lines) {
        constexpr int64_t stride = OUTPUTS * sizeof(float);
        float* lower_sums = sums + ROWS * OUTPUTS;
        finish_stores();
        if (adds) {
            _tile_loadd(0, sums, stride);
            _tile_loadd(1, sums + W, stride);
            if (tiles > 1) _tile_loadd(2, lower_sums, stride);
            if (tiles > 1) _tile_loadd(3, lower_sums + W, stride);
        } else {
            _tile_zero(0);
            _tile_zero(1);
            if (tiles > 1) _tile_zero(2);
            if (tiles > 1) _tile_zero(3);
        }
        for (int64_t step = 0; step < depth; step += 32) {
            for (int64_t line = 0; line < lines; ++line, ahead += 64) __builtin_prefetch(ahead);
            // All loads first: a product that waits for its tile blocks later loads.
            _tile_loadd(6, panel, stride);
            _tile_loadd(4, upper, 64);
            _tile_loadd(7, panel + 2 * W, stride);
            if (tiles > 1) _tile_loadd(5, lower, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (tiles > 1) {
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
                lower += ROWS * 32;
            }
            upper += ROWS * 32;
            panel += OUTPUTS * 32;
        }
        _tile_stored(0, sums, stride);
        _tile_stored(1, sums + W, stride);
        if (tiles > 1) _tile_stored(2, lower_sums, stride);
        if (tiles > 1) _tile_stored(3, lower_sums + W, stride);
    }
};

}  // namespace

#endif
