// Linear layers with weights in blocks and activations of 8 bits; see blocks.h for the layout of weights.
//
// Integer sums are exact and floats are summed in the order of depth, so results do not depend on the number of rows or
// threads.
#include "block_linear.h"

#include <vector>

#include "activations.h"
#include "blocks.h"
#include "kept.h"

namespace {

constexpr int64_t CACHED_BYTES = 512 * 1024;  // of activations, in half of the L2 cache
constexpr int64_t TASKS_PER_THREAD = 16;  // of several calls, whose numbers of rows differ
constexpr int64_t PARALLEL_WORK = 512 * 1024;  // products, below which waking other threads does not pay
constexpr int64_t AHEAD = 3456;  // prefetch distance in bytes

// Calls body(std::integral_constant<int, rows>) for the largest tile of at most `count` rows.
template <class Body>
inline void with_tile_rows(int64_t count, Body&& body) {
    constexpr int most = BLOCK_ROWS_AT_ONCE;
    if (count >= most) return body(std::integral_constant<int, most>{});
    if (count >= 4) return body(std::integral_constant<int, most < 4 ? most : 4>{});
    if (count >= 2) return body(std::integral_constant<int, most < 2 ? most : 2>{});
    body(std::integral_constant<int, 1>{});
}

template <class T>
struct Call {
    const QuireBlockLinear& given;
    int64_t depth, columns;
    int64_t first_row;  // among the rows of all calls at once

    Call(const QuireBlockLinear& call, int64_t row) : given(call), depth(call.weight->depth), columns(0), first_row(row) {
        for (int64_t i = 0; i < call.weight->num_parts; ++i) columns += call.weight->parts[i].columns;
    }
    const T* bias(bool is_up) const { return static_cast<const T*>(is_up ? given.up_bias : given.bias); }
};

// Consecutive columns of a panel, and its place in a part.
struct PanelPlace {
    const QuireBlockPart* part;
    int64_t panel, first_column, count;
};

inline int64_t num_panels(const QuireBlockWeight& weight) {
    int64_t panels = 0;
    for (int64_t i = 0; i < weight.num_parts; ++i) panels += divide_up(weight.parts[i].columns, COLUMNS);
    return panels;
}

inline PanelPlace find_panel(const QuireBlockWeight& weight, int64_t panel) {
    int64_t first = 0;
    const QuireBlockPart* part = weight.parts;
    for (int64_t panels; panel >= (panels = divide_up(part->columns, COLUMNS)); panel -= panels) first += part++->columns;
    const int64_t rest = part->columns - panel * COLUMNS;
    return {part, panel, first + panel * COLUMNS, rest < COLUMNS ? rest : COLUMNS};
}

// Applies biases and the form to a tile's rows.
template <class T>
inline void finish_rows(const Call<T>& call, int64_t rows, const float* tile, const float* second, const PanelPlace& place,
                        T* out) {
    Floats biases[2][VECTORS] = {};
    for (int which = 0; which < 2; ++which)
        if (call.bias(which)) {
            T padded[COLUMNS] = {};  // the last panel's padding is neither read nor written
            std::memcpy(padded, call.bias(which) + place.first_column, size_t(place.count) * sizeof(T));
            for (int v = 0; v < VECTORS; ++v) biases[which][v] = load_floats(padded + v * W);
        }
    for (int64_t row = 0; row < rows; ++row, tile += COLUMNS, second += COLUMNS, out += call.given.out_stride) {
        T padded[COLUMNS];
        T* to = place.count < COLUMNS ? padded : out;
        const int64_t at = out - static_cast<T*>(call.given.out);
        const AddedRow<COLUMNS> added(call.given.addend, at, place.count), up_added(call.given.up_addend, at, place.count);
        for (int v = 0; v < VECTORS; ++v) {
            Floats y = added.to(load_floats(tile + v * W) + biases[0][v], v * W);
            if (call.given.form == QUIRE_BLOCK_SILU) y = silu<T>(y);
            if (call.given.form == QUIRE_BLOCK_GELU_TANH) y = gelu_tanh(y);
            if (call.given.up) y *= up_added.to(load_floats(second + v * W) + biases[1][v], v * W);
            store_floats(to + v * W, y);
        }
        if (place.count < COLUMNS) std::memcpy(out, padded, size_t(place.count) * sizeof(T));
    }
}

// Multiplies rows [row, end) by one panel, in tiles. With several tiles, each prefetches a bit of the next panel, so that
// its first tile need not wait for memory.
template <class T>
inline void multiply_panel(const Call<T>& call, const Units& x, int64_t row, int64_t end, int64_t panel) {
    const PanelPlace place = find_panel(*call.given.weight, panel);
    const QuireBlockPart* parts[2] = {place.part, call.given.up ? call.given.up->parts : nullptr};
    alignas(64) float tiles[2][BLOCK_ROWS_AT_ONCE * COLUMNS];
    const int64_t num_tiles = divide_up(end - row, BLOCK_ROWS_AT_ONCE);
    for (int64_t tile = 0; row < end; ++tile)
        with_tile_rows(end - row, [&](auto rows) {
            for (int which = 0; which < 2 && parts[which]; ++which)
                with_format(parts[which]->type, [&](auto format) {
                    using F = decltype(format);
                    const int64_t bytes = panel_bytes<F>(*parts[which], call.depth);
                    const uint8_t* packed = parts[which]->packed + place.panel * bytes;
                    const int64_t lines = divide_up(bytes / 64, x.num_units * num_tiles);
                    const int64_t asked = num_tiles > 1 ? bytes + tile * lines * x.num_units * 64 : AHEAD;
                    multiply_blocks<F, rows>(x, row, *parts[which], packed, {packed + asked, lines}, tiles[which]);
                });
            finish_rows<T>(call, rows, tiles[0], tiles[1], place,
                           static_cast<T*>(call.given.out) + (row - call.first_row) * call.given.out_stride + place.first_column);
            row += rows;
        });
}

// Quantizes a row of x; rest: [depth].
template <class T>
inline void quantize_units(const T* x, const int32_t* order, int64_t depth, T* rest, int8_t* to, UnitScale* scales) {
    if (order) {
        for (int64_t i = 0; i < depth; ++i) rest[i] = x[order[i]];
        x = rest;
    }
    int64_t i = 0;
    for (; i + UNIT <= depth; i += UNIT) scales[i / UNIT] = quantize_unit(x + i, to + i);
    if (i == depth) return;
    T padded[UNIT] = {};
    std::memcpy(padded, x + i, size_t(depth - i) * sizeof(T));
    scales[i / UNIT] = quantize_unit(padded, to + i);
}

// A call's rows, which are multiplied by one panel after the other; they count among the rows of all calls.
struct RowBlock {
    int64_t call, row, end;
};

// Calls of any numbers of rows, with weights of one shape.
template <class T>
void run(const QuireBlockLinear* given, int64_t num_calls, int64_t num_threads) {
    std::vector<Call<T>> calls;
    calls.reserve(size_t(num_calls));
    int64_t num_rows = 0;
    for (int64_t i = 0; i < num_calls; num_rows += given[i++].num_rows) calls.emplace_back(given[i], num_rows);
    if (!num_rows) return;
    const int64_t depth = calls[0].depth, num_units = divide_up(depth, UNIT), lines = divide_up(num_units * UNIT, 64);
    const int64_t stride = (lines + (lines + 1) % 2) * 64;
    static thread_local Kept kept, kept_orders;
    int8_t* values = kept.of<int8_t>(num_rows * (stride + num_units * int64_t(sizeof(UnitScale))));
    UnitScale* scales = reinterpret_cast<UnitScale*>(values + num_rows * stride);
    T* ordered = given->weight->order ? kept_orders.of<T>(num_rows * depth) : nullptr;
    const Units x{values, scales, stride, num_units};

    const int64_t panels = num_panels(*given->weight);
    constexpr int64_t multiple = 2 * BLOCK_ROWS_AT_ONCE;
    const int64_t most_rows = CACHED_BYTES / stride / multiple * multiple;
    std::vector<RowBlock> blocks;
    for (int64_t i = 0; i < num_calls; ++i) {
        const int64_t first = calls[size_t(i)].first_row, rows = given[i].num_rows;
        const int64_t num_blocks = divide_up(rows, most_rows < multiple ? multiple : most_rows);
        const int64_t block_rows = round_up(divide_up(rows, num_blocks), multiple);
        for (int64_t row = 0; row < rows; row += block_rows)
            blocks.push_back({i, first + row, first + (row + block_rows < rows ? row + block_rows : rows)});
    }
    const int64_t num_tasks = int64_t(blocks.size()) * panels;
    // The last block of rows is smaller, and parts differ in size: equal numbers of panels would not be equal work.
    const bool is_even = blocks.size() == 1 && given->weight->num_parts == 1;
    const int64_t chunk = num_calls > 1 ? divide_up(num_tasks, TASKS_PER_THREAD * num_threads)
                          : is_even     ? divide_up(panels, num_threads)
                                        : 2;
    const bool is_parallel = num_threads > 1 && num_rows * depth * calls[0].columns > PARALLEL_WORK;
#pragma omp parallel num_threads(num_threads) if (is_parallel)
    {
        const Call<T>* call = calls.data();
#pragma omp for schedule(static)
        for (int64_t row = 0; row < num_rows; ++row) {
            while (row >= call->first_row + call->given.num_rows) ++call;
            quantize_units(static_cast<const T*>(call->given.x) + (row - call->first_row) * call->given.x_stride,
                           call->given.weight->order, depth, ordered ? ordered + row * depth : nullptr,
                           values + row * stride, scales + row * num_units);
        }
#pragma omp for schedule(dynamic, chunk)
        for (int64_t task = 0; task < num_tasks; ++task) {
            const RowBlock& block = blocks[size_t(task / panels)];
            multiply_panel<T>(calls[size_t(block.call)], x, block.row, block.end, task % panels);
        }
    }
}

template <class T>
int32_t read_rows(const QuireBlockRows& call) {
    const QuireBlockWeight& weight = *call.weight;
    int64_t columns = 0;
    for (int64_t i = 0; i < weight.num_parts; ++i) columns += weight.parts[i].columns;
    for (int64_t i = 0; i < call.num_ids; ++i)
        if (call.ids[i] < 0 || call.ids[i] >= columns) return 0;
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
    for (int64_t i = 0; i < call.num_ids; ++i) {
        const QuireBlockPart* part = weight.parts;
        int64_t column = call.ids[i];
        for (; column >= part->columns; ++part) column -= part->columns;
        with_format(part->type, [&](auto format) {
            using F = decltype(format);
            const uint8_t* panel = part->packed + column / COLUMNS * panel_bytes<F>(*part, weight.depth);
            decode_column<F>(*part, panel, weight.depth, int(column % COLUMNS),
                             static_cast<T*>(call.to) + i * weight.depth);
        });
    }
    return 1;
}

// -- weights ----------------------------------------------------------------------------------------------------------

// An encoded block of one column, taken apart.
struct OpenBlock {
    uint8_t numbers[2][4];    // the scale and the minimum, as encoded
    uint8_t factors[2][16];   // by group
    const uint8_t* integers;  // [inputs]
};

// Splits bytes into lower halves, then upper halves.
inline void split(const uint8_t* from, int count, uint8_t* to) {
    for (int i = 0; i < count; ++i) {
        to[i] = from[i] & 15;
        to[i + count] = from[i] >> 4;
    }
}

// Takes a block of GGUF's or of ours apart. Returns its bytes.
template <class F>
inline int64_t open_block(int64_t type, const uint8_t* from, int64_t group, uint8_t* integers, OpenBlock& block) {
    const uint8_t* start = from;
    block.integers = integers;
    if (type == QUIRE_INT4 || type == QUIRE_INT8) {
        std::memcpy(block.numbers[0], from, 4);
        block.numbers[1][0] = from[4];
        block.integers = from + 5;
        return 5 + group;
    }
    if (type == QUIRE_Q6_K) {
        for (int half = 0; half < 2; ++half)
            for (int i = 0; i < 64; ++i) {
                const int nibbles = from[64 * half + i], upper = from[128 + 32 * half + i % 32];
                integers[128 * half + i] = uint8_t((nibbles & 15) | (upper >> 2 * (i / 32) & 3) << 4);
                integers[128 * half + i + 64] = uint8_t(nibbles >> 4 | (upper >> (4 + 2 * (i / 32)) & 3) << 4);
            }
        std::memcpy(block.factors[0], from + 192, 16);
        std::memcpy(block.numbers[0], from + 208, 2);
        return 210;
    }
    for (int kind = 0; kind < F::KINDS; ++kind) {
        const int size = F::SCALES == EXPONENTS ? 1 : 2;
        std::memcpy(block.numbers[kind], from, size_t(size));
        from += size;
    }
    if (type == QUIRE_Q8_0) {
        for (int i = 0; i < UNIT; ++i) integers[i] = from[i] ^ 128;
        return from + UNIT - start;
    }
    if (F::SCALES != SUPER) {
        const uint8_t* fifths = from;
        if (F::BITS == 5) from += 4;
        split(from, UNIT / 2, integers);
        if (F::BITS == 5)
            for (int i = 0; i < UNIT; ++i) integers[i] |= (fifths[i / 8] >> i % 8 & 1) << 4;
        return from + UNIT / 2 - start;
    }
    if (type == QUIRE_IQ4_XS) {
        const int upper = from[0] | from[1] << 8;
        for (int i = 0; i < 8; ++i)
            block.factors[0][i] = uint8_t(((from[2 + i / 2] >> 4 * (i % 2) & 15) | (upper >> 2 * i & 3) << 4) - 32);
        for (int i = 0; i < 8; ++i) split(from + 6 + 16 * i, UNIT / 2, integers + UNIT * i);
        return from + 6 + 128 - start;
    }
    // Q4_K and Q5_K: factors of 6 bits, eight for scales and eight for minima.
    for (int i = 0; i < 8; ++i)
        for (int kind = 0; kind < 2; ++kind) {
            const uint8_t* at = from + 4 * kind + i % 4;
            block.factors[kind][i] = i < 4 ? *at & 63 : uint8_t((from[8 + i % 4] >> 4 * kind & 15) | *at >> 6 << 4);
        }
    const uint8_t* fifths = from + 12;
    from = fifths + (F::BITS == 5 ? 32 : 0);
    for (int i = 0; i < 4; ++i) split(from + 32 * i, 32, integers + 64 * i);
    if (F::BITS == 5)
        for (int i = 0; i < 256; ++i) integers[i] |= (fifths[i % 32] >> i / 32 & 1) << 4;
    return from + 128 - start;
}

// Writes a column of a panel's block, which is zero.
template <class F>
inline void write_block(const OpenBlock& block, int64_t units, int column, uint8_t* to) {
    constexpr int size = F::SCALES == FLOATS ? 4 : F::SCALES == EXPONENTS ? 1 : 2;
    for (int kind = 0; kind < F::KINDS; ++kind) {
        const int width = F::SCALES == FLOATS && kind == 1 ? 1 : size;
        std::memcpy(to + kind * COLUMNS * size + column * width, block.numbers[kind], size_t(width));
        if (F::SCALES == SUPER)
            for (int group = 0; group < F::BLOCK_GROUPS; ++group)
                to[(2 * F::KINDS + F::BLOCK_GROUPS * kind + group) * COLUMNS + column] = block.factors[kind][group];
    }
    to += F::HEADER_BYTES + column * STEP;
    const uint8_t* from = block.integers;
    for (int64_t unit = 0; unit < units; ++unit, from += UNIT, to += F::UNIT_BYTES) {
        if (F::BITS == 8) {
            for (int step = 0; step < UNIT_STEPS; ++step) std::memcpy(to + step * BYTES, from + step * STEP, STEP);
            continue;
        }
        for (int i = 0; i < UNIT; ++i) {
            const int step = i / STEP, at = i % STEP;
            to[step % 4 * BYTES + at] |= (from[i] & 15) << (step < 4 ? 0 : 4);
            if (F::BITS == 5) to[4 * BYTES + at] |= (from[i] >> 4) << step;
            if (F::BITS == 6) to[(4 + step / 4) * BYTES + at] |= (from[i] >> 4) << 2 * (step % 4);
        }
    }
}

// As `open_block` and `write_block`, for nibbles that are stored in the order of a unit: returns the block's bytes.
template <class F>
inline int64_t copy_block(const uint8_t* from, int column, uint8_t* to) {
    constexpr int size = F::SCALES == EXPONENTS ? 1 : 2;
    for (int kind = 0; kind < F::KINDS; ++kind)
        std::memcpy(to + (kind * COLUMNS + column) * size, from + kind * size, size_t(size));
    for (int step = 0; step < UNIT_STEPS / 2; ++step)
        std::memcpy(to + F::HEADER_BYTES + step * BYTES + column * STEP, from + F::KINDS * size + step * STEP, STEP);
    return F::KINDS * size + UNIT / 2;
}

template <class F>
void pack(const QuireBlockPack& call) {
    constexpr bool copies = F::BITS == 4 && (F::SCALES == HALVES || F::SCALES == EXPONENTS);
    const QuireBlockPart& part = *call.part;
    const int64_t units = block_units<F>(part), bytes = panel_bytes<F>(part, call.depth);
#pragma omp parallel for schedule(static) num_threads(call.num_threads) if (call.num_threads > 1)
    for (int64_t panel = 0; panel < divide_up(part.columns, COLUMNS); ++panel) {
        uint8_t* to = part.packed + panel * bytes;
        std::memset(to, 0, size_t(bytes));
        const int64_t rest = part.columns - panel * COLUMNS;
        OpenBlock block{};
        uint8_t integers[256];
        int64_t at = 0, next = 0;
        for (int64_t input = 0; input < call.depth; input += units * UNIT, at = next, to += block_bytes<F>(part))
            for (int column = 0; column < (rest < COLUMNS ? rest : COLUMNS); ++column) {
                const uint8_t* from = call.rows + (panel * COLUMNS + column) * call.stride + at;
                if (copies) {
                    next = at + copy_block<F>(from, column, to);
                    continue;
                }
                next = at + open_block<F>(part.type, from, part.group, integers, block);
                write_block<F>(block, units, column, to);
            }
    }
}

}  // namespace

int64_t quire_block_bytes(const QuireBlockPart* part, int64_t depth) {
    int64_t bytes = 0;
    with_format(part->type, [&](auto format) {
        bytes = divide_up(part->columns, COLUMNS) * panel_bytes<decltype(format)>(*part, depth);
    });
    return bytes;
}

void quire_block_pack(const QuireBlockPack* call) {
    with_format(call->part->type, [&](auto format) { pack<decltype(format)>(*call); });
}

int32_t quire_block_rows_float32(const QuireBlockRows* call) { return read_rows<float>(*call); }
int32_t quire_block_rows_bfloat16(const QuireBlockRows* call) { return read_rows<BFloat16>(*call); }
void quire_block_linear_float32(const QuireBlockLinear* call) { run<float>(call, 1, call->num_threads); }
void quire_block_linear_bfloat16(const QuireBlockLinear* call) { run<BFloat16>(call, 1, call->num_threads); }
void quire_block_linears_float32(const QuireBlockLinear* calls, int64_t num_calls, int64_t num_threads) {
    run<float>(calls, num_calls, num_threads);
}
void quire_block_linears_bfloat16(const QuireBlockLinear* calls, int64_t num_calls, int64_t num_threads) {
    run<BFloat16>(calls, num_calls, num_threads);
}
