// The C interface of paged attention: plain pointers and numbers, so that no torch version is bound.
//
// K and V are written to the cache and then read where they lie. A block's part of one layer is
// [2][num_kv_heads][block_size][head_dim], K before V; blocks are `block_stride` elements apart.
// `attention/cpu_attention.py` fills the structure in, field by field in this order.
#pragma once

#include <cstdint>

extern "C" {

enum { QUIRE_SPAN = 256 };  // keys of a decoding query that are taken at once, at most

// A tile of queries, and the span of keys that they attend to: queries of one sequence, or the decoding ones of several
// whose blocks of that span are the same.
struct QuireUnit {
    int64_t sequence;        // row of block_tables
    int64_t first_token;     // row of q
    int64_t num_queries;
    int64_t first_position;  // of the first query in its sequence: query i sees the keys up to first_position + i
    int64_t first_key, end_key;
    int64_t partial;  // where in `partials` the first query's share goes, the others' behind it; -1: all goes to `out`
};

// The spans of one query, added up.
struct QuireMerge {
    int64_t token;  // row of out
    int64_t first_place, num_places;
};

// What all layers of a step have in common.
struct QuirePlan {
    int64_t block_stride;
    int64_t num_kv_heads, num_groups, block_size, head_dim;  // query head = KV head * num_groups + member of the group
    float scale;
    int32_t num_threads;
    int64_t num_tokens;
    const int64_t* slot_mapping;  // [num_tokens] block * block_size + offset; negative: stored nowhere
    const int32_t* block_tables;
    int64_t table_stride;
    // What `quire_divide` fills in.
    int64_t num_units;
    QuireUnit* units;
    int64_t num_merges;
    QuireMerge* merges;
    int64_t* places;  // where in `partials` a query's shares are, in the order of its keys
    float* partials;  // [partials][num_kv_heads * num_groups][head_dim + 2]: sums, their weight, its exponent
};

// The sequences of a step, as `AttentionBatch` has them.
struct QuireBatch {
    int64_t num_seqs;
    const int64_t* query_start_loc;  // [num_seqs + 1]
    const int64_t* seq_lens;         // [num_seqs], their queries among them
    int32_t takes_prompts;           // or leaves out sequences of several queries
};

struct QuireAttention {
    const QuirePlan* plan;
    void* cache;            // of the layer: where the first block's part begins
    const void *q, *k, *v;  // [num_tokens, heads, head_dim], strides in elements, head_dim is dense
    void* out;              // [num_tokens, num_kv_heads * num_groups, head_dim], dense
    int64_t q_token_stride, q_head_stride, k_token_stride, k_head_stride, v_token_stride, v_head_stride;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT int64_t quire_span();
// Divides a step into units and merges, for which there is room: one each for every token, every sequence and every whole
// span of its keys. Returns the partials that there must be room for. Of few keys one thread takes all.
QUIRE_EXPORT int64_t quire_divide(QuirePlan*, const QuireBatch*);
QUIRE_EXPORT void quire_attend_float32(const QuireAttention*);
QUIRE_EXPORT void quire_attend_bfloat16(const QuireAttention*);
// Whether the level multiplies bfloat16 as it is, so that prompts in it are no slower than torch's.
QUIRE_EXPORT int quire_has_bfloat16_products();
}
