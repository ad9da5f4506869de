// The one matrix product of attention: a few rows by two vectors of columns, accumulated in registers.
#pragma once

#include "vectors.h"

namespace {

constexpr int PANEL = 2 * W;  // columns
#if defined(__AVX512F__)
constexpr int MAX_ROWS = 8;  // 16 of 32 registers hold sums
#else
constexpr int MAX_ROWS = 6;  // 12 of 16
#endif

// c[rows][columns] = factor[row] * c + a[rows][depth] * b[depth][columns]; columns are whole panels.
// Without `factor`, c is not read. `each_step` is called once for each step of depth and panel. Not inlined, so that
// each number of rows is compiled once.
template <int rows, class EachStep>
__attribute__((noinline)) void multiply(const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c, int64_t c_stride,
                     int64_t depth, int64_t columns, const float* factor, EachStep& each_step) {
    for (int64_t column = 0; column < columns; column += PANEL) {
        Floats sum[rows][2] = {};
        if (factor)
            for (int row = 0; row < rows; ++row)
                for (int half = 0; half < 2; ++half)
                    sum[row][half] = factor[row] * load_floats(c + row * c_stride + column + half * W);
        for (int64_t step = 0; step < depth; ++step) {
            each_step();
            const Floats left = load_floats(b + step * b_stride + column);
            const Floats right = load_floats(b + step * b_stride + column + W);
            for (int row = 0; row < rows; ++row) {
                const Floats x = splat(a[row * a_stride + step]);
                sum[row][0] += x * left;
                sum[row][1] += x * right;
            }
        }
        for (int row = 0; row < rows; ++row)
            for (int half = 0; half < 2; ++half)
                store(c + row * c_stride + column + half * W, sum[row][half]);
    }
}

// Calls body(std::integral_constant<int, rows>) for a number of rows that is known only when it runs.
template <int rows = MAX_ROWS, class Body>
inline void with_rows(int64_t count, Body&& body) {
    if (count >= rows) return body(std::integral_constant<int, rows>{});
    if constexpr (rows > 1) with_rows<rows - 1>(count, body);
}

}  // namespace
