// The matrix product of attention: a few rows by panels of columns, accumulated in registers.
//
// Its right side consists of words. A word is a float32 number, a bfloat16 number that was widened when it was packed, or
// a pair from two consecutive rows. Pairs are what products of bfloat16 (AVX-512, AMX) take; other levels widen them at
// each use, which costs less for few rows and has the same bits.
#pragma once

#include "amx.h"
#include "vectors.h"

namespace {

constexpr int PANEL = 2 * W;  // columns

// Most numbers in a word.
template <class T>
constexpr int EACH = 4 / sizeof(T);

#if defined(__AVX512BF16__)
constexpr bool HAS_PAIRS = true;
template <class T>
using Left = T;
#else
constexpr bool HAS_PAIRS = false;
template <class T>
using Left = float;
#endif

#if defined(__AMX_BF16__)
constexpr bool HAS_TILES = true;
#else
constexpr bool HAS_TILES = false;
#endif
template <class T>
constexpr bool USES_TILES = HAS_TILES && sizeof(T) == 2;

// Depth is a multiple of it, zero-padded.
template <class T>
constexpr int64_t DEPTH = USES_TILES<T> ? 32 : EACH<T>;

// Rows of one product, for which the left side and the sums must have memory.
#if defined(__AVX512F__)
template <class T>
constexpr int MAX_ROWS = USES_TILES<T> ? 16 : 8;  // 16 of 32 registers hold sums
#else
template <class T>
constexpr int MAX_ROWS = 6;  // 12 of 16
#endif

// A vector of words with `each` numbers, to be multiplied by a row's numbers of the same depth.
template <class T, int each>
struct Column {
    Floats numbers;
    explicit Column(const uint32_t* from) : numbers(load<Floats>(from)) {}
    void add_to(Floats& sum, const float* x) const { sum += splat(*x) * numbers; }
};

template <>
struct Column<BFloat16, 2> {
#if defined(__AVX512BF16__)
    Words pairs;
    explicit Column(const uint32_t* from) : pairs(load<Words>(from)) {}
    void add_to(Floats& sum, const BFloat16* x) const {
        const Words both = load<uint32_t>(x) - Words{};
        sum = bits_as<Floats>(_mm512_dpbf16_ps(bits_as<__m512>(sum), bits_as<__m512bh>(pairs), bits_as<__m512bh>(both)));
    }
#else
    Floats first, second;
    explicit Column(const uint32_t* from) {
        const Words pairs = load<Words>(from);
        first = bits_as<Floats>(pairs << 16);
        second = bits_as<Floats>(pairs & 0xffff0000u);
    }
    void add_to(Floats& sum, const float* x) const {
        sum += splat(x[0]) * first;
        sum += splat(x[1]) * second;
    }
#endif
};

// c[rows][vectors] = factor[row] * c + a[rows][depth] * b[depth][vectors].
template <class T, int each, int rows, int vectors, class EachStep>
inline void multiply_panel(const Left<T>* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, float* c,
                           int64_t c_stride, int64_t depth, const float* factor, EachStep& each_step) {
    Floats sum[rows][vectors] = {};
    if (factor)
#pragma GCC unroll 16
        for (int row = 0; row < rows; ++row)
#pragma GCC unroll 4
            for (int i = 0; i < vectors; ++i) sum[row][i] = factor[row] * load_floats(c + row * c_stride + i * W);
    for (int64_t step = 0; step < depth; step += each, b += b_stride) {
        each_step();
#pragma GCC unroll 4
        for (int i = 0; i < vectors; ++i) {
            const Column<T, each> column(b + i * W);
#pragma GCC unroll 16
            for (int row = 0; row < rows; ++row) column.add_to(sum[row][i], a + row * a_stride + step);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row)
#pragma GCC unroll 4
        for (int i = 0; i < vectors; ++i) store(c + row * c_stride + i * W, sum[row][i]);
}

// Not inlined, so that each number of rows is compiled once.
template <class T, int each, int rows, class EachStep>
__attribute__((noinline)) void multiply_rows(const Left<T>* a, int64_t a_stride, const uint32_t* b, int64_t b_stride,
                                             float* c, int64_t c_stride, int64_t depth, int64_t columns,
                                             const float* factor, EachStep& each_step) {
    int64_t column = 0;
    if constexpr (2 * rows <= MAX_ROWS<T>)  // few rows would wait for their own sums
        for (; column + 2 * PANEL <= columns; column += 2 * PANEL)
            multiply_panel<T, each, rows, 4>(a, a_stride, b + column, b_stride, c + column, c_stride, depth, factor,
                                       each_step);
    for (; column < columns; column += PANEL)
        multiply_panel<T, each, rows, 2>(a, a_stride, b + column, b_stride, c + column, c_stride, depth, factor, each_step);
}

// Calls body(std::integral_constant<int, rows>) for a number of rows known at run time.
template <int rows, class Body>
inline void with_rows(int64_t count, Body&& body) {
    if (count >= rows) return body(std::integral_constant<int, rows>{});
    if constexpr (rows > 1) with_rows<rows - 1>(count, body);
}

// c[rows][columns] = factor[row] * c + a[rows][depth] * b[depth][columns], for at most MAX_ROWS rows and whole panels of
// columns. The strides of a and c count numbers, that of b words. Without `factor`, c is not read. Calls `each_step` once
// per step of depth and panel.
template <class T, int each, class EachStep>
inline void multiply(const Left<T>* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, float* c,
                     int64_t c_stride, int64_t depth, int64_t columns, const float* factor, int64_t rows,
                     EachStep& each_step) {
#if defined(__AMX_BF16__)
    if constexpr (USES_TILES<T>)
        return multiply_tiles(a, a_stride, b, b_stride, c, c_stride, depth, columns, factor, rows);
#endif
    with_rows<MAX_ROWS<T>>(rows, [&](auto known) {
        multiply_rows<T, each, known>(a, a_stride, b, b_stride, c, c_stride, depth, columns, factor, each_step);
    });
}

}  // namespace
