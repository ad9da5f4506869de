// Runs every kernel on the same numbers and prints the results, a line each: name, then values.
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "block_linear.h"
#include "collective.h"
#include "elementwise.h"
#include "linear.h"
#include "linear_attention.h"
#include "paged_attention.h"
#include "pass.h"
#include "quantized_linear.h"
#include "short_conv.h"
#include "sizes.h"
#include "token_mask.h"
#include "vectors.h"

namespace {

template <class T>
using Array = std::vector<T>;
constexpr int32_t THREADS = 2;
uint32_t state = 1;

uint32_t random_word() {
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
}

// Numbers from -1 to 1.
template <class T>
Array<T> numbers(int64_t size) {
    Array<T> x(size);
    for (T& each : x) from_float(&each, float(int32_t(random_word())) * 0x1p-31f);
    return x;
}

template <class T>
double value_of(T x) { return x; }
double value_of(BFloat16 x) { return to_float(x); }

template <class T>
void print(const char* name, const Array<T>& x) {
    std::printf("%s/%s", name, sizeof(T) == 2 ? "bfloat16" : "float32");
    for (const T& each : x) std::printf(" %.9g", value_of(each));
    std::printf("\n");
}

#define OF(name) (sizeof(T) == 4 ? name##_float32 : name##_bfloat16)

template <class T>
void norms() {
    constexpr int64_t rows = 3, size = 77;
    const Array<T> x = numbers<T>(rows * size), weight = numbers<T>(size), bias = numbers<T>(size);
    Array<T> y = numbers<T>(rows * size), out(rows * size);
    const QuireNorm norm{x.data(), y.data(), weight.data(), out.data(), rows, size, 1e-5f, THREADS};
    const QuireCall call{reinterpret_cast<void (*)(const void*)>(OF(quire_norm)), &norm};
    quire_run(&call, 1, nullptr);
    print("sum", y);
    print("norm", out);
    const QuireLayerNorm layer_norm{x.data(), y.data(), weight.data(), bias.data(), out.data(), rows, size, 1e-5f, 1};
    OF(quire_layer_norm)(&layer_norm);
    print("layer_norm", out);
}

template <class T>
void heads() {
    constexpr int64_t tokens = 3, queries = 3, keys = 2, head_dim = 20, stride = (queries + 2 * keys) * head_dim;
    Array<T> qkv = numbers<T>(tokens * stride);
    const Array<T> cosines = numbers<T>(tokens * head_dim), sines = numbers<T>(tokens * head_dim);
    const Array<T> weight = numbers<T>(head_dim);
    const QuireRotate call{qkv.data(), tokens, stride, queries, keys, head_dim, head_dim, cosines.data(), sines.data(),
                           weight.data(), nullptr, nullptr, 1e-5f, 0.0f, 0, 0, THREADS, 1};
    OF(quire_rotate)(&call);
    print("rotate", qkv);
}

template <class T>
void states() {
    constexpr int64_t tokens = 5, keys = 2, values = 4, k_dim = 16, v_dim = 32, key_size = keys * k_dim,
                      channels = 2 * key_size + values * v_dim, width = channels + values * v_dim,
                      floats = 3 * channels + values * k_dim * v_dim;
    const Array<T> x = numbers<T>(tokens * width), gates = numbers<T>(tokens * 2 * values);
    const Array<float> conv = numbers<float>(4 * channels), bias = numbers<float>(values), norm = numbers<float>(v_dim);
    const Array<float> rates(values, -0.5f);
    Array<float> state(2 * floats);
    Array<T> out(tokens * values * v_dim);
    const Array<int64_t> runs{0, 3, -1, 0, 3, tokens, 0, 1};
    const QuireStatePlan plan{2, runs.data(), floats * 4, THREADS};
    QuireLinearAttention call{&plan, state.data(), x.data(), x.data() + key_size, x.data() + 2 * key_size,
                              x.data() + channels, gates.data(), gates.data() + values, out.data(), conv.data(),
                              nullptr, rates.data(), bias.data(), nullptr, norm.data(), width, k_dim, 2 * v_dim,
                              2 * v_dim, 2 * values, 2, keys, values, k_dim, v_dim, 1e-6f};
    OF(quire_gated_delta)(&call);
    print("gated_delta", out);
    print(sizeof(T) == 4 ? "state_of_float32" : "state_of_bfloat16", state);
    call.conv_bias = call.norm = conv.data();
    call.skip = bias.data();
    OF(quire_mamba2)(&call);
    print("mamba2", out);
    print(sizeof(T) == 4 ? "mamba2_state_of_float32" : "mamba2_state_of_bfloat16", state);
    const QuireShortConv short_conv{&plan, state.data(), x.data(), x.data() + key_size, x.data() + 2 * key_size,
                                    out.data(), conv.data(), norm.data(), width, v_dim};
    OF(quire_short_conv)(&short_conv);
    print("short_conv", Array<T>(out.begin(), out.begin() + tokens * v_dim));
    Array<T> gated(tokens * key_size);
    const QuireGateHeads gate{out.data(), x.data(), gated.data(), tokens, keys, k_dim, width, k_dim, THREADS};
    OF(quire_gate_heads)(&gate);
    print("gate_heads", gated);
}

template <class T>
void logits() {
    constexpr int64_t rows = 3, size = 1001, words = divide_up(size, 32);
    Array<T> x = numbers<T>(rows * size);
    Array<uint32_t> masks(words);
    for (uint32_t& each : masks) each = random_word();
    const Array<int64_t> masked{1};
    OF(quire_ban)(x.data(), size, size, masked.data(), 1, masks.data(), words, 1);
    print("ban", x);
    Array<float> values(rows);
    Array<int64_t> places(rows);
    OF(quire_best)(x.data(), rows, size, size, values.data(), places.data(), THREADS);
    print(sizeof(T) == 4 ? "best_of_float32" : "best_of_bfloat16", values);
    print(sizeof(T) == 4 ? "places_of_float32" : "places_of_bfloat16", places);
}

template <class T>
void maps() {
    constexpr int64_t size = 1003;
    Array<T> x = numbers<T>(size), y = numbers<T>(size), out(size);
    for (T& each : x) from_float(&each, to_float(each) * 12);
    const QuireMap call{x.data(), y.data(), out.data(), size, THREADS};
    const std::pair<const char*, void (*)(const QuireMap*)> functions[] = {
        {"add", OF(quire_add)},   {"multiply", OF(quire_multiply)}, {"silu", OF(quire_silu)},
        {"relu", OF(quire_relu)}, {"gelu", OF(quire_gelu)},         {"gelu_tanh", OF(quire_gelu_tanh)},
    };
    for (const auto& [name, function] : functions) {
        function(&call);
        print(name, out);
    }
}

template <class T>
struct Packed {
    Array<T> weight, packed;
    QuireWeight panels;
    Packed(int64_t columns, int64_t depth) : weight(numbers<T>(columns * depth)) {
        const int64_t rounded = round_up(depth, OF(quire_linear_depth)());
        packed.resize(round_up(columns, quire_linear_panel()) * rounded);
        const QuirePack call{weight.data(), depth, depth, columns, packed.data()};
        OF(quire_pack)(&call);
        panels = {packed.data(), nullptr, ~0u, 0};
    }
};

struct Compact {
    Array<QuirePanel> entries;
    Array<uint8_t> packed;
    QuireWeight panels;
    Compact(const Array<BFloat16>& weight, int64_t columns, int64_t depth)
        : entries(divide_up(columns, quire_linear_panel()) + 1) {
        QuireCompact call{weight.data(), depth, depth, columns, entries.data(), nullptr, THREADS};
        quire_compact(&call);
        packed.resize(entries.back().start);
        call.packed = packed.data();
        quire_compact(&call);
        panels = {packed.data(), entries.data(), ~0u, 0};
    }
};

// Prints the products and rows of weights in another form or with more bits.
template <class T>
void print_forms(const char* name, const char* rows_name, QuireWeight panels, int64_t columns, int64_t depth) {
    const Array<T> words = numbers<T>(3 * depth);
    Array<T> bits(words);
    uint32_t low = 0x000f000f;
    for (size_t i = 0; i < bits.size(); ++i) std::memcpy(&bits[i], &low, sizeof(T));
    const QuireBits more{&panels, depth, columns, 31, 3, bits.data(), THREADS};
    OF(quire_add_bits)(&more);
    for (uint32_t kept : {~0u, 0xfff0fff0u}) {
        panels.kept = kept;
        panels.middle = kept == ~0u ? 0 : 0x00080008;
        for (int64_t rows : {1, 2, 9, 50}) {
            const Array<T> x = numbers<T>(rows * depth);
            Array<T> out(rows * columns);
            const QuireLinear call{x.data(), depth, rows, depth, columns, &panels, nullptr, nullptr, nullptr,
                                   out.data(), columns, 0, THREADS};
            OF(quire_linear)(&call);
            print(name, out);
        }
        const Array<int64_t> ids{31, 69, 0};
        Array<T> taken(ids.size() * depth);
        const QuireRows call{&panels, depth, columns, int64_t(ids.size()), ids.data(), taken.data(), 1};
        OF(quire_rows)(&call);
        print(rows_name, taken);
    }
}

template <class T>
void products() {
    constexpr int64_t depth = 150, columns = 70;
    const Packed<T> weight(columns, depth), up(columns, depth);
    const Array<T> bias = numbers<T>(columns);
    for (int64_t rows : {1, 5, 33}) {
        const Array<T> x = numbers<T>(rows * depth);
        Array<T> out(rows * columns);
        QuireLinear call{x.data(), depth, rows, depth, columns, &weight.panels, bias.data(), nullptr, nullptr,
                         out.data(), columns, 0, THREADS};
        OF(quire_linear)(&call);
        print("linear", out);
        call.up = &up.panels;
        call.silu = 1;
        OF(quire_linear)(&call);
        print("gated_linear", out);
    }
    const Array<int64_t> ids{3, 69, 0};
    Array<T> rows(ids.size() * depth);
    const QuireRows call{&weight.panels, depth, columns, int64_t(ids.size()), ids.data(), rows.data(), 1};
    OF(quire_rows)(&call);
    print("rows", rows);
    print_forms<T>("masked_linear", "masked_rows", weight.panels, columns, depth);
    if constexpr (sizeof(T) == 2) {
        const Compact compact(weight.weight, columns, depth);
        print_forms<T>("compact_linear", "compact_rows", compact.panels, columns, depth);
    }
}

struct Quantized {
    Array<uint8_t> packed;
    Array<float> scales;
    QuireQuantizedWeight weight;
    template <class T>
    Quantized(const Array<T>& from, int64_t columns, int64_t depth, int32_t bits)
        : packed(quire_quantized_bytes(columns, depth, bits)), scales(round_up(columns, 32)) {
        const QuireQuantize call{from.data(), depth, depth, columns, packed.data(), scales.data(), bits, THREADS};
        OF(quire_quantize)(&call);
        weight = {packed.data(), scales.data(), depth, columns, bits};
    }
};

template <class T>
void quantized_products(int32_t bits) {
    constexpr int64_t depth = 200, columns = 70;
    const Quantized weight(numbers<T>(columns * depth), columns, depth, bits);
    const Quantized up(numbers<T>(columns * depth), columns, depth, bits);
    const Array<T> bias = numbers<T>(columns);
    for (int64_t rows : {1, 5, 33}) {
        const Array<T> x = numbers<T>(rows * depth);
        Array<T> out(rows * columns);
        for (int32_t form : {QUIRE_PLAIN, QUIRE_SILU, QUIRE_GATED}) {
            const QuireQuantizedLinear call{&weight.weight, bias.data(), &up.weight, nullptr, x.data(), depth, rows,
                                            out.data(), form, THREADS};
            OF(quire_quantized_linear)(&call);
            print(bits == 8 ? "int8" : "int4", out);
        }
    }
}

struct Type {
    QuireBlockType type;
    int64_t inputs, bytes;
    Array<int64_t> halves;  // places of float16 numbers
};

struct Encoded {
    Array<uint8_t> packed;
    QuireBlockPart part;
    QuireBlockWeight weight;
    Encoded(const Type& type, int64_t columns, int64_t depth) : part{nullptr, columns, 0, type.type} {
        const int64_t blocks = depth / type.inputs;
        Array<uint8_t> rows(columns * blocks * type.bytes);
        for (uint8_t& each : rows) each = uint8_t(random_word() >> 8);
        for (int64_t at = 0; at < int64_t(rows.size()); at += type.bytes) {
            for (int64_t half : type.halves) rows[at + half + 1] = 0x20 | (rows[at + half + 1] & 0x8f);
            if (type.halves.empty()) rows[at] = 120 + rows[at] % 8;
        }
        packed.resize(quire_block_bytes(&part, depth));
        part.packed = packed.data();
        const QuireBlockPack call{&part, rows.data(), blocks * type.bytes, depth, THREADS};
        quire_block_pack(&call);
        weight = {&part, 1, depth, nullptr};
    }
};

template <class T>
void block_products() {
    constexpr int64_t depth = 512, columns = 70;
    const Array<Type> types{{QUIRE_Q4_0, 32, 18, {0}},      {QUIRE_Q5_1, 32, 24, {0, 2}},   {QUIRE_Q8_0, 32, 34, {0}},
                            {QUIRE_Q4_K, 256, 144, {0, 2}}, {QUIRE_Q5_K, 256, 176, {0, 2}}, {QUIRE_Q6_K, 256, 210, {208}},
                            {QUIRE_IQ4_XS, 256, 136, {0}},  {QUIRE_MXFP4, 32, 17, {}}};
    const Encoded up(types[0], columns, depth);
    const Array<int64_t> ids{0, 33, 69};
    for (const Type& type : types) {
        const Encoded weight(type, columns, depth);
        const Array<T> bias = numbers<T>(columns), x = numbers<T>(9 * depth);
        Array<T> out(9 * columns), decoded(ids.size() * depth);
        const QuireBlockLinear call{&weight.weight, bias.data(), &up.weight, nullptr,           x.data(), depth, 9,
                                    out.data(),     columns,     QUIRE_BLOCK_SILU, THREADS};
        OF(quire_block_linear)(&call);
        print("blocks", out);
        const QuireBlockRows rows{&weight.weight, ids.data(), int64_t(ids.size()), decoded.data(), THREADS};
        OF(quire_block_rows)(&rows);
        print("block_rows", decoded);
    }
}

// A prompt, a chunk of another, and two decoding sequences, of which one has several spans.
template <class T>
void attention() {
    constexpr int64_t kv_heads = 2, groups = 3, block_size = 16, head_dim = 20, width = kv_heads * groups * head_dim;
    const Array<int64_t> starts{0, 20, 27, 28, 29}, lens{20, 60, 300, 9};
    const int64_t tokens = starts.back(), table_stride = 20, part = 2 * kv_heads * block_size * head_dim;
    Array<int32_t> tables(lens.size() * table_stride);
    Array<int64_t> slots;
    for (size_t i = 0; i < tables.size(); ++i) tables[i] = int32_t(i * 7 % tables.size());
    for (size_t i = 0; i < lens.size(); ++i)
        for (int64_t at = lens[i] - (starts[i + 1] - starts[i]); at < lens[i]; ++at)
            slots.push_back(tables[i * table_stride + at / block_size] * block_size + at % block_size);
    Array<T> cache = numbers<T>(tables.size() * part), out(tokens * width);
    const Array<T> q = numbers<T>(tokens * width), kv = numbers<T>(2 * tokens * kv_heads * head_dim);
    Array<QuireUnit> units(100);
    Array<QuireMerge> merges(100);
    Array<int64_t> places(100);
    QuirePlan plan{part, kv_heads, groups, block_size, head_dim, head_dim, part / 2, head_dim, 1 << 30, 0.3f, 0.0f, 1,
                   THREADS, tokens, slots.data(), tables.data(), table_stride, 0, units.data(), 0, merges.data(),
                   places.data(), nullptr};
    const QuireBatch batch{int64_t(lens.size()), starts.data(), lens.data()};
    Array<float> partials(quire_divide(&plan, &batch) * kv_heads * groups * (head_dim + 2));
    plan.partials = partials.data();
    const T* v = kv.data() + tokens * kv_heads * head_dim;
    const QuireAttention call{&plan, cache.data(), q.data(), kv.data(), v, nullptr, out.data(), width, head_dim,
                              kv_heads * head_dim, head_dim, kv_heads * head_dim, head_dim};
    OF(quire_attend)(&call);
    print("attention", out);
}

template <class T>
void collective() {
    constexpr int64_t size = 50'001;
    Array<T> x[] = {numbers<T>(size), numbers<T>(size)};
    constexpr int64_t part_bytes = 1 << 14;
    Array<char> memory(2 * (64 + 2 * part_bytes) + 64);
    char* first = memory.data() + -reinterpret_cast<intptr_t>(memory.data()) % 64 + 64;
    const auto reduce = [&](int rank) {
        QuireCollective call{first, part_bytes, rank, 2, 0, 0, 0, 100'000'000};
        if (!OF(quire_all_reduce)(&call, x[rank].data(), size)) std::printf("timeout\n");
    };
    std::thread other(reduce, 1);
    reduce(0);
    other.join();
    print("all_reduce", x[0]);
    print("all_reduce", x[1]);
}

// Of random words, as 16 bits each; NaN, which any bits may be, as zero.
void conversions() {
    constexpr int64_t size = 5003;
    const Array<float> floats = numbers<float>(size);
    const Array<double> doubles(floats.begin(), floats.end());
    Array<uint32_t> words(size);
    for (uint32_t& each : words) each = random_word();
    const void* sources[] = {words.data(), words.data(), words.data(), doubles.data()};
    for (int32_t from : {QUIRE_FLOAT32, QUIRE_BFLOAT16, QUIRE_FLOAT16, QUIRE_FLOAT64}) {
        for (int32_t to : {QUIRE_FLOAT32, QUIRE_BFLOAT16, QUIRE_FLOAT16}) {
            Array<uint16_t> out(2 * size);
            const QuireConvert call{sources[from], out.data(), size, from, to, THREADS};
            quire_convert(&call);
            Array<float> wide(size);
            const QuireConvert widen{out.data(), wide.data(), size, to, QUIRE_FLOAT32, THREADS};
            quire_convert(&widen);
            for (float& each : wide) each = std::isnan(each) ? 0 : each;
            print("convert", wide);
        }
        for (int64_t count : {size, int64_t(1)})
            print("is_finite", Array<float>{float(quire_is_finite(sources[from], count, from, THREADS))});
    }
}

template <class T>
void run() {
    norms<T>();
    heads<T>();
    logits<T>();
    maps<T>();
    products<T>();
    quantized_products<T>(8);
    quantized_products<T>(4);
    block_products<T>();
    attention<T>();
    collective<T>();
}

}  // namespace

int main() {
    run<float>();
    run<BFloat16>();
    conversions();
    states<float>();
    states<BFloat16>();
}
