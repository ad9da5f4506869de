// Divides a step's attention into units: tiles of prompts' queries, and spans of decoding queries' keys.
#include <algorithm>
#include <vector>

#include "paged_attention.h"
#include "sizes.h"

namespace {

// Queries times heads of a group that share a tile of keys. Prompts: more rows pack the tile less often, as long as there
// are tiles for all threads. Decoding sequences use the least.
constexpr int64_t TILE_ROWS = 288, LEAST_TILE_ROWS = 96, TILES_A_THREAD = 4;
constexpr int64_t SERIAL_ELEMENTS = 1 << 18;  // elements of K and V per layer, up to which one thread is faster

// A decoding sequence.
struct Decoding {
    int64_t sequence, num_spans;
    int64_t first_span;   // where its window begins
    int64_t num_shared;   // leading spans shared with the previous sequence
    int64_t first_place;  // of its parts in `places`
};

struct Division {
    QuirePlan& plan;
    const QuireBatch& batch;
    QuireUnit* units = plan.units;
    int64_t num_partials = 0;

    int64_t start(int64_t i) const { return batch.query_start_loc[i]; }
    int64_t num_queries(int64_t i) const { return start(i + 1) - start(i); }

    // The span in which the window of a query begins.
    int64_t first_span(int64_t position) const {
        return position >= plan.window ? (position + 1 - plan.window) / QUIRE_SPAN : 0;
    }

    // Longest units first: the last queries of the longest prompts.
    void add_prompts() {
        int64_t total = 0;
        for (int64_t i = 0; i < batch.num_seqs; ++i) total += num_queries(i) > 1 ? num_queries(i) : 0;
        const int64_t rows = total * plan.num_kv_heads * plan.num_groups / (TILES_A_THREAD * plan.num_threads);
        const int64_t most = std::max<int64_t>(1, std::clamp(rows, LEAST_TILE_ROWS, TILE_ROWS) / plan.num_groups);
        QuireUnit* first_unit = units;
        for (int64_t i = 0; i < batch.num_seqs; ++i) {
            if (num_queries(i) == 1) continue;
            const int64_t context = batch.seq_lens[i] - num_queries(i);
            for (int64_t first = 0, count; first < num_queries(i); first += count) {
                count = std::min(most, num_queries(i) - first);
                *units++ = {i, start(i) + first, count, context + first, first_span(context + first) * QUIRE_SPAN,
                            context + first + count, -1};
            }
        }
        std::stable_sort(first_unit, units, [](const QuireUnit& a, const QuireUnit& b) {
            return (a.end_key - a.first_key) * a.num_queries > (b.end_key - b.first_key) * b.num_queries;
        });
    }

    // A span shared by several sequences becomes one unit, or a few.
    void add_decoding() {
        const int64_t most = std::max<int64_t>(1, LEAST_TILE_ROWS / plan.num_groups);
        std::vector<Decoding> left = find_decoding();
        for (int64_t span = 0; !left.empty(); ++span) {
            for (size_t first = 0, end; first < left.size(); first = end) {
                for (end = first + 1; end < left.size() && span < left[end].num_shared;) ++end;
                const int64_t run = int64_t(end - first), even = divide_up(run, divide_up(run, most));
                for (int64_t at = 0; at < run; ++at) {
                    const Decoding& each = left[first + size_t(at)];
                    const bool is_part = each.num_spans > 1;
                    const int64_t length = batch.seq_lens[each.sequence];
                    const int64_t first_key = (each.first_span + span) * QUIRE_SPAN;
                    if (at % even == 0)
                        *units++ = {each.sequence, start(each.sequence), std::min(even, run - at), length - 1, first_key,
                                    std::min<int64_t>(first_key + QUIRE_SPAN, length), is_part ? num_partials : -1};
                    if (is_part) plan.places[each.first_place + span] = num_partials++;
                }
            }
            const auto is_done = [=](const Decoding& each) { return each.num_spans == span + 1; };
            left.erase(std::remove_if(left.begin(), left.end(), is_done), left.end());
        }
    }

    std::vector<Decoding> find_decoding() {
        std::vector<Decoding> found;
        int64_t num_places = 0;
        for (int64_t i = 0; i < batch.num_seqs; ++i) {
            if (num_queries(i) != 1) continue;
            const bool follows = !found.empty() && found.back().sequence == i - 1;
            const int64_t first = first_span(batch.seq_lens[i] - 1);
            found.push_back({i, divide_up(batch.seq_lens[i], QUIRE_SPAN) - first, first, follows ? num_shared(i) : 0,
                             num_places});
            if (found.back().num_spans > 1) {
                plan.merges[plan.num_merges++] = {start(i), num_places, found.back().num_spans};
                num_places += found.back().num_spans;
            }
        }
        return found;
    }

    // The last token's span is never shared, nor is any where a window has begun.
    int64_t num_shared(int64_t i) const {
        if (std::max(batch.seq_lens[i], batch.seq_lens[i - 1]) > plan.window) return 0;
        const int64_t whole = (std::min(batch.seq_lens[i], batch.seq_lens[i - 1]) - 1) / QUIRE_SPAN;
        const int32_t *own = plan.block_tables + i * plan.table_stride, *before = own - plan.table_stride;
        const int64_t num_blocks = divide_up(whole * QUIRE_SPAN, plan.block_size);
        const int64_t num_same = std::mismatch(own, own + num_blocks, before).first - own;
        return std::min(num_same * plan.block_size / QUIRE_SPAN, whole);
    }
};

}  // namespace

int64_t quire_span() { return QUIRE_SPAN; }

int64_t quire_divide(QuirePlan* plan, const QuireBatch* batch) {
    int64_t num_seen = 0;
    for (int64_t i = 0; i < batch->num_seqs; ++i)
        num_seen += std::min(batch->seq_lens[i], plan->window) *
                    (batch->query_start_loc[i + 1] - batch->query_start_loc[i]);
    if (num_seen * plan->num_kv_heads * (plan->head_dim + plan->value_dim) <= SERIAL_ELEMENTS) plan->num_threads = 1;
    plan->num_merges = 0;
    Division division{*plan, *batch};
    division.add_prompts();
    division.add_decoding();
    plan->num_units = division.units - plan->units;
    return division.num_partials;
}
