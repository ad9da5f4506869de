// Reads panels of any form: plain, with some bits masked, or compact (see linear.h).
//
// A compact panel is [divide_up(depth, PART)] ends of each part's exceptions (uint32), the exceptions (uint32: place in the
// part << 16 | word), and from the next cache line on the units. A unit holds four inputs of all outputs, two steps of a
// plain panel: codes, the first step's in the low nibble, and the low bytes of each step. A code is a sign and the index
// of a high byte without its sign. Low bytes lie as an unpacking of 16 bytes with 16 others gives them.
#pragma once

#include "linear.h"
#include "linear_tile.h"

namespace {

constexpr int64_t PART = 64;                      // depth with exceptions of its own
constexpr int64_t STEP_WEIGHTS = 2 * OUTPUTS;     // in a step of the plain panel, and bytes of a vector
constexpr int64_t UNIT_BYTES = 3 * STEP_WEIGHTS;  // of two steps
constexpr int64_t COMPACT_AHEAD = 6144;           // prefetch distance in bytes

#if defined(__AVX512BW__)
using Bytes = __m512i;
inline Bytes table_of(uint64_t high) {
    return _mm512_broadcast_i32x4(_mm_set_epi64x(int64_t(high | 0x8080808080808080), int64_t(high)));
}
inline Bytes low_nibbles(Bytes x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes x) { return low_nibbles(_mm512_srli_epi16(x, 4)); }
inline Bytes look_up(Bytes table, Bytes codes) { return _mm512_shuffle_epi8(table, codes); }
inline Bytes lower_words(Bytes low, Bytes high) { return _mm512_unpacklo_epi8(low, high); }
inline Bytes upper_words(Bytes low, Bytes high) { return _mm512_unpackhi_epi8(low, high); }
#elif defined(__AVX2__)
using Bytes = __m256i;
inline Bytes table_of(uint64_t high) {
    return _mm256_broadcastsi128_si256(_mm_set_epi64x(int64_t(high | 0x8080808080808080), int64_t(high)));
}
inline Bytes low_nibbles(Bytes x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes x) { return low_nibbles(_mm256_srli_epi16(x, 4)); }
inline Bytes look_up(Bytes table, Bytes codes) { return _mm256_shuffle_epi8(table, codes); }
inline Bytes lower_words(Bytes low, Bytes high) { return _mm256_unpacklo_epi8(low, high); }
inline Bytes upper_words(Bytes low, Bytes high) { return _mm256_unpackhi_epi8(low, high); }
#else
typedef uint8_t Bytes __attribute__((vector_size(16)));
inline Bytes table_of(uint64_t high) {
    const uint64_t both[2] = {high, high | 0x8080808080808080};
    return load<Bytes>(both);
}
inline Bytes low_nibbles(Bytes x) { return x & 15; }
inline Bytes high_nibbles(Bytes x) { return x >> 4; }
inline Bytes look_up(Bytes table, Bytes codes) {
    for (int i = 0; i < 16; ++i) codes[i] = table[codes[i]];
    return codes;
}
inline Bytes lower_words(Bytes low, Bytes high) {
    Bytes words;
    for (int i = 0; i < 16; ++i) words[i] = i % 2 ? high[i / 2] : low[i / 2];
    return words;
}
inline Bytes upper_words(Bytes low, Bytes high) {
    Bytes words;
    for (int i = 0; i < 16; ++i) words[i] = i % 2 ? high[8 + i / 2] : low[8 + i / 2];
    return words;
}
#endif
static_assert(sizeof(Bytes) == STEP_WEIGHTS);

// Place of a step's weight among its low bytes.
constexpr int64_t byte_place(int64_t weight) {
    const int64_t half = weight / OUTPUTS, at = weight % OUTPUTS;
    return at / 8 * 16 + half * 8 + at % 8;
}

// Where the parts of a compact panel begin.
struct CompactPanel {
    CompactPanel(const uint8_t* panel, int64_t depth)
        : ends(reinterpret_cast<const uint32_t*>(panel)), exceptions(ends + divide_up(depth, PART)),
          units(panel + round_up((exceptions + exceptions[-1] - ends) * 4, 64)) {}
    const uint32_t *ends, *exceptions;
    const uint8_t* units;
};

// The bits that a weight keeps of each word.
struct Mask {
    explicit Mask(const QuireWeight& weight) : kept(Words{} + weight.kept), middle(Words{} + weight.middle) {}
    Words operator()(Words words) const { return (words & kept) | middle; }
    Words kept, middle;
};

// The words of a plain panel with some bits masked.
template <class T>
struct MaskedSource {
    static constexpr int STEPS = 1, HALVES = 2;
    const T* panel;
    const char* ahead;
    Mask mask;

    __attribute__((always_inline)) void read(int64_t, Words (&words)[1][2]) {
        for_each<2>([&](auto half) __attribute__((always_inline)) {
            ask_for(ahead + half * 64);
            words[0][half] = mask(load<Words>(panel + half * EACH<T> * W));
        });
        panel += EACH<T> * OUTPUTS;
        ahead += EACH<T> * OUTPUTS * sizeof(T);
    }
};

// The words of a compact panel from input `first` on, a multiple of PART.
template <bool masks>
struct CompactSource {
    static constexpr int STEPS = 2, HALVES = 2;

    CompactSource(const CompactPanel& panel, int64_t first, const uint8_t* high, const QuireWeight& weight, int64_t distance)
        : unit(panel.units + first / 4 * UNIT_BYTES), end(panel.ends + first / PART), exceptions(panel.exceptions),
          exception(exceptions + (first ? end[-1] : 0)), last(exception), table(table_of(load<uint64_t>(high))),
          ahead(reinterpret_cast<const char*>(unit) + distance), mask(weight) {}

    __attribute__((always_inline)) void read(int64_t step, Words (&words)[2][2]) {
        if (step % PART == 0) last = exceptions + *end++;
        for (int64_t line = 0; line < UNIT_BYTES; line += 64) ask_for(ahead + line);
        ahead += UNIT_BYTES;
        const Bytes codes = load<Bytes>(unit);
        const Bytes low[2] = {load<Bytes>(unit + STEP_WEIGHTS), load<Bytes>(unit + 2 * STEP_WEIGHTS)};
        const Bytes high[2] = {look_up(table, low_nibbles(codes)), look_up(table, high_nibbles(codes))};
        unit += UNIT_BYTES;
        for_each<2>([&](auto i) __attribute__((always_inline)) {
            words[i][0] = bits_as<Words>(lower_words(low[i], high[i]));
            words[i][1] = bits_as<Words>(upper_words(low[i], high[i]));
        });
        const int64_t next = (step % PART + 4) * OUTPUTS;
        if (__builtin_expect(exception < last && (*exception >> 16) < next, 0)) {
            uint16_t plain[2 * STEP_WEIGHTS];
            for_each<4>([&](auto i) { store(plain + i * 2 * W, words[i / 2][i % 2]); });
            for (; exception < last && (*exception >> 16) < next; ++exception)
                plain[(*exception >> 16) % (2 * STEP_WEIGHTS)] = uint16_t(*exception);
            for_each<4>([&](auto i) { words[i / 2][i % 2] = load<Words>(plain + i * 2 * W); });
        }
        if (masks) for_each<4>([&](auto i) { words[i / 2][i % 2] = mask(words[i / 2][i % 2]); });
    }

    const uint8_t* unit;
    const uint32_t *end, *exceptions, *exception, *last;
    Bytes table;
    const char* ahead;
    Mask mask;
};

// Yields the words of another source, and stores their numbers as a plain panel.
template <class T, class Source>
struct StoringSource {
    static constexpr int STEPS = Source::STEPS, HALVES = 2;
    Source source;
    Decoded<T>* to;

    __attribute__((always_inline)) void read(int64_t step, Words (&words)[STEPS][2]) {
        source.read(step, words);
        for_each<2 * STEPS>([&](auto i) {
            if constexpr (std::is_same_v<Decoded<T>, T>) {
                store(to + i * EACH<T> * W, words[i / 2][i % 2]);
            } else {
                store(to + (i + i / 2 * 2) * W, words[i / 2][i % 2] << 16);
                store(to + (i + i / 2 * 2 + 2) * W, words[i / 2][i % 2] & 0xffff0000u);
            }
        });
        to += STEPS * EACH<T> * OUTPUTS;
    }
};

// One panel of a weight.
template <class T>
class PanelReader {
  public:
    PanelReader(const QuireWeight& weight, int64_t panel, int64_t depth)
        : weight_(weight), entry_(weight.panels ? weight.panels + panel : nullptr), depth_(depth),
          data_(static_cast<const uint8_t*>(weight.data) +
                (entry_ ? entry_->start : panel * depth * OUTPUTS * int64_t(sizeof(T)))) {}

    bool is_compact() const { return sizeof(T) == 2 && entry_ && entry_->high[0] != 255; }
    bool is_masked() const { return weight_.kept != ~0u; }
    bool is_plain() const { return !is_compact() && !is_masked(); }  // products may read `data`
    // Where about an input is in memory.
    const char* near(int64_t depth) const {
        const int64_t weights = depth * OUTPUTS;
        return reinterpret_cast<const char*>(data_) + (is_compact() ? weights * 3 / 2 : weights * int64_t(sizeof(T)));
    }
    const T* data() const { return reinterpret_cast<const T*>(data_); }

    // Calls use(source) with the words from input `first` on, a multiple of PART.
    template <class Use>
    void with_source(int64_t first, Use&& use, int64_t distance = COMPACT_AHEAD) const {
        if constexpr (sizeof(T) == 2)
            if (is_compact()) {
                const CompactPanel panel(data_, depth_);
                if (is_masked()) return use(CompactSource<true>(panel, first, entry_->high, weight_, distance));
                return use(CompactSource<false>(panel, first, entry_->high, weight_, distance));
            }
        const T* panel = data() + first * OUTPUTS;
        const char* from = reinterpret_cast<const char*>(panel);
        if (is_masked()) return use(MaskedSource<T>{panel, from + distance, Mask(weight_)});
        use(PlainSource<T>{panel, from + AHEAD, ASKS_AHEAD ? OUTPUTS * 2 : 0});
    }

    // to = the inputs [first, end) as a plain panel; `first` is a multiple of PART. Writes all words of a unit.
    __attribute__((noinline)) void read(int64_t first, int64_t end, Decoded<T>* to) const {
        with_source(first, [=](const auto& source) {
            StoringSource<T, std::decay_t<decltype(source)>> storing{source, to};
            Words words[storing.STEPS][2];
            for (int64_t step = 0; step < end - first; step += storing.STEPS * EACH<T>) storing.read(step, words);
        }, WIDENS<T> ? 0 : COMPACT_AHEAD);
    }

  private:
    const QuireWeight& weight_;
    const QuirePanel* entry_;
    int64_t depth_;
    const uint8_t* data_;
};

}  // namespace
