// Linear layers over packed weights: limited by memory for few rows, by arithmetic for many.
//
// A thread lays out a block of rows once, and multiplies it by one panel after the other. Bias, silu and gating are
// applied while the sums are in the L1 cache.
#include "linear.h"

#if defined(__AVX512BF16__)
#include <cpuid.h>
#endif
#include <numeric>
#include <type_traits>
#include <vector>

#include "kept.h"
#include "linear_amx.h"
#include "panels.h"

namespace {

constexpr int64_t BLOCK_BYTES = 1 << 19;  // of rows laid out together: at most half of a core's L2 cache
constexpr int64_t SLICE = 2048;           // most inputs laid out at once, if all are too many
constexpr int64_t SUMS_BYTES = 8 << 20;   // of sums kept for the next slice
constexpr int64_t TASKS_PER_THREAD = 16;  // of several calls, whose numbers of rows differ
// Depth of a compact panel that is decoded at once for many rows. Products of tiles leave the L1 cache to it.
#if defined(__AMX_BF16__)
constexpr int64_t DECODED = 4 * PART;
#elif defined(__AVX512F__)
constexpr int64_t DECODED = 32 * PART;
#else
constexpr int64_t DECODED = 16 * PART;
#endif

// -- epilogue: from a tile's sums to the output ------------------------------------------------------------------------

struct Panel {
    Floats half[2];
};

template <class T>
inline Panel with_bias(const float* sums, const T* bias) {
    Panel x = {{load_floats(sums), load_floats(sums + W)}};
    if (bias)
        for (int i = 0; i < 2; ++i) x.half[i] += load_floats(bias + i * W);
    return x;
}

inline void put(float* to, const Panel& x) {
    store(to, x.half[0]);
    store(to + W, x.half[1]);
}
inline void put(BFloat16* to, const Panel& x) {
#if defined(__AVX512BF16__)
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh((__m512)x.half[1], (__m512)x.half[0]));
#else
    store_floats(to, x.half[0]);
    store_floats(to + W, x.half[1]);
#endif
}

// Biases of one panel: the caller's memory, or a zero-padded copy.
template <class T>
inline const T* panel_of(const void* bias, int64_t column, int64_t columns, T (&filled)[OUTPUTS]) {
    if (!bias) return nullptr;
    const T* from = static_cast<const T*>(bias) + column;
    if (columns == OUTPUTS) return from;
    std::memset(filled, 0, sizeof filled);
    std::memcpy(filled, from, size_t(columns) * sizeof(T));
    return filled;
}

template <class T>
void finish(const QuireLinear& call, const float* sums, const float* up_sums, int64_t first_row, int64_t rows,
            int64_t column) {
    const int64_t columns = smaller(OUTPUTS, call.out_features - column);
    T filled[2][OUTPUTS];
    const T* bias = panel_of(call.bias, column, columns, filled[0]);
    const T* up_bias = panel_of(call.up_bias, column, columns, filled[1]);
    const int64_t first = first_row * call.out_stride + column;
    T* out = static_cast<T*>(call.out) + first;
    for (int64_t row = 0; row < rows; ++row, sums += OUTPUTS, out += call.out_stride) {
        const int64_t at = first + row * call.out_stride;
        Panel y = with_bias(sums, bias);
        const AddedRow<OUTPUTS> added(call.addend, at, columns), up_added(call.up_addend, at, columns);
        for (int i = 0; i < 2; ++i) y.half[i] = added.to(y.half[i], i * W);
        if (call.silu)
            for (Floats& half : y.half) half = silu<T>(half);
        if (up_sums) {
            const Panel up = with_bias(up_sums + row * OUTPUTS, up_bias);
            for (int i = 0; i < 2; ++i) y.half[i] *= up_added.to(up.half[i], i * W);
        }
        if (columns == OUTPUTS) {
            put(out, y);
        } else {
            T part[OUTPUTS];
            put(part, y);
            std::memcpy(out, part, size_t(columns) * sizeof(T));
        }
    }
}

// Whether one tile prefetches its own stream: as ASKS_AHEAD, but Zen 5 gains up to a fifth, from 4 rows on.
inline bool asks_ahead() {
#if defined(__AVX512BF16__)
    static const bool is_zen5 = [] {
        unsigned a = 0, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (a >> 8 & 15) == 15 && (a >> 20 & 255) >= 11;  // family 26
    }();
    return ASKS_AHEAD || is_zen5;
#else
    return true;
#endif
}

// -- rows by panels ---------------------------------------------------------------------------------------------------

// A thread's block of rows, with a slice [first, end) of their inputs.
template <class Tile>
struct Block {
    typename Tile::Left* left;
    int64_t first_row, rows, first, end;
};

template <class Tile>
inline int64_t tile_rows(const Block<Tile>& block) {
    return round_up(divide_up(block.rows, divide_up(block.rows, Tile::MOST)), Tile::ROWS);
}

// A block's rows, from `first_row` on, by the inputs [from, to) of its slice of a panel, tile by tile. With several tiles,
// each step prefetches a bit of the next panel at `ahead`, so that its first tile need not wait for memory.
template <class Right, class Tile, class Finish>
inline void multiply_tiles(const Block<Tile>& block, int64_t first_row, const Right* panel, int64_t from, int64_t to,
                           int64_t depth, float* sums, const char* ahead, int64_t bytes_ahead, Finish&& finish_tile) {
    const int64_t tiles = divide_up(block.rows, Tile::MOST), slice = block.end - block.first;
    const int64_t part = tiles > 1 ? smaller(to - from, Tile::DEPTH_PART) : to - from;
    const int64_t lines = tiles > 1 || asks_ahead() ? divide_up(bytes_ahead / 64, tiles) : 0;
    for (int64_t first = from; first < to; first += part) {
        const int64_t end = smaller(first + part, to);
        for (int64_t row = first_row; row < block.rows; row += tile_rows(block)) {
            const int64_t count = smaller(tile_rows(block), block.rows - row);
            Tile::multiply(block.left, row, count, slice, first, end, block.first + first > 0, panel - from * OUTPUTS,
                           sums + row * OUTPUTS, ahead, lines);
            ahead += (end - first) / 32 * lines * 64;
            if (block.first + end == depth) finish_tile(row, count);
        }
    }
}

// Multiplies all rows of a block by one panel. Words that are not in memory are decoded in registers for few rows, else
// part by part into the cache. The sums are the same.
template <class T, class Tile, class Finish>
inline void multiply(const Block<Tile>& block, const PanelReader<T>& panel, int64_t depth, float* sums,
                     Decoded<T>* decoded, Finish&& finish_tile) {
    const int64_t slice = block.end - block.first;
    using Plain = std::conditional_t<WIDENS<T>, RowTile<float>, Tile>;
    const Block<Plain> plain{block.left, block.first_row, block.rows, block.first, block.end};
    const bool widens = WIDENS<T> && tile_rows(plain) > Tile::MOST;  // pays for tiles of more rows
    if (panel.is_plain() && (!widens || std::is_same_v<Decoded<T>, T>)) {
        const T* from = panel.data() + block.first * OUTPUTS;
        const int64_t next = block.rows > Plain::MOST ? depth * OUTPUTS * int64_t(sizeof(T)) : AHEAD;
        const char* ahead = reinterpret_cast<const char*>(from) + next;
        const int64_t bytes_ahead = OUTPUTS * 32 * int64_t(sizeof(T));
        if (widens) return multiply_tiles(plain, 0, from, 0, slice, depth, sums, ahead, bytes_ahead, finish_tile);
        return multiply_tiles(block, 0, from, 0, slice, depth, sums, ahead, bytes_ahead, finish_tile);
    }
    // Several tiles read the next panel ahead.
    const int64_t distance = block.rows > Tile::MOST ? panel.near(depth) - panel.near(0) : COMPACT_AHEAD;
    constexpr bool reads_words = std::is_same_v<Tile, RowTile<T>>;
    if constexpr (reads_words) {
        const int64_t most = widens ? tile_rows(plain) : tile_rows(block);
        if (WIDENS<T> ? !widens || (most == Tile::MOST_SPLIT && block.rows <= 2 * most) : block.rows <= 3 * Tile::MOST) {
            // decoding again costs less than storing
            for (int64_t row = 0, count; row < block.rows; row += count) {
                count = smaller(most, block.rows - row);
                panel.with_source(block.first, [&](const auto& source) {
                    const auto multiply_by = [&](auto tile, const auto& words) {
                        decltype(tile)::multiply(block.left, row, count, slice, 0, slice, block.first > 0, words,
                                                 sums + row * OUTPUTS, 0);
                    };
                    if constexpr (WIDENS<T>)
                        if (widens) return multiply_by(Plain{}, SplittingSource<std::decay_t<decltype(source)>>{source});
                    multiply_by(Tile{}, source);
                }, distance);
                if (block.end == depth) finish_tile(row, count);
            }
            return;
        }
    }
    for (int64_t from = 0; from < slice; from += DECODED) {
        const int64_t to = smaller(from + DECODED, slice), first = block.first + from;
        const char* ahead = panel.near(block.first + to);
        const int64_t bytes_ahead = panel.near(32) - panel.near(0);
        if constexpr (reads_words && !WIDENS<T>) {  // the first tile decodes for the others
            const int64_t count = tile_rows(block);
            panel.with_source(first, [&](const auto& source) {
                const StoringSource<T, std::decay_t<decltype(source)>> storing{source, decoded};
                Tile::multiply(block.left, 0, count, slice, from, to, first > 0, storing, sums, 0);
            }, distance);
            if (block.first + to == depth) finish_tile(0, count);
            multiply_tiles(block, count, decoded, from, to, depth, sums, ahead, bytes_ahead, finish_tile);
        } else {
            panel.read(first, block.first + to, decoded);
            multiply_tiles(plain, 0, decoded, from, to, depth, sums, ahead, bytes_ahead, finish_tile);
        }
    }
}

// Multiplies few rows by two panels at once; returns false if it does not.
template <class T, class Tile>
inline bool multiply_both(const Block<Tile>& block, const PanelReader<T>& one, const PanelReader<T>& other, float* sums,
                          float* other_sums) {
    bool is_done = false;
    if constexpr (PAIRED_ROWS > 0 && std::is_same_v<Tile, RowTile<T>>)
        one.with_source(0, [&](const auto& first) {
            other.with_source(0, [&](const auto& second) {
                using First = std::decay_t<decltype(first)>;
                using Second = std::decay_t<decltype(second)>;
                if constexpr (std::is_same_v<First, Second>) {
                    Tile::multiply(block.left, 0, block.rows, block.end, 0, block.end, false,
                                   PairSource<First, Second>{first, second}, sums, other_sums - sums);
                    is_done = true;
                }
            });
        });
    return is_done;
}

// Division of a call: blocks of rows by groups of panels. A block's rows stay in the L2 cache while a group's panels
// pass. In deep layers few rows would fit, and the weight would be read for each few: there a block has more rows, whose
// depth is laid out in slices, and the group's sums are kept for the next slice.
template <class T, class Tile>
struct Cut {
    Cut(const QuireLinear& call, int64_t num_calls, int64_t num_threads)
        : depth(round_up(call.in_features, DEPTH<T>)), panels(divide_up(call.out_features, OUTPUTS)) {
        constexpr int64_t bytes = sizeof(typename Tile::Left);
        const int64_t slices = call.num_rows * depth * bytes <= BLOCK_BYTES ? 1 : divide_up(depth, SLICE);
        slice = slices > 1 ? round_up(divide_up(depth, slices), PART) : depth;
        const int64_t most = larger(1, BLOCK_BYTES / (slice * bytes) / Tile::MOST) * Tile::MOST;
        blocks = divide_up(call.num_rows, most);
        block_rows = round_up(divide_up(call.num_rows, blocks), Tile::ROWS);
        num_sums = (block_rows + Tile::MOST) * OUTPUTS;
        // Each group lays out the block again: use no more groups than balance the threads, or than fit.
        groups = num_calls == 1 ? num_threads / std::gcd(blocks, num_threads)
                                : divide_up(TASKS_PER_THREAD * num_threads, num_calls * blocks);
        if (slices > 1) groups = larger(groups, divide_up(panels * 2 * num_sums * int64_t(sizeof(float)), SUMS_BYTES));
        groups = smaller(groups, panels);
        panels_kept = slices > 1 ? divide_up(panels, groups) : 1;
    }

    int64_t depth, panels, slice, blocks, block_rows, groups;
    int64_t num_sums;     // per panel
    int64_t panels_kept;  // panels with kept sums
};

// One task of a call: a block of rows by a group of panels. `block` is the thread's last one, and may be this one.
template <class T, class Tile>
void multiply_group(const QuireLinear& call, const Cut<T, Tile>& cut, int64_t task, Block<Tile>& block,
                    Decoded<T>* decoded, float* sums) {
    const int64_t first_row = task / cut.groups * cut.block_rows, group = task % cut.groups;
    const int64_t first_panel = cut.panels * group / cut.groups, end_panel = cut.panels * (group + 1) / cut.groups;
    for (int64_t first = 0; first < cut.depth; first += cut.slice) {
        if (block.first_row != first_row || block.first != first) {
            block = {block.left, first_row, smaller(cut.block_rows, call.num_rows - first_row), first,
                     smaller(first + cut.slice, cut.depth)};
            Tile::lay_out(static_cast<const T*>(call.x) + first_row * call.x_stride + first, call.x_stride, block.rows,
                          smaller(block.end, call.in_features) - first, block.end - first, block.left);
        }
        const auto of = [&](const QuireWeight* weight, int64_t panel) { return PanelReader<T>(*weight, panel, cut.depth); };
        const auto sums_of = [&](int64_t panel) {
            return sums + (panel - first_panel) % cut.panels_kept * 2 * cut.num_sums;
        };
        const auto finish_panel = [&](int64_t panel, const float* own, int64_t row, int64_t count) {
            finish<T>(call, own + row * OUTPUTS, call.up ? own + cut.num_sums + row * OUTPUTS : nullptr, first_row + row,
                      count, panel * OUTPUTS);
        };
        const auto multiply_one = [&](int64_t panel) {
            float *own = sums_of(panel), *up = own + cut.num_sums;
            if (call.up) multiply(block, of(call.up, panel), cut.depth, up, decoded, [](int64_t, int64_t) {});
            multiply(block, of(call.weight, panel), cut.depth, own, decoded,
                     [&](int64_t row, int64_t count) { finish_panel(panel, own, row, count); });
        };
        // The panels of a pair are those of both weights, or from both halves: each half is read sequentially.
        const bool is_paired = block.rows <= PAIRED_ROWS && cut.slice == cut.depth;
        const int64_t half = is_paired && !call.up ? (end_panel - first_panel) / 2 : 0;
        for (int64_t panel = first_panel; panel < end_panel - half; ++panel) {
            const int64_t other = panel - first_panel < half ? panel + end_panel - half - first_panel : panel;
            float *own = sums_of(panel), *second = own + cut.num_sums;
            if (is_paired && (call.up || other != panel) &&
                multiply_both(block, of(call.weight, panel), of(call.up ? call.up : call.weight, other), own, second)) {
                finish_panel(panel, own, 0, block.rows);
                if (!call.up) finish_panel(other, second, 0, block.rows);
                continue;
            }
            multiply_one(panel);
            if (other != panel) multiply_one(other);
        }
    }
}

// Calls of any numbers of rows, all tasks in one parallel region.
template <class T, class Tile>
void run(const QuireLinear* calls, int64_t num_calls, int64_t num_threads) {
    using Left = typename Tile::Left;
    std::vector<Cut<T, Tile>> cuts;
    cuts.reserve(size_t(num_calls));
    int64_t num_tasks = 0, left_size = 0, sums_size = 0, most_rows = 0;
    for (int64_t i = 0; i < num_calls; ++i) {
        const Cut<T, Tile>& cut = cuts.emplace_back(calls[i], num_calls, num_threads);
        num_tasks += cut.blocks * cut.groups;
        left_size = larger(left_size, Tile::size(cut.block_rows, cut.slice));
        sums_size = larger(sums_size, 2 * cut.panels_kept * cut.num_sums);
        most_rows = larger(most_rows, calls[i].num_rows);
    }
#pragma omp parallel num_threads(num_threads) if (num_threads > 1)
    {
        static thread_local Kept kept_left, kept_sums, kept_decoded;
        Block<Tile> block{kept_left.of<Left>(left_size), -1, 0, 0, 0};
        float* sums = kept_sums.of<float>(sums_size);
        Decoded<T>* decoded = kept_decoded.of<Decoded<T>>(DECODED * OUTPUTS);
#if defined(__AMX_BF16__)
        using Registers = std::conditional_t<std::is_same_v<Tile, AmxTile>, Tiles, int>;
        const Registers registers{int(smaller(most_rows, Tile::ROWS))};
        (void)registers;
#endif
        int64_t call = 0, first_task = 0;  // of the thread's last task
#pragma omp for schedule(monotonic : dynamic)
        for (int64_t task = 0; task < num_tasks; ++task) {
            for (int64_t count; task >= first_task + (count = cuts[call].blocks * cuts[call].groups); ++call) {
                first_task += count;
                block.first_row = -1;
            }
            multiply_group(calls[call], cuts[call], task - first_task, block, decoded, sums);
        }
    }
}

template <class T>
void run(const QuireLinear* calls, int64_t num_calls, int64_t num_threads) {
#if defined(__AMX_BF16__)
    using Tile = std::conditional_t<sizeof(T) == 2, AmxTile, RowTile<T>>;  // for any number of rows: one order of sums
#else
    using Tile = RowTile<T>;
#endif
    run<T, Tile>(calls, num_calls, num_threads);
}
template <class T>
void run(const QuireLinear& call) {
    if (call.num_rows) run<T>(&call, 1, call.num_threads);
}

// A product per head, whose rows are apart by all heads.
template <class T>
void multiply_heads(const QuireHeads& call) {
    if (!call.num_rows) return;
    std::vector<QuireLinear> heads(call.weights, call.weights + call.num_heads);
    const int64_t inputs = heads[0].in_features + call.num_copied, outputs = heads[0].out_features + call.num_copied;
    const T* x = static_cast<const T*>(call.x);
    T* out = static_cast<T*>(call.out);
    for (int64_t head = 0; head < call.num_heads; ++head) {
        QuireLinear& each = heads[size_t(head)];
        each.x = x + head * inputs;
        each.x_stride = call.num_heads * inputs;
        each.num_rows = call.num_rows;
        each.out = out + head * outputs;
        each.out_stride = call.num_heads * outputs;
    }
    run<T>(heads.data(), call.num_heads, call.num_threads);
    for (int64_t i = 0; call.num_copied && i < call.num_rows * call.num_heads; ++i)
        std::memcpy(out + (i + 1) * outputs - call.num_copied, x + (i + 1) * inputs - call.num_copied,
                    size_t(call.num_copied) * sizeof(T));
}

// -- low-rank adapters ------------------------------------------------------------------------------------------------

// to = from, or to += from, in float32.
template <bool ADDS, class From, class To>
void move(const From* from, int64_t size, To* to) {
    int64_t at = 0;
    for (; at + W <= size; at += W)
        store_floats(to + at, ADDS ? load_floats(to + at) + load_floats(from + at) : load_floats(from + at));
    for (; at < size; ++at) from_float(to + at, ADDS ? to_float(to[at]) + to_float(from[at]) : to_float(from[at]));
}

template <class T, bool ADDS>
void low_rank(const QuireLowRank& call) {
    static thread_local Kept kept_x, kept_sums, kept_out;
    constexpr int64_t block = 64;  // rows, whose outputs stay in the L2 cache
    const int64_t depth = call.in_features, width = call.out_features, threads = call.num_threads;
    if (!call.rank) {
        std::memset(call.y, 0, size_t(call.num_rows * width) * sizeof(float));
        return;
    }
    float *x = kept_x.of<float>(block * depth), *sums = kept_sums.of<float>(block * call.rank);
    for (int64_t first = 0; first < call.num_rows; first += block) {
        const int64_t rows = smaller(block, call.num_rows - first);
        for (int64_t row = 0; row < rows; ++row)
            move<false>(static_cast<const T*>(call.x) + (first + row) * call.x_stride, depth, x + row * depth);
        run<float>({x, depth, rows, depth, call.rank, call.down, nullptr, nullptr, nullptr, sums, call.rank, 0,
                    int32_t(threads)});
        float* out = ADDS ? kept_out.of<float>(block * width) : static_cast<float*>(call.y) + first * width;
        run<float>({sums, call.rank, rows, call.rank, width, call.up, nullptr, nullptr, nullptr, out, width, 0,
                    int32_t(threads)});
        if (!ADDS) continue;
        T* y = static_cast<T*>(call.y) + first * width;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
        for (int64_t row = 0; row < rows; ++row) move<true>(out + row * width, width, y + row * width);
    }
}

}  // namespace

void quire_linear_float32(const QuireLinear* call) { run<float>(*call); }
void quire_linear_bfloat16(const QuireLinear* call) { run<BFloat16>(*call); }
void quire_linears_float32(const QuireLinear* calls, int64_t num_calls, int64_t num_threads) {
    run<float>(calls, num_calls, num_threads);
}
void quire_linears_bfloat16(const QuireLinear* calls, int64_t num_calls, int64_t num_threads) {
    run<BFloat16>(calls, num_calls, num_threads);
}
void quire_heads_float32(const QuireHeads* call) { multiply_heads<float>(*call); }
void quire_heads_bfloat16(const QuireHeads* call) { multiply_heads<BFloat16>(*call); }
void quire_low_rank_float32(const QuireLowRank* call) { low_rank<float, true>(*call); }
void quire_low_rank_bfloat16(const QuireLowRank* call) { low_rank<BFloat16, true>(*call); }
void quire_write_low_rank_float32(const QuireLowRank* call) { low_rank<float, false>(*call); }
void quire_write_low_rank_bfloat16(const QuireLowRank* call) { low_rank<BFloat16, false>(*call); }
