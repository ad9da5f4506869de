// Packs weights into plain or compact panels, and reads their rows.
#include "panels.h"

#include "kept.h"

namespace {

// Copies a panel's rows in panel order, of which those from `first` to `end` exist. Adjacent inputs form one word, so
// packing transposes words of either type.
template <class T>
void pack_panel(const void* weight, int64_t stride, int64_t in_features, int64_t first, int64_t end, int64_t panel,
                uint32_t* rows, uint32_t* to) {
    const int64_t depth = round_up(in_features, DEPTH<T>), words = depth / EACH<T>;
    for (int64_t i = 0; i < OUTPUTS; ++i) {
        const int64_t row = panel * OUTPUTS + i, count = first <= row && row < end ? in_features : 0;
        char* to = reinterpret_cast<char*>(rows + i * words);
        if (count) std::memcpy(to, static_cast<const T*>(weight) + (row - first) * stride, size_t(count) * sizeof(T));
        std::memset(to + count * sizeof(T), 0, size_t(depth - count) * sizeof(T));
    }
    int64_t at = 0;
    for (; at + W <= words; at += W)
        for (int64_t half = 0; half < OUTPUTS; half += W) {
            Words block[W];
            for (int i = 0; i < W; ++i) block[i] = load<Words>(rows + (half + i) * words + at);
            transpose(block);
            for (int i = 0; i < W; ++i) store(to + (at + i) * OUTPUTS + half, block[i]);
        }
    for (; at < words; ++at)
        for (int64_t i = 0; i < OUTPUTS; ++i) to[at * OUTPUTS + i] = rows[i * words + at];
}

template <class T>
void pack(const QuirePack& call) {
    const int64_t words = round_up(call.in_features, DEPTH<T>) / EACH<T>;
    Kept kept;
    uint32_t* rows = kept.of<uint32_t>(OUTPUTS * words);  // a copy, since a panel may be packed in place
    for (int64_t panel = 0; panel < divide_up(call.out_features, OUTPUTS); ++panel)
        pack_panel<T>(call.weight, call.stride, call.in_features, 0, call.out_features, panel, rows,
                      static_cast<uint32_t*>(call.packed) + panel * words * OUTPUTS);
}

// -- compact panels ---------------------------------------------------------------------------------------------------

// Eight high bytes: consecutive ones, of which the first may be replaced by zero, for weights of zero.
struct High {
    int16_t first;
    bool has_zero;

    int16_t of_code(int16_t code) const { return has_zero && !code ? 0 : int16_t(first + code); }
    int16_t code(int16_t high) const {
        const int16_t code = int16_t(high - first);
        return code < 0 ? 0 : code > 7 ? 7 : code;
    }
    bool misses(uint16_t word) const {
        const int16_t high = word >> 8 & 127;
        return of_code(code(high)) != high;
    }
    void store_to(uint8_t* to) const {
        for (int16_t i = 0; i < 8; ++i) to[i] = uint8_t(of_code(i));
    }
};

// The eight with the most weights, of a sample of the panel.
High choose_high(const uint16_t* rows, int64_t stride, int64_t num_rows, int64_t depth) {
    int64_t counts[128] = {}, best = -1;
    const int64_t step = depth < 512 ? 1 : 7;
    for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t at = 0; at < depth; at += step) ++counts[rows[row * stride + at] >> 8 & 127];
    High chosen{};
    for (int16_t first = 0; first <= 120; ++first)
        for (bool has_zero : {false, true}) {
            int64_t sum = has_zero ? counts[0] - counts[first] : 0;
            for (int i = 0; i < 8; ++i) sum += counts[first + i];
            if (sum > best) best = sum, chosen = {first, has_zero};
        }
    return chosen;
}

int64_t count_misses(const uint16_t* row, int64_t depth, High high) {
    int64_t misses = 0;
    for (int64_t first = 0; first < depth; first += 4096) {
        uint16_t part = 0;
        for (int64_t at = first; at < smaller(first + 4096, depth); ++at) part += high.misses(row[at]);
        misses += part;
    }
    return misses;
}

int64_t num_panels(const QuireCompact& call) { return divide_up(call.out_features, OUTPUTS); }

// Sizes of panels in place of their starts.
void measure(const QuireCompact& call) {
    const int64_t depth = round_up(call.in_features, DEPTH<BFloat16>), plain = depth * OUTPUTS * 2;
#pragma omp parallel for num_threads(call.num_threads) if (call.num_threads > 1) schedule(dynamic, 4)
    for (int64_t panel = 0; panel < num_panels(call); ++panel) {
        const uint16_t* rows = static_cast<const uint16_t*>(call.weight) + panel * OUTPUTS * call.stride;
        const int64_t num_rows = smaller(OUTPUTS, call.out_features - panel * OUTPUTS);
        const High high = choose_high(rows, call.stride, num_rows, call.in_features);
        int64_t misses = 0;
        for (int64_t row = 0; row < num_rows; ++row)
            misses += count_misses(rows + row * call.stride, call.in_features, high);
        QuirePanel& entry = call.panels[panel];
        entry.start = round_up((divide_up(depth, PART) + misses) * 4, 64) + round_up(divide_up(depth, 4) * UNIT_BYTES, 64);
        high.store_to(entry.high);
        if (entry.start * 20 > plain * 17) {
            entry.start = round_up(plain, 64);
            std::memset(entry.high, 255, 8);
        }
    }
}

// Low bytes of a step's words and their high bytes, in the order of a unit.
inline void split(const uint16_t* words, uint8_t* low, uint8_t* high) {
#if defined(__AVX512BW__)
    const __m512i a = load<__m512i>(words), b = load<__m512i>(words + OUTPUTS), byte = _mm512_set1_epi16(255);
    store(low, _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte)));
    store(high, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
#elif defined(__AVX2__)
    const __m256i a = load<__m256i>(words), b = load<__m256i>(words + OUTPUTS), byte = _mm256_set1_epi16(255);
    store(low, _mm256_packus_epi16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte)));
    store(high, _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)));
#else
    for (int64_t i = 0; i < STEP_WEIGHTS; ++i) {
        low[byte_place(i)] = uint8_t(words[i]);
        high[byte_place(i)] = uint8_t(words[i] >> 8);
    }
#endif
}

// Makes a compact panel of a plain one, `words`, with `count` inputs of `columns` outputs.
void encode(uint16_t* words, int64_t depth, int64_t count, int64_t columns, const uint8_t* high, uint8_t* to) {
    const High chosen{int16_t(high[1] - 1), high[0] == 0};
    // Padding is positive and no exception.
    const uint16_t filler = uint16_t(high[0] << 8);
    const bool has_padding = columns < OUTPUTS || count < round_up(depth, 4);
    for (int64_t i = 0; has_padding && i < round_up(depth, 4) * OUTPUTS; ++i)
        if (i / STEP_WEIGHTS * 2 + i % 2 >= count || i % STEP_WEIGHTS / 2 >= columns) words[i] = filler;
    uint32_t *ends = reinterpret_cast<uint32_t*>(to), *exceptions = ends + divide_up(depth, PART), number = 0;
    for (int64_t first = 0; first < depth; first += PART) {
        const uint16_t* part = words + first * OUTPUTS;
        const int64_t size = smaller(PART, round_up(depth - first, 4)) * OUTPUTS;
        for (int64_t i = 0; i < size; i += STEP_WEIGHTS) {
            uint16_t misses = 0;
            for (int64_t j = i; j < i + STEP_WEIGHTS; ++j) misses += chosen.misses(part[j]);
            for (int64_t j = i; misses && j < i + STEP_WEIGHTS; ++j)
                if (chosen.misses(part[j])) exceptions[number++] = uint32_t(j << 16 | part[j]);
        }
        ends[first / PART] = number;
    }
    uint8_t* unit = to + round_up((exceptions + number - ends) * 4, 64);
    for (int64_t step = 0; step < depth; step += 4, unit += UNIT_BYTES, words += 2 * STEP_WEIGHTS) {
        uint8_t bytes[2][STEP_WEIGHTS];
        for (int i = 0; i < 2; ++i) split(words + i * STEP_WEIGHTS, unit + (i + 1) * STEP_WEIGHTS, bytes[i]);
        const auto code = [&](uint8_t byte) { return uint8_t(chosen.code(byte & 127) | (byte >> 4 & 8)); };
        for (int64_t i = 0; i < STEP_WEIGHTS; ++i) unit[i] = uint8_t(code(bytes[0][i]) | code(bytes[1][i]) << 4);
    }
}

void compact(const QuireCompact& call) {
    if (!call.packed) {
        measure(call);
        int64_t start = 0;
        for (int64_t panel = 0; panel <= num_panels(call); ++panel) {
            const int64_t size = call.panels[panel].start;
            call.panels[panel].start = start;
            start += size;
        }
        return;
    }
    const int64_t depth = round_up(call.in_features, DEPTH<BFloat16>);
#pragma omp parallel num_threads(call.num_threads) if (call.num_threads > 1)
    {
        Kept kept_rows, kept_words;
        uint32_t* rows = kept_rows.of<uint32_t>(OUTPUTS * depth / 2);
        uint16_t* words = kept_words.of<uint16_t>(OUTPUTS * round_up(depth, 4));
#pragma omp for schedule(dynamic)
        for (int64_t panel = 0; panel < num_panels(call); ++panel) {
            const QuirePanel& entry = call.panels[panel];
            uint8_t* to = static_cast<uint8_t*>(call.packed) + entry.start;
            const bool is_plain = entry.high[0] == 255;
            pack_panel<BFloat16>(call.weight, call.stride, call.in_features, 0, call.out_features, panel, rows,
                                 is_plain ? reinterpret_cast<uint32_t*>(to) : reinterpret_cast<uint32_t*>(words));
            if (!is_plain)
                encode(words, depth, call.in_features, smaller(OUTPUTS, call.out_features - panel * OUTPUTS), entry.high,
                       to);
        }
    }
}

// -- more bits --------------------------------------------------------------------------------------------------------

// to |= bits. Threads may share a panel, of which each changes other bits.
template <class Word>
void add_bits_to(Word* to, const Word* bits, int64_t size, bool is_shared) {
    if (!is_shared)
        for (int64_t i = 0; i < size; ++i) to[i] = Word(to[i] | bits[i]);
    else
        for (int64_t i = 0; i < size; ++i)
            if (bits[i]) __atomic_fetch_or(to + i, bits[i], __ATOMIC_RELAXED);
}

void add_bits_to(const CompactPanel& panel, const uint16_t* words, int64_t depth, bool is_shared) {
    uint8_t low[STEP_WEIGHTS], high[STEP_WEIGHTS];
    for (int64_t step = 0; step < depth; step += 2) {
        split(words + step * OUTPUTS, low, high);
        const uint8_t* to = panel.units + step / 4 * UNIT_BYTES + (1 + step / 2 % 2) * STEP_WEIGHTS;
        add_bits_to(const_cast<uint8_t*>(to), low, STEP_WEIGHTS, is_shared);
    }
    for (int64_t part = 0, i = 0; part < divide_up(depth, PART); ++part)
        for (; i < panel.ends[part]; ++i)
            if (const uint16_t bits = words[part * PART * OUTPUTS + (panel.exceptions[i] >> 16)])  // of this call's rows
                const_cast<uint32_t&>(panel.exceptions[i]) |= bits;
}

template <class T>
int32_t add_bits(const QuireBits& call) {
    const int64_t depth = round_up(call.in_features, DEPTH<T>), words = depth / EACH<T>;
    const int64_t end = call.first_row + call.num_rows;
    bool is_right = true;
#pragma omp parallel num_threads(call.num_threads) if (call.num_threads > 1)
    {
        static thread_local Kept kept_rows, kept_bits;
        uint32_t *rows = kept_rows.of<uint32_t>(OUTPUTS * words), *bits = kept_bits.of<uint32_t>(OUTPUTS * words);
#pragma omp for schedule(dynamic) reduction(&& : is_right)
        for (int64_t panel = call.first_row / OUTPUTS; panel < divide_up(end, OUTPUTS); ++panel) {
            pack_panel<T>(call.words, call.in_features, call.in_features, call.first_row, end, panel, rows, bits);
            const int64_t last = smaller((panel + 1) * OUTPUTS, call.out_features);
            const bool is_shared = panel * OUTPUTS < call.first_row || end < last;
            const PanelReader<T> reader(*call.weight, panel, depth);
            uint8_t* data = reinterpret_cast<uint8_t*>(const_cast<T*>(reader.data()));
            if (!reader.is_compact()) {
                add_bits_to(reinterpret_cast<uint32_t*>(data), bits, OUTPUTS * words, is_shared);
                continue;
            }
            uint32_t seen = 0;
            for (int64_t i = 0; i < OUTPUTS * words; ++i) seen |= bits[i];
            is_right = is_right && !(seen & 0xff80ff80u);
            if (is_right) add_bits_to(CompactPanel(data, depth), reinterpret_cast<uint16_t*>(bits), depth, is_shared);
        }
    }
    return is_right;
}

// -- rows -------------------------------------------------------------------------------------------------------------

// One output's inputs in a compact panel.
void unpack_compact(const CompactPanel& panel, const uint8_t* high, int64_t column, int64_t depth, uint16_t* to) {
    const int64_t place = byte_place(column * 2);
    for (int64_t at = 0; at < depth; ++at) {
        const uint8_t* unit = panel.units + at / 4 * UNIT_BYTES + place + at % 2;
        const int64_t step = at / 2 % 2;
        const uint8_t code = uint8_t(unit[0] >> 4 * step & 15);
        to[at] = uint16_t((high[code & 7] | (code & 8) << 4) << 8 | unit[(step + 1) * STEP_WEIGHTS]);
    }
    for (int64_t part = 0, i = 0; part < panel.exceptions - reinterpret_cast<const uint32_t*>(panel.ends); ++part)
        for (; i < panel.ends[part]; ++i) {
            const int64_t weight = panel.exceptions[i] >> 16;
            if (weight % STEP_WEIGHTS / 2 == column)
                to[part * PART + weight / STEP_WEIGHTS * 2 + weight % 2] = uint16_t(panel.exceptions[i]);
        }
}

template <class T>
int32_t unpack(const QuireRows& call) {
    for (int64_t i = 0; i < call.num_ids; ++i)
        if (call.ids[i] < 0 || call.ids[i] >= call.out_features) return 0;
    const QuireWeight& weight = *call.weight;
    const int64_t depth = round_up(call.in_features, DEPTH<T>), words = depth / EACH<T>;
#pragma omp parallel num_threads(call.num_threads) if (call.num_threads > 1)
    {
        static thread_local Kept kept;
        uint32_t* row = kept.of<uint32_t>(words);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < call.num_ids; ++i) {
            const int64_t id = call.ids[i], column = id % OUTPUTS;
            const PanelReader<T> panel(weight, id / OUTPUTS, depth);
            if (panel.is_compact()) {
                unpack_compact(CompactPanel(reinterpret_cast<const uint8_t*>(panel.data()), depth),
                               weight.panels[id / OUTPUTS].high, column, depth, reinterpret_cast<uint16_t*>(row));
            } else {
                const char* from = reinterpret_cast<const char*>(panel.data()) + column * 4;
                for (int64_t at = 0; at < words; ++at) std::memcpy(row + at, from + at * OUTPUTS * 4, 4);
            }
            for (int64_t at = 0; at < words; ++at) row[at] = (row[at] & weight.kept) | weight.middle;
            std::memcpy(static_cast<T*>(call.to) + i * call.in_features, row, size_t(call.in_features) * sizeof(T));
        }
    }
    return 1;
}

}  // namespace

int64_t quire_linear_panel() { return OUTPUTS; }
int64_t quire_linear_depth_float32() { return DEPTH<float>; }
int64_t quire_linear_depth_bfloat16() { return DEPTH<BFloat16>; }
void quire_pack_float32(const QuirePack* call) { pack<float>(*call); }
void quire_pack_bfloat16(const QuirePack* call) { pack<BFloat16>(*call); }
void quire_compact(const QuireCompact* call) { compact(*call); }
int32_t quire_add_bits_float32(const QuireBits* call) { return add_bits<float>(*call); }
int32_t quire_add_bits_bfloat16(const QuireBits* call) { return add_bits<BFloat16>(*call); }
int32_t quire_rows_float32(const QuireRows* call) { return unpack<float>(*call); }
int32_t quire_rows_bfloat16(const QuireRows* call) { return unpack<BFloat16>(*call); }
