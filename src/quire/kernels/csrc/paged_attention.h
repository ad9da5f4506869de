// C interface of paged attention: plain pointers and numbers, independent of torch's version.
//
// Writes K and V to the cache, and reads them there. A block's part of one layer is K, [num_kv_heads][block_size][head_dim],
// then V, [num_kv_heads][block_size][value_dim]; blocks are `block_stride` elements apart. In 8 bits an element is a byte,
// and each key and value begins with its scale (quantized_kv.h).
// `attention/cpu_attention.py` fills the structures, field by field in this order.
#pragma once

#include <cstdint>

extern "C" {

enum { QUIRE_SPAN = 256 };  // most keys of a decoding query at once

// A tile of queries and the span of keys that they attend to: queries of one sequence, or decoding queries of several
// sequences that share the span's blocks.
struct QuireUnit {
    int64_t sequence;        // row of block_tables
    int64_t first_token;     // row of q
    int64_t num_queries;
    int64_t first_position;  // the first query's; query i attends up to first_position + i
    int64_t first_key, end_key;
    int64_t partial;  // index in `partials` of the first query's part, followed by the others'; -1: writes `out`
};

// Merges the spans of one query.
struct QuireMerge {
    int64_t token;  // row of out
    int64_t first_place, num_places;
};

// The parts of a step that all layers of one kind share.
struct QuirePlan {
    int64_t block_stride;
    int64_t num_kv_heads, num_groups, block_size, head_dim;  // query head = KV head * num_groups + member of the group
    int64_t value_dim;
    int64_t key_stride;               // of a head's next key
    int64_t values_at, value_stride;  // of the first value in the layer's part, and of a head's next one
    int64_t window;                   // most keys that a query sees, its own included
    float scale, softcap;             // scores become softcap * tanh(scale * q k / softcap), unless softcap is 0
    int32_t stores_values, num_threads;
    int64_t num_tokens;
    const int64_t* slot_mapping;  // [num_tokens] block * block_size + offset; negative: not stored
    const int32_t* block_tables;
    int64_t table_stride;
    // Filled by `quire_divide`.
    int64_t num_units;
    QuireUnit* units;
    int64_t num_merges;
    QuireMerge* merges;
    int64_t* places;  // indices in `partials` of a query's parts, in the order of its keys
    float* partials;  // [partials][num_kv_heads * num_groups][value_dim + 2]: sums, their weight and its exponent
};

// The sequences of a step, as in `AttentionBatch`.
struct QuireBatch {
    int64_t num_seqs;
    const int64_t* query_start_loc;  // [num_seqs + 1]
    const int64_t* seq_lens;         // [num_seqs], including the queries
};

struct QuireAttention {
    const QuirePlan* plan;
    void* cache;            // the layer's part of the first block
    const void *q, *k, *v;  // [num_tokens, heads, dim], strides in elements, dim is dense; without k nothing is stored
    const void* sinks;      // [num_kv_heads * num_groups] scores of a key without a value, or null
    void* out;              // [num_tokens, num_kv_heads * num_groups, value_dim], dense
    int64_t q_token_stride, q_head_stride, k_token_stride, k_head_stride, v_token_stride, v_head_stride;
};

#define QUIRE_EXPORT __attribute__((visibility("default")))
QUIRE_EXPORT int64_t quire_span();
// Divides a step into units and merges. Their arrays need one entry per token, sequence and whole span of keys. Returns
// the number of partials. Uses one thread for few keys.
QUIRE_EXPORT int64_t quire_divide(QuirePlan*, const QuireBatch*);
QUIRE_EXPORT void quire_attend_float32(const QuireAttention*);
QUIRE_EXPORT void quire_attend_bfloat16(const QuireAttention*);
// With a cache in 8 bits.
QUIRE_EXPORT void quire_attend_float32_int8(const QuireAttention*);
QUIRE_EXPORT void quire_attend_bfloat16_int8(const QuireAttention*);
}
