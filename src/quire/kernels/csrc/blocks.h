// Weights in blocks: small integers with a scale, and maybe a minimum, per 16 or 32 inputs of an output feature.
//
// Weights are stored in panels of 32 output features (columns), which are read sequentially. A panel is a sequence of
// blocks, and a block a header followed by units of 32 inputs.
//   Header: the scales of 32 columns, then their minima. HALVES: float16 each, for one unit. SUPER: float16 each for 256
//   inputs, then a byte per group and column, a factor. EXPONENTS: a byte, the exponent of two. FLOATS: float32, and
//   minima as a byte each, the zero point.
//   Unit, 8 bits: [8 steps][32][4 inputs]. Otherwise nibbles [4][32][4], with step i in the lower and step i + 4 in the
//   upper halves of bytes; then the 5th bits [32][4], a bit per step, or the 5th and 6th bits [2][32][4], two per step.
// A weight is scale * (integer - OFFSET) + minimum; integers may be looked up in a table.
#pragma once

#include "block_linear.h"
#include "floats.h"
#include "integers.h"

namespace {

constexpr int UNIT = 32;        // inputs
constexpr int UNIT_STEPS = UNIT / STEP;
constexpr int VECTORS = COLUMNS / W;  // per step of a panel
typedef uint8_t Bytes __attribute__((vector_size(4 * W)));
typedef uint16_t Pairs __attribute__((vector_size(4 * W)));

enum Table { NO_TABLE, IQ4, MXFP4 };
constexpr uint8_t IQ4_TABLE[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
constexpr uint8_t MXFP4_TABLE[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

enum Scales { HALVES, SUPER, EXPONENTS, FLOATS };

inline Ints load_ints(const uint8_t* from) {
#if defined(__AVX512F__)
    return bits_as<Ints>(_mm512_cvtepu8_epi32(load<__m128i>(from)));
#else
    return load_ints(reinterpret_cast<const int8_t*>(from)) & 255;
#endif
}
inline Floats bytes_as_floats(const uint8_t* from) { return __builtin_convertvector(load_ints(from), Floats); }

inline Bytes look_up(const uint8_t* table, Bytes places) {
#if defined(__AVX512F__)
    return bits_as<Bytes>(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(load<__m128i>(table)), bits_as<__m512i>(places)));
#elif defined(__AVX2__)
    return bits_as<Bytes>(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load<__m128i>(table)), bits_as<__m256i>(places)));
#else
    Bytes found;
    for (int i = 0; i < 4 * W; ++i) found[i] = table[places[i]];
    return found;
#endif
}

// Shifts the bits that `mask` will keep, left for a positive number.
inline Bytes shift(Bytes x, int left, uint8_t mask) {
    const Pairs pairs = bits_as<Pairs>(x);
    return bits_as<Bytes>(left >= 0 ? pairs << left : pairs >> -left) & mask;
}

template <int bits, Scales scales, bool has_minima, int offset, int group = UNIT, Table table = NO_TABLE>
struct Format {
    static constexpr bool HAS_MINIMA = has_minima;
    static constexpr int BITS = bits, OFFSET = offset, GROUP_INPUTS = group;
    static constexpr bool IS_WIDE = bits == 8 || offset == 128;  // more than 7 bits
    static constexpr Scales SCALES = scales;
    static constexpr int BLOCK_UNITS = scales == SUPER ? 8 : scales == FLOATS ? 0 : 1;  // 0: known at run time
    static constexpr int BLOCK_GROUPS = scales == SUPER ? 256 / group : 1;
    static constexpr int KINDS = has_minima ? 2 : 1;  // of numbers per group
    static constexpr int UNIT_BYTES = bits * UNIT * COLUMNS / 8;
    static constexpr int HEADER_BYTES = COLUMNS * (scales == HALVES  ? 2 * KINDS
                                                   : scales == SUPER ? (2 + BLOCK_GROUPS) * KINDS
                                                   : scales == FLOATS ? 4 + (has_minima ? 1 : 0)
                                                                      : 1);

    // The integers of a step, for the columns of a vector.
    static Bytes integers(const uint8_t* unit, int step, int vector) {
        const int at = vector * int(sizeof(Bytes));
        if (bits == 8) return load<Bytes>(unit + step * BYTES + at);
        const uint8_t* nibbles = unit + step % 4 * BYTES + at;
        Bytes x = shift(load<Bytes>(nibbles), step < 4 ? 0 : -4, 15);
        const uint8_t* upper = unit + 4 * BYTES + at;
        if (bits == 5) x |= shift(load<Bytes>(upper), 4 - step, 16);
        if (bits == 6) x |= shift(load<Bytes>(upper + step / 4 * BYTES), 4 - 2 * (step % 4), 48);
        return table == NO_TABLE ? x : look_up(table == IQ4 ? IQ4_TABLE : MXFP4_TABLE, x);
    }

    // A group's scales, or minima, for the columns of a vector.
    static Floats scale(const uint8_t* header, int64_t group_index, int vector) {
        const int at = vector * W;
        if (scales == HALVES) return load_floats(halves(header) + at);
        if (scales == FLOATS) return load<Floats>(header + 4 * at);
        if (scales == SUPER) {
            const int8_t* factors = reinterpret_cast<const int8_t*>(header + 2 * COLUMNS * KINDS);
            return load_floats(halves(header) + at) *
                   __builtin_convertvector(load_ints(factors + group_index * COLUMNS + at), Floats);
        }
        const Ints exponents = load_ints(header + at) << 23, least = Ints{} + 0x400000;  // that of 0 is a denormal
        return bits_as<Floats>(exponents > least ? exponents : least) * 0.5f;            // the integers are doubled
    }
    static Floats minimum(const uint8_t* header, int64_t group_index, int vector) {
        const int at = vector * W;
        if (scales == HALVES) return load_floats(halves(header) + COLUMNS + at);
        if (scales == FLOATS) return -scale(header, 0, vector) * bytes_as_floats(header + 4 * COLUMNS + at);
        const uint8_t* factors = header + 2 * COLUMNS * 2 + (BLOCK_GROUPS + group_index) * COLUMNS;
        return -load_floats(halves(header) + COLUMNS + at) * bytes_as_floats(factors + at);
    }

  private:
    static const Float16* halves(const uint8_t* from) { return reinterpret_cast<const Float16*>(from); }
};

// Calls body with the Format of a type. Returns whether there is one.
template <class Body>
inline bool with_format(int64_t type, Body&& body) {
    switch (type) {
        case QUIRE_Q4_0: body(Format<4, HALVES, false, 8>{}); break;
        case QUIRE_Q4_1: body(Format<4, HALVES, true, 0>{}); break;
        case QUIRE_Q5_0: body(Format<5, HALVES, false, 16>{}); break;
        case QUIRE_Q5_1: body(Format<5, HALVES, true, 0>{}); break;
        case QUIRE_Q8_0: body(Format<8, HALVES, false, 128>{}); break;
        case QUIRE_Q4_K: body(Format<4, SUPER, true, 0>{}); break;
        case QUIRE_Q5_K: body(Format<5, SUPER, true, 0>{}); break;
        case QUIRE_Q6_K: body(Format<6, SUPER, false, 32, 16>{}); break;
        case QUIRE_IQ4_NL: body(Format<4, HALVES, false, 128, UNIT, IQ4>{}); break;
        case QUIRE_IQ4_XS: body(Format<4, SUPER, false, 128, UNIT, IQ4>{}); break;
        case QUIRE_MXFP4: body(Format<4, EXPONENTS, false, 16, UNIT, MXFP4>{}); break;
        case QUIRE_INT4: body(Format<4, FLOATS, true, 0>{}); break;
        case QUIRE_INT8: body(Format<8, FLOATS, false, 128>{}); break;
        default: return false;
    }
    return true;
}

template <class F>
inline int64_t block_units(const QuireBlockPart& part) {
    return F::BLOCK_UNITS ? F::BLOCK_UNITS : part.group / UNIT;
}
template <class F>
inline int64_t block_bytes(const QuireBlockPart& part) {
    return F::HEADER_BYTES + block_units<F>(part) * F::UNIT_BYTES;
}
template <class F>
inline int64_t panel_bytes(const QuireBlockPart& part, int64_t depth) {
    return divide_up(depth, block_units<F>(part) * UNIT) * block_bytes<F>(part);
}

// -- activations ------------------------------------------------------------------------------------------------------

// The scale of 32 quantized activations, and sums of their integers.
struct UnitScale {
    float scale, scaled_sum;
    int32_t sum, half_sums[2];
};

// Quantizes 32 activations with a scale that makes the largest 127. NaN or infinity makes the scale NaN.
template <class T>
inline UnitScale quantize_unit(const T* x, int8_t* to) {
    Floats values[UNIT / W], highest{}, poison{};
#pragma GCC unroll 8
    for (int i = 0; i < UNIT / W; ++i) {
        values[i] = load_floats(x + i * W);
        highest = max(absolute(values[i]), highest);
        poison += values[i] * 0.0f;
    }
    const float maximum = reduce_max(highest), bad = reduce_sum(poison);
    const float factor = maximum > 1e-30f ? 127.0f / maximum : 0.0f;
    Floats sums[2]{};
#pragma GCC unroll 8
    for (int i = 0; i < UNIT / W; ++i) {
        const Ints integers = round_to_ints(values[i] * factor);
        store_bytes(to + i * W, integers);
        sums[i * W / 16] += __builtin_convertvector(integers, Floats);
    }
    UnitScale unit{(maximum > 1e-30f ? maximum / 127.0f : 0.0f) + bad, bad, 0, {}};
    if (bad == bad) {
        for (int i = 0; i < 2; ++i) unit.half_sums[i] = int32_t(reduce_sum(sums[i]));
        unit.sum = unit.half_sums[0] + unit.half_sums[1];
        unit.scaled_sum = float(unit.sum) * unit.scale;
    }
    return unit;
}

// Quantized rows. A stride of an odd number of lines spreads them over the L1 cache's sets.
struct Units {
    const int8_t* values;     // [num_rows][stride]
    const UnitScale* scales;  // [num_rows][num_units]
    int64_t stride, num_units;
};

// -- products ---------------------------------------------------------------------------------------------------------

#if defined(__AVX512VNNI__)
constexpr int BLOCK_ROWS_AT_ONCE = 6, VECTORS_AT_ONCE = 2;  // 12 integer and 12 float sums
constexpr bool HAS_UNSIGNED_PRODUCTS = true;
#elif defined(__AVX2__)
constexpr int BLOCK_ROWS_AT_ONCE = 4, VECTORS_AT_ONCE = 1;
constexpr bool HAS_UNSIGNED_PRODUCTS = false;  // of more than 7 bits
#else
constexpr int BLOCK_ROWS_AT_ONCE = 1, VECTORS_AT_ONCE = 1;
constexpr bool HAS_UNSIGNED_PRODUCTS = true;
#endif

// sums += the products of four weights by four activations, per column.
template <bool is_wide>
inline void add_four(Ints& sums, Bytes weights, const int8_t* x) {
    const int32_t four = load_four(x);
#if defined(__AVX512VNNI__)
    add_products(reinterpret_cast<__m512i&>(sums), bits_as<__m512i>(weights), _mm512_set1_epi32(four));
#elif defined(__AVX512F__)
    const __m512i ones = _mm512_set1_epi16(1);
    __m512i left = bits_as<__m512i>(weights), right = _mm512_set1_epi32(four);
    if (is_wide) {  // signs move to the other side, since -128 has no opposite: 2 * 128 * 127 < 2^15
        left = _mm512_xor_si512(left, _mm512_set1_epi8(-128));
        right = _mm512_mask_sub_epi8(right, _mm512_movepi8_mask(left), _mm512_setzero_si512(), right);
        left = _mm512_abs_epi8(left);
    }
    sums += bits_as<Ints>(_mm512_madd_epi16(_mm512_maddubs_epi16(left, right), ones));
#elif defined(__AVX2__)
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i left = bits_as<__m256i>(weights), right = _mm256_set1_epi32(four);
    if (is_wide) {  // as above; a weight of zero makes its activation zero
        left = _mm256_xor_si256(left, _mm256_set1_epi8(-128));
        right = _mm256_sign_epi8(right, left);
        left = _mm256_abs_epi8(left);
    }
    sums += bits_as<Ints>(_mm256_madd_epi16(_mm256_maddubs_epi16(left, right), ones));
#else
    (void)four;
    for (int i = 0; i < 4 * W; ++i) sums[i / 4] += weights[i] * x[i % 4];
#endif
}

// totals += a unit of weights by a unit of `rows` rows of x, for the columns of vectors from `first` on.
template <class F, int rows>
inline void add_unit(Floats (&totals)[rows][VECTORS], const int8_t* values, int64_t stride, const UnitScale* x,
                     int64_t num_units, const uint8_t* header, int64_t index, const uint8_t* unit, int first) {
    constexpr int groups = UNIT / F::GROUP_INPUTS, steps = UNIT_STEPS / groups;
    constexpr int32_t offset = F::IS_WIDE && !HAS_UNSIGNED_PRODUCTS ? 0 : F::OFFSET;
#pragma GCC unroll 2
    for (int group = 0; group < groups; ++group) {
        Ints sums[rows][VECTORS_AT_ONCE];
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) {
            const UnitScale& scale = x[i * num_units];
            const int32_t sum = groups == 1 ? scale.sum : scale.half_sums[group];
#pragma GCC unroll 2
            for (auto& each : sums[i]) each = Ints{} - (offset ? sum * offset : 0);
        }
#pragma GCC unroll 8
        for (int step = group * steps; step < (group + 1) * steps; ++step)
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
                const Bytes weights = F::integers(unit, step, first + v);
#pragma GCC unroll 16
                for (int i = 0; i < rows; ++i) add_four<F::IS_WIDE>(sums[i][v], weights, values + i * stride + step * STEP);
            }
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
            const Floats scale = F::scale(header, index * groups + group, first + v);
            const Floats minimum = F::HAS_MINIMA ? F::minimum(header, index, first + v) : Floats{};
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i) {
                Floats& total = totals[i][first + v];
                total = __builtin_convertvector(sums[i][v], Floats) * (scale * x[i * num_units].scale) + total;
                if (F::HAS_MINIMA) total = minimum * x[i * num_units].scaled_sum + total;
            }
        }
    }
}

// tile[rows][32] = x[row, row + rows) by a panel. Prefetches `ahead`.
template <class F, int rows>
__attribute__((noinline)) void multiply_blocks(const Units& x, int64_t row, const QuireBlockPart& part,
                                               const uint8_t* panel, Ahead ahead, float* tile) {
    const int8_t* values = x.values + row * x.stride;
    const UnitScale* scales = x.scales + row * x.num_units;
    const int64_t units = block_units<F>(part);
    Floats totals[rows][VECTORS] = {};
    for (int64_t left = x.num_units; left > 0; left -= units) {
        const uint8_t* header = panel;
        panel += F::HEADER_BYTES;
        for (int64_t i = 0; i < (units < left ? units : left); ++i, ++scales, values += UNIT, panel += F::UNIT_BYTES) {
            ahead.ask(0, 1);
#pragma GCC unroll 2
            for (int first = 0; first < VECTORS; first += VECTORS_AT_ONCE)
                add_unit<F, rows>(totals, values, x.stride, scales, x.num_units, header, i, panel, first);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) store(tile + i * COLUMNS + v * W, totals[i][v]);
}

// Decodes a column of a panel: to[depth].
template <class F, class T>
inline void decode_column(const QuireBlockPart& part, const uint8_t* panel, int64_t depth, int column, T* to) {
    const int64_t units = block_units<F>(part);
    const int vector = column / W, lane = column % W;
    for (int64_t input = 0; input < depth; panel += block_bytes<F>(part)) {
        const uint8_t* unit = panel + F::HEADER_BYTES;
        for (int64_t i = 0; i < units && input < depth; ++i, unit += F::UNIT_BYTES)
            for (int step = 0; step < UNIT_STEPS; ++step) {
                const int64_t group = (i * UNIT + step * STEP) / F::GROUP_INPUTS;
                const float scale = F::scale(panel, group, vector)[lane];
                const float minimum = F::HAS_MINIMA ? F::minimum(panel, group, vector)[lane] : 0.0f;
                const Bytes integers = F::integers(unit, step, vector);
                for (int j = 0; j < STEP && input < depth; ++j, ++input) {
                    const float value = float(integers[lane * STEP + j] - F::OFFSET) * scale;
                    from_float(to + input, F::HAS_MINIMA ? value + minimum : value);
                }
            }
    }
}

}  // namespace
