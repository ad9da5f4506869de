// Linear layers with weights of 8 or 4 bits and activations of 8 bits.
//
// Weights are stored in panels of 32 output features, which are read sequentially; a step of depth (four bytes of each
// column) is two vectors of 64 bytes. Depth is rounded up to groups of 64.
//   8 bits: [panels][depth / 4][32][4], each integer plus 128; scales per column are separate.
//   4 bits: [panels][depth / 64] groups of 1,152 bytes: bfloat16 scales[32], bfloat16 lows[32], then [8][32][4] with step i
//   in the lower and step i + 8 in the upper halves of bytes. A weight is low + scale * integer.
//
// Integer sums are exact and floats are summed in the order of depth, so results do not depend on the number of rows or
// threads.
#include "quantized_linear.h"

#include <vector>

#include "integers.h"
#include "integers_amx.h"
#include "kept.h"

namespace {

constexpr int64_t GROUP_BYTES = 2 * 2 * COLUMNS + GROUP * COLUMNS / 2;
constexpr int64_t NIBBLES = 2 * 2 * COLUMNS;  // their offset in a group
#if defined(__AMX_INT8__)
constexpr int64_t BLOCK_BYTES = 1024 * 1024;  // of activations: half of the L2 cache of processors with AMX
#else
constexpr int64_t BLOCK_BYTES = 512 * 1024;
#endif
constexpr int64_t AHEAD = 3456;  // prefetch distance in bytes
constexpr int64_t TASKS_PER_THREAD = 16;  // of several calls, whose numbers of rows differ
constexpr int64_t PARALLEL_WORK = 512 * 1024;  // products, below which waking other threads does not pay

#if defined(__AVX512VNNI__)
constexpr int NIBBLE_ROWS = 6;  // rows per tile of 4-bit weights: 12 integer and 12 float sums
#else
constexpr int NIBBLE_ROWS = INTEGER_ROWS;
#endif

// Calls body(std::integral_constant<int, rows>) for a number of rows known at run time.
template <int rows, class Body>
inline void with_integer_rows(int64_t count, Body&& body) {
    if (count >= rows) return body(std::integral_constant<int, rows>{});
    if constexpr (rows > 1) with_integer_rows<rows - 1>(count, body);
}

// -- activations ------------------------------------------------------------------------------------------------------

#if defined(__AMX_INT8__)
constexpr int64_t ROW_PADDING = BLOCK_ROWS;  // tiles read whole blocks
#else
constexpr int64_t ROW_PADDING = 1;
#endif

// Quantized rows. A stride of an odd number of lines spreads them over the L1 cache's sets.
struct Integers {
    Integers(int64_t num_rows, int64_t depth, bool has_groups)
        : groups(divide_up(depth, GROUP)), stride(groups * GROUP + (groups % 2 ? 0 : GROUP)) {
        const int64_t value_bytes = round_up(num_rows, ROW_PADDING) * stride;
        const int64_t sum_bytes = has_groups ? round_up(num_rows * groups * 4, 64) : 0;
        static thread_local Kept kept;
        char* memory = kept.of<char>(value_bytes + sum_bytes + num_rows * int64_t(sizeof(IntegerRow)));
        values = reinterpret_cast<int8_t*>(memory);
        group_sums = has_groups ? reinterpret_cast<float*>(memory + value_bytes) : nullptr;
        rows = reinterpret_cast<IntegerRow*>(memory + value_bytes + sum_bytes);
    }

    const int64_t groups, stride;
    int8_t* values;     // [num_rows][stride]
    float* group_sums;  // [num_rows][groups]
    IntegerRow* rows;
};

// -- 8 bits -----------------------------------------------------------------------------------------------------------

// tile[rows][32] = x W^T, without the scales of rows.
template <int rows>
inline void multiply_bytes(const Integers& x, int64_t row, const uint8_t* panel, const float* scales, Ahead ahead,
                           float* tile) {
    multiply_integers<rows>(
        x.values + row * x.stride, x.stride, panel, x.groups * GROUP_STEPS, ahead, [&](int i, int column, Ints sums) {
            const Ints exact = sums - x.rows[row + i].sum * STORED_OFFSET;
            store(tile + i * COLUMNS + column,
                  __builtin_convertvector(exact, Floats) * load_floats(scales + column));
        });
}

// -- 4 bits -----------------------------------------------------------------------------------------------------------

inline const BFloat16* group_scales(const uint8_t* group) { return reinterpret_cast<const BFloat16*>(group); }

// Adds a group to a row: the integer sums by the scale, and the sum of x by the lowest weight.
inline void add_group(float* to, const uint8_t* group, int column, Ints sums, float x_sum) {
    const BFloat16* scales = group_scales(group) + column;
    Floats total = load_floats(to);
    total = __builtin_convertvector(sums, Floats) * load_floats(scales) + total;
    total = splat(x_sum) * load_floats(scales + COLUMNS) + total;
    store(to, total);
}

#if defined(__AVX512VNNI__)
// AVX-512 does this in registers, below.
#elif defined(__AVX2__)
template <int rows>
inline void sum_group(const int8_t* x, int64_t x_stride, const uint8_t* nibbles, int32_t (&sums)[rows][COLUMNS]) {
    const __m256i low_half = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    for (int part = 0; part < COLUMNS / 8; ++part) {
        __m256i words[rows];
#pragma GCC unroll 16
        for (auto& each : words) each = _mm256_setzero_si256();
        for (int first = 0; first < 8; first += 4) {
            __m256i pairs[rows];  // in 16 bits: 4 * 2 * 2 * 15 * 127 < 2^15
#pragma GCC unroll 16
            for (auto& each : pairs) each = _mm256_setzero_si256();
#pragma GCC unroll 4
            for (int step = first; step < first + 4; ++step) {
                const __m256i both =
                    _mm256_loadu_si256(reinterpret_cast<const __m256i*>(nibbles + step * BYTES + 32 * part));
                const __m256i lows = _mm256_and_si256(both, low_half);
                const __m256i highs = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);
#pragma GCC unroll 16
                for (int i = 0; i < rows; ++i) {
                    const int8_t* at = x + i * x_stride + step * STEP;
                    pairs[i] = _mm256_add_epi16(
                        pairs[i], _mm256_add_epi16(_mm256_maddubs_epi16(lows, _mm256_set1_epi32(load_four(at))),
                                                   _mm256_maddubs_epi16(highs, _mm256_set1_epi32(load_four(at + 32)))));
                }
            }
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i) words[i] = _mm256_add_epi32(words[i], _mm256_madd_epi16(pairs[i], ones));
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) std::memcpy(&sums[i][8 * part], &words[i], 32);
    }
}
#else
template <int rows>
inline void sum_group(const int8_t* x, int64_t x_stride, const uint8_t* nibbles, int32_t (&sums)[rows][COLUMNS]) {
    for (int row = 0; row < rows; ++row, x += x_stride)
        for (int step = 0; step < 8; ++step)
            for (int i = 0; i < BYTES; ++i) {
                const int8_t* four = x + step * STEP + i % STEP;
                const int both = nibbles[step * BYTES + i];
                sums[row][i / STEP] += (both & 15) * four[0] + (both >> 4) * four[32];
            }
}
#endif

// tile[rows][32] = x W^T, without the scales of rows. Each tile unpacks the nibbles in registers, which is faster than
// unpacking them to memory once for all tiles.
template <int rows>
__attribute__((noinline)) void multiply_nibbles(const Integers& x, int64_t row, const uint8_t* panel, Ahead ahead,
                                               float* tile) {
    const int8_t* fours = x.values + row * x.stride;
    const float* x_sums = x.group_sums + row * x.groups;
#if defined(__AVX512VNNI__)
    Floats totals[rows][2] = {};
    const __m512i low_half = _mm512_set1_epi8(15);
    for (int64_t group = 0; group < x.groups; ++group, panel += GROUP_BYTES, fours += GROUP) {
        __m512i sums[rows][2];
#pragma GCC unroll 16
        for (auto& each : sums) each[0] = each[1] = _mm512_setzero_si512();
#pragma GCC unroll 16
        for (int step = 0; step < 8; ++step) {
            ahead.ask(step, 8);
            const __m512i left = _mm512_loadu_si512(panel + NIBBLES + step * BYTES);
            const __m512i right = _mm512_loadu_si512(panel + NIBBLES + step * BYTES + 64);
            const __m512i low_left = _mm512_and_si512(left, low_half), low_right = _mm512_and_si512(right, low_half);
            const __m512i high_left = _mm512_and_si512(_mm512_srli_epi16(left, 4), low_half);
            const __m512i high_right = _mm512_and_si512(_mm512_srli_epi16(right, 4), low_half);
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i) {
                const int8_t* at = fours + i * x.stride + step * STEP;
                const __m512i low = _mm512_set1_epi32(load_four(at)), high = _mm512_set1_epi32(load_four(at + 32));
                add_products(sums[i][0], low_left, low);
                add_products(sums[i][1], low_right, low);
                add_products(sums[i][0], high_left, high);
                add_products(sums[i][1], high_right, high);
            }
        }
#pragma GCC unroll 16
        for (int half = 0; half < 2; ++half) {
            const BFloat16* scales = group_scales(panel) + half * W;
            const Floats scale = load_floats(scales), low = load_floats(scales + COLUMNS);
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i) {  // as add_group
                Floats& total = totals[i][half];
                total = __builtin_convertvector(bits_as<Ints>(sums[i][half]), Floats) * scale + total;
                total = splat(x_sums[i * x.groups + group]) * low + total;
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 16
        for (int half = 0; half < 2; ++half) store(tile + i * COLUMNS + half * W, totals[i][half]);
#else
    std::memset(tile, 0, rows * COLUMNS * sizeof(float));
    for (int64_t group = 0; group < x.groups; ++group, panel += GROUP_BYTES, fours += GROUP) {
        alignas(64) int32_t sums[rows][COLUMNS] = {};
        for (int64_t step = 0; step < 8; ++step) ahead.ask(step, 8);
        sum_group<rows>(fours, x.stride, panel + NIBBLES, sums);
        for (int i = 0; i < rows; ++i)
            for (int column = 0; column < COLUMNS; column += W)
                add_group(tile + i * COLUMNS + column, panel, column, load<Ints>(&sums[i][column]),
                          x_sums[i * x.groups + group]);
    }
#endif
}

// -- epilogue: from a tile to the output --------------------------------------------------------------------------------

// The arguments of a call, with one weight or two of equal shape.
template <class T>
struct Call {
    const QuireQuantizedWeight* weights[2];
    const T* biases[2];
    int64_t depth, columns, bits;
    const T* x;
    int64_t x_stride, num_rows;
    int64_t first_row;  // among the rows of all calls at once
    T* out;
    int32_t form;
    const float* addends[2];
};

// Scales, biases and gates the rows of a panel's tile.
template <class T>
inline void finish_rows(const Call<T>& call, const IntegerRow* x, int64_t rows, const float* tile, const float* second,
                        int64_t first_column, T* out) {
    const int64_t count = call.columns - first_column < COLUMNS ? call.columns - first_column : COLUMNS;
    constexpr int vectors = COLUMNS / W;
    Floats biases[2][vectors] = {};
    for (int which = 0; which < 2; ++which)
        if (call.biases[which]) {
            T padded[COLUMNS] = {};  // the last panel's padding is neither read nor written
            std::memcpy(padded, call.biases[which] + first_column, size_t(count) * sizeof(T));
            for (int i = 0; i < vectors; ++i) biases[which][i] = load_floats(padded + i * W);
        }
    for (int64_t row = 0; row < rows; ++row, tile += COLUMNS, second += COLUMNS, out += call.columns) {
        T padded[COLUMNS];
        T* to = count < COLUMNS ? padded : out;
        const int64_t at = out - call.out;
        const AddedRow<COLUMNS> added(call.addends[0], at, count), up_added(call.addends[1], at, count);
        for (int i = 0; i < vectors; ++i) {
            Floats y = added.to(load_floats(tile + i * W) * x[row].scale + biases[0][i], i * W);
            if (call.form != QUIRE_PLAIN) y = silu<T>(y);
            if (call.form == QUIRE_GATED)
                y *= up_added.to(load_floats(second + i * W) * x[row].scale + biases[1][i], i * W);
            store_floats(to + i * W, y);
        }
        if (count < COLUMNS) std::memcpy(out, padded, size_t(count) * sizeof(T));
    }
}

// -- a whole call -----------------------------------------------------------------------------------------------------

#if defined(__AMX_INT8__)
constexpr int64_t LEAST_BLOCK = INTEGER_ROWS + 1;  // rows; fewer fit in one tile

// Multiplies rows [row, end) by one panel of 8 bits, in blocks of 32 rows. Each step prefetches a bit of the next panel,
// so that its first rows need not wait for memory.
template <class T>
inline void multiply_panel_by_tiles(const Call<T>& call, const Integers& x, int64_t row, int64_t end, int64_t panel) {
    const int num_weights = call.form == QUIRE_GATED ? 2 : 1;
    alignas(64) int32_t sums[2][BLOCK_ROWS * COLUMNS];
    alignas(64) float values[2][COLUMNS];
    const int64_t panel_bytes = x.groups * GROUP * COLUMNS;
    const int64_t lines = divide_up(GROUP * COLUMNS / 64, divide_up(end - row, BLOCK_ROWS));
    int64_t asked = panel_bytes;
    for (; row < end; row += BLOCK_ROWS, asked += x.groups * lines * 64) {
        for (int which = 0; which < num_weights; ++which) {
            const uint8_t* packed = call.weights[which]->packed + panel * panel_bytes;
            multiply_block(x.values + row * x.stride, x.stride, packed, x.groups, sums[which], packed + asked, lines);
        }
        const int64_t last = end - row < BLOCK_ROWS ? end - row : BLOCK_ROWS;
        for (int64_t i = 0; i < last; ++i) {
            for (int which = 0; which < num_weights; ++which)
                for (int column = 0; column < COLUMNS; column += W) {  // as multiply_bytes
                    const Ints exact = load<Ints>(sums[which] + i * COLUMNS + column) -
                                       x.rows[row + i].sum * STORED_OFFSET;
                    store(values[which] + column,
                          __builtin_convertvector(exact, Floats) *
                              load_floats(call.weights[which]->scales + panel * COLUMNS + column));
                }
            finish_rows<T>(call, x.rows + row + i, 1, values[0], values[1], panel * COLUMNS,
                           call.out + (row + i - call.first_row) * call.columns + panel * COLUMNS);
        }
    }
}
#endif

// Multiplies rows [row, end) by one panel, in tiles of nearly equal size. With several tiles, each step prefetches a bit of
// the next panel, so that its first tile need not wait for memory.
template <class T>
inline void multiply_panel(const Call<T>& call, const Integers& x, int64_t row, int64_t end, int64_t panel) {
    const int num_weights = call.form == QUIRE_GATED ? 2 : 1;
    const bool has_bytes = call.bits == 8;
#if defined(__AMX_INT8__)
    if (has_bytes && end - row >= LEAST_BLOCK) return multiply_panel_by_tiles<T>(call, x, row, end, panel);
#endif
    const int64_t group_bytes = has_bytes ? GROUP * COLUMNS : GROUP_BYTES, panel_bytes = x.groups * group_bytes;
    alignas(64) float tiles[2][INTEGER_ROWS * COLUMNS];
    int64_t left = divide_up(end - row, has_bytes ? INTEGER_ROWS : NIBBLE_ROWS);
    const int64_t lines = left > 1 || ASKS_AHEAD || !has_bytes ? divide_up(group_bytes / 64, left) : 0;
    for (int64_t asked = left > 1 ? panel_bytes : AHEAD; row < end; --left, asked += x.groups * lines * 64) {
        with_integer_rows<INTEGER_ROWS>(divide_up(end - row, left), [&](auto rows) {
            for (int which = 0; which < num_weights; ++which) {
                const QuireQuantizedWeight& weight = *call.weights[which];
                const uint8_t* packed = weight.packed + panel * panel_bytes;
                if (has_bytes) {
                    multiply_bytes<rows>(x, row, packed, weight.scales + panel * COLUMNS, {packed + asked, lines},
                                         tiles[which]);
                } else if constexpr (rows <= NIBBLE_ROWS) {
                    multiply_nibbles<rows>(x, row, packed, {packed + asked, lines}, tiles[which]);
                }
            }
            finish_rows<T>(call, x.rows + row, rows, tiles[0], tiles[1], panel * COLUMNS,
                           call.out + (row - call.first_row) * call.columns + panel * COLUMNS);
            row += rows;
        });
    }
}

// A call's rows, which are multiplied by one panel after the other; they count among the rows of all calls.
struct RowBlock {
    int64_t call, row, end;
};

// Calls of any numbers of rows, with weights of one shape.
template <class T>
void run(const Call<T>* calls, int64_t num_calls, int64_t num_threads) {
    const int64_t depth = calls->depth, panels = divide_up(calls->columns, COLUMNS);
    const int64_t num_rows = calls[num_calls - 1].first_row + calls[num_calls - 1].num_rows;
    const Integers x(num_rows, depth, calls->bits == 4);
#if defined(__AMX_INT8__)
    constexpr int64_t multiple = BLOCK_ROWS;
#else
    constexpr int64_t multiple = INTEGER_ROWS;
#endif
    const int64_t most_rows = BLOCK_BYTES / x.stride / multiple * multiple;
    std::vector<RowBlock> blocks;
    for (int64_t i = 0; i < num_calls; ++i) {
        const int64_t rows = calls[i].num_rows, end = calls[i].first_row + rows;
        const int64_t num_blocks = divide_up(rows, most_rows < multiple ? multiple : most_rows);
        const int64_t block_rows = round_up(divide_up(rows, num_blocks), multiple);
        for (int64_t row = calls[i].first_row; row < end; row += block_rows)
            blocks.push_back({i, row, row + block_rows < end ? row + block_rows : end});
    }
    // The last block of rows is smaller: equal numbers of panels would not be equal work.
    const int64_t num_tasks = int64_t(blocks.size()) * panels;
    const int64_t chunk = num_calls > 1       ? divide_up(num_tasks, TASKS_PER_THREAD * num_threads)
                          : blocks.size() > 1 ? 2
                                              : divide_up(panels, num_threads);
    const bool is_parallel = num_threads > 1 && num_rows * depth * calls->columns > PARALLEL_WORK;
#pragma omp parallel num_threads(num_threads) if (is_parallel)
    {
#if defined(__AMX_INT8__)
        const Tiles tiles;
#endif
        const Call<T>* call = calls;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < num_rows; ++row) {
            while (row >= call->first_row + call->num_rows) ++call;
            x.rows[row] = quantize_row(call->x + (row - call->first_row) * call->x_stride, depth,
                                       x.values + row * x.stride, x.group_sums ? x.group_sums + row * x.groups : nullptr);
        }
#pragma omp for schedule(dynamic, chunk)
        for (int64_t task = 0; task < num_tasks; ++task) {
            const RowBlock& block = blocks[size_t(task / panels)];
            multiply_panel<T>(calls[block.call], x, block.row, block.end, task % panels);
        }
    }
}

// -- weights ----------------------------------------------------------------------------------------------------------

// Quantizes a column so that its largest weight becomes 127.
inline float quantize_bytes(const float* weights, int64_t depth, uint8_t* to) {
    float maximum = 0;
    for (int64_t k = 0; k < depth; ++k) maximum = __builtin_fabsf(weights[k]) > maximum ? __builtin_fabsf(weights[k]) : maximum;
    const float scale = maximum / 127.0f, factor = maximum > 1e-30f ? 127.0f / maximum : 0.0f;
    for (int64_t k = 0; k < depth; k += W) {
        const Ints integers = round_to_ints(load_floats(weights + k) * factor) + 128;
        for (int i = 0; i < W; ++i) to[k + i] = uint8_t(integers[i]);
    }
    return maximum > 1e-30f ? scale : 0.0f;
}

inline float as_bfloat16(float x) {
    BFloat16 rounded;
    from_float(&rounded, x);
    return to_float(rounded);
}

struct Grid {
    float scale, low;  // both bfloat16
};

// Rounds weights to a grid. Returns the squared error.
inline float place(const float* weights, Grid grid, float* integers) {
    const float factor = grid.scale > 0 ? 1.0f / grid.scale : 0.0f;
    Floats error{};
    for (int k = 0; k < GROUP; k += W) {
        const Floats weight = load_floats(weights + k);
        Floats x = (weight - grid.low) * factor;
        x = max(x, splat(0.0f));
        x = x < splat(15.0f) ? x : splat(15.0f);
        x = __builtin_convertvector(round_to_ints(x), Floats);
        store(integers + k, x);
        const Floats difference = weight - (x * grid.scale + grid.low);
        error += difference * difference;
    }
    return reduce_sum(error);
}

// Fits the grid to integers and weights by least squares.
inline Grid fit(const float* weights, const float* integers) {
    Floats x{}, y{}, xx{}, xy{};
    for (int k = 0; k < GROUP; k += W) {
        const Floats integer = load_floats(integers + k), weight = load_floats(weights + k);
        x += integer;
        y += weight;
        xx += integer * integer;
        xy += integer * weight;
    }
    const float sum_x = reduce_sum(x), sum_y = reduce_sum(y), sum_xx = reduce_sum(xx), sum_xy = reduce_sum(xy);
    const float spread = GROUP * sum_xx - sum_x * sum_x;
    if (!(spread > 0)) return {0.0f, as_bfloat16(sum_y / GROUP)};
    const float scale = as_bfloat16((GROUP * sum_xy - sum_x * sum_y) / spread);
    return {scale, as_bfloat16((sum_y - scale * sum_x) / GROUP)};
}

// Quantizes a group. Tries grids that clip more and more of both ends, fits each, and keeps the one with the least error.
inline Grid quantize_group(const float* weights, float* integers) {
    float lowest = weights[0], highest = weights[0];
    for (int k = 1; k < GROUP; ++k) {
        lowest = weights[k] < lowest ? weights[k] : lowest;
        highest = weights[k] > highest ? weights[k] : highest;
    }
    Grid best{0.0f, as_bfloat16(lowest)};
    float least = place(weights, best, integers), tried[GROUP];
    for (int cut = 0; cut < 8; ++cut) {
        const float out = 0.025f * float(cut) * (highest - lowest);
        Grid grid{(highest - lowest - 2 * out) / 15.0f, lowest + out};
        place(weights, grid, tried);
        for (int turn = 0; turn < 2; ++turn) {
            grid = fit(weights, tried);
            const float error = place(weights, grid, tried);
            if (error < least) {
                least = error;
                best = grid;
                std::memcpy(integers, tried, sizeof tried);
            }
        }
    }
    return best;
}

template <class T>
void quantize(const QuireQuantize& call) {
    const int64_t groups = divide_up(call.depth, GROUP), depth = groups * GROUP;
    const int64_t panels = divide_up(call.columns, COLUMNS);
#pragma omp parallel num_threads(call.num_threads) if (call.num_threads > 1)
    {
        Kept kept;
        float* weights = kept.of<float>(divide_up(depth * 5, 4));
        uint8_t* bytes = reinterpret_cast<uint8_t*>(weights + depth);
        float integers[GROUP];
#pragma omp for schedule(static)
        for (int64_t i = 0; i < panels * COLUMNS; ++i) {
            const int64_t panel = i / COLUMNS, column = i % COLUMNS;
            const T* from = static_cast<const T*>(call.weight) + i * call.stride;
            for (int64_t k = 0; k < depth; ++k)  // padding meets zeros, and must not widen the grid
                weights[k] = i < call.columns ? to_float(from[k < call.depth ? k : call.depth - 1]) : 0.0f;
            if (call.bits == 8) {
                call.scales[i] = quantize_bytes(weights, depth, bytes);
                uint8_t* to = call.packed + panel * depth * COLUMNS + column * STEP;
                for (int64_t k = 0; k < depth; k += STEP) std::memcpy(to + k / STEP * BYTES, bytes + k, STEP);
                continue;
            }
            for (int64_t group = 0; group < groups; ++group) {
                uint8_t* to = call.packed + (panel * groups + group) * GROUP_BYTES;
                const Grid grid = quantize_group(weights + group * GROUP, integers);
                BFloat16* scales = reinterpret_cast<BFloat16*>(to);
                from_float(scales + column, grid.scale);
                from_float(scales + COLUMNS + column, grid.low);
                for (int64_t k = 0; k < GROUP / 2; ++k)
                    to[NIBBLES + k / STEP * BYTES + column * STEP + k % STEP] =
                        uint8_t(int(integers[k]) | int(integers[k + GROUP / 2]) << 4);
            }
        }
    }
}

template <class T>
void multiply(const QuireQuantizedLinear* given, int64_t num_calls, int64_t num_threads) {
    std::vector<Call<T>> calls;
    calls.reserve(size_t(num_calls));
    int64_t first_row = 0;
    for (const QuireQuantizedLinear* each = given; each < given + num_calls; first_row += each++->num_rows)
        calls.push_back({{each->weight, each->up},
                         {static_cast<const T*>(each->bias), static_cast<const T*>(each->up_bias)},
                         each->weight->depth,
                         each->weight->columns,
                         each->weight->bits,
                         static_cast<const T*>(each->x),
                         each->x_stride,
                         each->num_rows,
                         first_row,
                         static_cast<T*>(each->out),
                         each->form,
                         {each->addend, each->up_addend}});
    if (first_row) run(calls.data(), num_calls, num_threads);
}

}  // namespace

int64_t quire_quantized_bytes(int64_t columns, int64_t depth, int32_t bits) {
    const int64_t panels = divide_up(columns, COLUMNS), groups = divide_up(depth, GROUP);
    return panels * groups * (bits == 8 ? GROUP * COLUMNS : GROUP_BYTES);
}
void quire_quantize_float32(const QuireQuantize* call) { quantize<float>(*call); }
void quire_quantize_bfloat16(const QuireQuantize* call) { quantize<BFloat16>(*call); }

void quire_quantized_linear_float32(const QuireQuantizedLinear* call) {
    multiply<float>(call, 1, call->num_threads);
}
void quire_quantized_linear_bfloat16(const QuireQuantizedLinear* call) {
    multiply<BFloat16>(call, 1, call->num_threads);
}
void quire_quantized_linears_float32(const QuireQuantizedLinear* calls, int64_t num_calls, int64_t num_threads) {
    multiply<float>(calls, num_calls, num_threads);
}
void quire_quantized_linears_bfloat16(const QuireQuantizedLinear* calls, int64_t num_calls, int64_t num_threads) {
    multiply<BFloat16>(calls, num_calls, num_threads);
}
