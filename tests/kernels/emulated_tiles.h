// AMX's tile instructions in plain AVX-512, for tests on processors without AMX: `g++ -include emulated_tiles.h`.
//
// After the operations of TDPBF16PS, TDPBSUD and tile loads in Intel's Software Developer's Manual: a product of bfloat16
// sums even and odd pairs apart, in order, with fused multiply-add; denormals are zero. Wrong shapes abort.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#define __AMX_INT8__ 1

namespace emulated {

struct Tile {
    alignas(64) uint8_t data[16][64];
    int rows, bytes;  // bytes per row
};
inline thread_local Tile tiles[8];

inline void check(bool holds) {
    if (!holds) std::abort();
}

inline void configure(const void* from) {
    const uint8_t* bytes = static_cast<const uint8_t*>(from);
    check(bytes[0] == 1 && bytes[1] == 0);
    for (int i = 0; i < 8; ++i) {
        tiles[i].rows = bytes[48 + i];
        tiles[i].bytes = bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8;
        check(tiles[i].rows <= 16 && tiles[i].bytes <= 64);
        std::memset(tiles[i].data, 0, sizeof tiles[i].data);
    }
}
inline void release() {
    for (Tile& tile : tiles) tile.rows = tile.bytes = 0;
}
inline void zero(int i) {
    check(tiles[i].rows);
    std::memset(tiles[i].data, 0, sizeof tiles[i].data);
}
inline void load(int i, const void* from, int64_t stride) {
    Tile& tile = tiles[i];
    check(tile.rows);
    std::memset(tile.data, 0, sizeof tile.data);
    for (int row = 0; row < tile.rows; ++row)
        std::memcpy(tile.data[row], static_cast<const char*>(from) + row * stride, size_t(tile.bytes));
}
inline void save(int i, void* to, int64_t stride) {
    const Tile& tile = tiles[i];
    check(tile.rows);
    for (int row = 0; row < tile.rows; ++row)
        std::memcpy(static_cast<char*>(to) + row * stride, tile.data[row], size_t(tile.bytes));
}
inline void check_shapes(const Tile& sums, const Tile& a, const Tile& b) {
    check(sums.rows && sums.rows == a.rows && a.bytes == 4 * b.rows && sums.bytes == b.bytes);
}

inline __m512 flush(__m512 x) {
    const __mmask16 is_denormal = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    return _mm512_mask_and_ps(x, is_denormal, x, _mm512_set1_ps(-0.0f));
}
inline __m512 lower(__m512i pairs) { return flush(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))); }
inline __m512 upper(__m512i pairs) { return flush(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_srli_epi32(pairs, 16), 16))); }

inline void multiply_bfloat16(int to, int left, int right) {
    Tile &sums = tiles[to], &a = tiles[left], &b = tiles[right];
    check_shapes(sums, a, b);
    for (int row = 0; row < sums.rows; ++row) {
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        for (int k = 0; k < a.bytes / 4; ++k) {
            int32_t pair;
            std::memcpy(&pair, a.data[row] + 4 * k, 4);
            const __m512i x = _mm512_set1_epi32(pair), y = _mm512_load_si512(b.data[k]);
            even = flush(_mm512_fmadd_ps(lower(x), lower(y), even));
            odd = flush(_mm512_fmadd_ps(upper(x), upper(y), odd));
        }
        const __m512 before = flush(_mm512_load_ps(sums.data[row]));
        _mm512_store_ps(sums.data[row], flush(_mm512_add_ps(before, flush(_mm512_add_ps(even, odd)))));
    }
}

// Signed bytes by unsigned bytes.
inline void multiply_bytes(int to, int left, int right) {
    Tile &sums = tiles[to], &a = tiles[left], &b = tiles[right];
    check_shapes(sums, a, b);
    for (int row = 0; row < sums.rows; ++row)
        for (int k = 0; k < a.bytes; ++k)
            for (int column = 0; column < sums.bytes / 4; ++column) {
                int32_t sum;
                std::memcpy(&sum, sums.data[row] + 4 * column, 4);
                sum += int8_t(a.data[row][k]) * b.data[k / 4][4 * column + k % 4];
                std::memcpy(sums.data[row] + 4 * column, &sum, 4);
            }
}

}  // namespace emulated

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbsud
#define _tile_loadconfig emulated::configure
#define _tile_release emulated::release
#define _tile_loadd emulated::load
#define _tile_stored emulated::save
#define _tile_zero emulated::zero
#define _tile_dpbf16ps emulated::multiply_bfloat16
#define _tile_dpbsud emulated::multiply_bytes
